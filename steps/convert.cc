// SPDX-License-Identifier: Apache-2.0
// Conversion steps: run wflow-convert once for each block of samples, and once more to close the data set.
#include <fmt/format.h>

#include <algorithm>

#include "base/blocks.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/process.h"
#include "base/yaml.h"
#include "specs/study/blocks.h"
#include "steps/command.h"
#include "steps/step.h"

namespace wflow::steps {

namespace {

class Convert final : public Step {
 public:
  Convert(const specs::TaskTemplate& task_template, const specs::SampleTable* samples)
      : template_(task_template), samples_(samples), program_(sibling_program("wflow-convert")) {
    if (template_.block_samples > 0) choose_columns();
  }

  ArraySetup setup() const override {
    return {{template_.workspace + "/logs", own_directory()},
            {{config_path(), yaml::emit(specs::to_yaml(template_.settings))}}};
  }

  PreparedTask prepare(const Execution& execution) const override {
    PreparedTask task;
    task.directory = template_.workspace;
    task.argv = {program_, config_path()};
    std::string log = "logs/finish";
    if (template_.block_samples > 0) {
      const std::string number = fmt::format("{:05}", execution.element);
      const std::string rows = own_directory() + "/rows-" + number + ".csv";
      task.files.push_back({rows, rows_of(execution)});
      for (std::string word :
           {std::string("--block"), std::to_string(execution.element), std::string("--samples"), rows}) {
        task.argv.push_back(std::move(word));
      }
      log = "logs/block-" + number;
    } else {
      task.argv.emplace_back("--finish");
    }
    task.out_file = log + ".out";
    task.err_file = log + ".err";
    task.environment = element_environment(template_, execution);
    return task;
  }

 private:
  std::string own_directory() const { return template_.workspace + "/.wflow-convert"; }
  std::string config_path() const { return own_directory() + "/config.yaml"; }

  void choose_columns() {
    if (const auto* unread = std::get_if<specs::UnreadBlock>(&template_.settings))
      throw Error(ExitCode::spec, unread->errors);
    config_ = std::get<converters::ConvertConfig>(template_.settings);
    if (config_.file.empty() && config_.short_form)
      throw Error(ExitCode::spec, "the convert block names no file of a sample's directory");
    const specs::RowColumns wanted = specs::row_columns(config_);
    static const std::vector<std::string> kNone;
    const auto& all = samples_ ? samples_->columns() : kNone;
    for (const std::string& name : wanted.all ? all : wanted.names) {
      const auto found = std::find(all.begin(), all.end(), name);
      if (found == all.end())
        throw Error(ExitCode::spec, fmt::format("target '{}' is no column of the samples", name));
      columns_.push_back(static_cast<std::size_t>(found - all.begin()));
    }
  }

  std::string rows_of(const Execution& execution) const {
    const auto [first, end] = Blocks(template_.block_samples, template_.sample_starts)
                                  .items(execution.element, template_.sample_count);
    std::vector<const std::string*> reasons(end - first,
                                            nullptr);  // why a sample is left out; null: it is not
    for (const specs::LeftOut& out : execution.left_out) {
      for (std::uint64_t row = std::max(first, out.first); row < std::min(end, out.first + out.count); ++row)
        reasons[row - first] = &out.reason;
    }
    const bool some_out =
        std::any_of(reasons.begin(), reasons.end(), [](auto* reason) { return reason != nullptr; });
    std::string text = "id";
    if (directories()) text += ",directory";
    if (!config_.file.empty()) text += ",file";
    if (config_.stacked) text += ",row";
    if (some_out) text.append(",").append(converters::kLeftOutColumn);
    for (const std::size_t column : columns_) text += "," + csv::cell(samples_->columns()[column]);
    text += '\n';
    const Blocks bundles(std::max<std::uint64_t>(config_.bundle, 1), template_.sample_starts);
    for (std::uint64_t row = first; row < end; ++row) {
      const std::string directory = source_directory(template_, row, config_.bundle);
      text += std::to_string(row);
      if (directories()) text += "," + csv::cell(directory);
      if (!config_.file.empty()) text += "," + csv::cell(directory + "/" + file_of(row));
      if (config_.stacked)
        text += "," + std::to_string(row - bundles.around(row, template_.sample_count).first);
      if (some_out) text += "," + csv::cell(reasons[row - first] == nullptr ? "" : *reasons[row - first]);
      for (const std::size_t column : columns_) text += "," + csv::cell(samples_->text(row, column));
      text += '\n';
    }
    return text;
  }

  // True if the fields name files in a sample's directory.
  bool directories() const { return !config_.short_form; }

  std::string file_of(std::uint64_t row) const {
    std::string name = config_.file;
    constexpr std::string_view kSample = "$(MERLIN_SAMPLE_ID)";
    for (std::size_t at = name.find(kSample); at != std::string::npos; at = name.find(kSample, at))
      name.replace(at, kSample.size(), std::to_string(row));
    return name;
  }

  const specs::TaskTemplate& template_;
  const specs::SampleTable* samples_;
  std::string program_;
  converters::ConvertConfig config_;
  std::vector<std::size_t> columns_;
};

}  // namespace

std::unique_ptr<const Step> make_convert(const specs::TaskTemplate& task_template,
                                         const specs::SampleTable* samples) {
  return std::make_unique<Convert>(task_template, samples);
}

}  // namespace wflow::steps
