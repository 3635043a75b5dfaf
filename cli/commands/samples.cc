// SPDX-License-Identifier: Apache-2.0
// wflow samples: one table of a campaign's samples: values, targets, predictions, state, time and memory.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/sample_results.h"
#include "cli/campaign/selection.h"
#include "cli/commands/commands.h"
#include "cli/view/terminal.h"
#include "converters/config.h"
#include "converters/split.h"
#include "specs/plan/plan.h"
#include "specs/samples/samples.h"
#include "specs/study/blocks.h"
#include "steps/step.h"

namespace wflow::cli {

namespace {

constexpr std::uint64_t kSamplesListed = 100;

struct SamplesOptions {
  SelectionOptions selection;
  std::string training;
  std::optional<std::uint64_t> limit;
  bool json = false;
  bool csv = false;
};

// The step whose samples are listed, and the conversion that reads this step's output. If there is none, a
// conversion that reads another step's.
struct Listed {
  const specs::PlannedStep* step = nullptr;
  const specs::PlannedStep* convert = nullptr;
};

bool has_samples(const specs::PlannedStep& step) {
  return step.sample_dependent && step.block_samples == 0;
}

const specs::PlannedStep* any_conversion(const specs::Plan& plan) {
  for (const specs::PlannedStep& planned : plan.steps()) {
    if (planned.block_samples > 0) return &planned;
  }
  return nullptr;
}

const specs::PlannedStep* conversion_of(const specs::Plan& plan, const std::string& step) {
  for (const specs::PlannedStep& planned : plan.steps()) {
    if (planned.block_samples > 0 && specs::source_step(plan.study().steps[planned.study_step]) == step)
      return &planned;
  }
  return nullptr;
}

// `name`, else the step that is converted, else the first one that runs once a sample.
Listed listed_step(const specs::Plan& plan, const std::string& name) {
  Listed first;
  for (const specs::PlannedStep& step : plan.steps()) {
    if (!has_samples(step) || (!name.empty() && step.name != name)) continue;
    const specs::PlannedStep* convert = conversion_of(plan, step.name);
    if (convert != nullptr) return {&step, convert};
    if (!name.empty()) return {&step, any_conversion(plan)};
    if (first.step == nullptr) first.step = &step;
  }
  if (first.step != nullptr) return first;
  throw Error(ExitCode::usage, name.empty()
                                   ? std::string("no step of this campaign runs once a sample")
                                   : fmt::format("no step '{}' of this campaign runs once a sample", name));
}

// The part of a data set that each sample of a campaign belongs to, from the study alone: as the conversion
// will place it (converters/split.h), before there is a shard.
class SampleSplit {
 public:
  // Split of the data set that the planned step `convert` makes, which is the one with block_samples.
  // `samples` must outlive this.
  SampleSplit(const specs::Plan& plan, const specs::PlannedStep& convert, const specs::SampleTable& samples);

  // "train", "validation", "test"; empty for a sample that no part takes. In a stratified split, the samples
  // of a block depend on each other: any order of calls is right, ascending order is fast.
  std::optional<std::string_view> of(specs::Element sample);

 private:
  std::uint64_t identity(specs::Element sample) const;
  std::uint64_t stratum(specs::Element sample) const;
  std::optional<std::size_t> place_stratified(specs::Element sample);

  const specs::SampleTable& samples_;
  converters::SplitRequest request_;
  converters::SplitMap map_;
  std::optional<std::size_t> group_column_, stratum_column_;
  std::uint64_t block_samples_;
  // State of a stratified split: the samples of the current block before next_ are placed.
  specs::Element next_ = 0;
  std::map<std::uint64_t, converters::SplitMap::Stratum> strata_;
};

converters::SplitRequest split_of(const specs::Plan& plan, const specs::PlannedStep& convert) {
  return std::get<converters::ConvertConfig>(plan.task_template(convert.first_array).settings).split;
}

std::optional<std::size_t> column_of(const specs::SampleTable& samples, const std::string& name) {
  const auto found = std::find(samples.columns().begin(), samples.columns().end(), name);
  if (name.empty() || found == samples.columns().end()) return std::nullopt;
  return static_cast<std::size_t>(found - samples.columns().begin());
}

SampleSplit::SampleSplit(const specs::Plan& plan, const specs::PlannedStep& convert,
                         const specs::SampleTable& samples)
    : samples_(samples),
      request_(split_of(plan, convert)),
      map_(request_, samples.count()),
      group_column_(column_of(samples, request_.group_by)),
      stratum_column_(column_of(samples, request_.stratify_by)),
      block_samples_(std::max<std::uint64_t>(convert.block_samples, 1)) {}

// The same identity as in converters/input/sample_table.cc for the rows that steps/convert.cc passes on.
std::uint64_t SampleSplit::identity(specs::Element sample) const {
  return converters::identity_of(group_column_ ? samples_.text(sample, *group_column_)
                                               : std::to_string(sample));
}

std::uint64_t SampleSplit::stratum(specs::Element sample) const {
  const auto& edges = request_.stratify_edges;
  if (edges.empty()) return converters::identity_of(samples_.text(sample, *stratum_column_));
  const double value = samples_.number(sample, *stratum_column_);
  return static_cast<std::uint64_t>(std::upper_bound(edges.begin(), edges.end(), value) - edges.begin());
}

std::optional<std::size_t> SampleSplit::place_stratified(specs::Element sample) {
  const specs::Element first = sample / block_samples_ * block_samples_;
  if (sample < next_ || next_ < first) {
    strata_.clear();
    next_ = first;
  }
  std::optional<std::size_t> part;
  for (; next_ <= sample; ++next_) {
    if (next_ % block_samples_ == 0) strata_.clear();
    part = map_.next_of(strata_[stratum(next_)], identity(next_));
  }
  return part;
}

std::optional<std::string_view> SampleSplit::of(specs::Element sample) {
  const auto part = stratum_column_ ? place_stratified(sample) : map_.of(sample, identity(sample));
  return part ? std::optional(converters::kSplitNames.at(*part)) : std::nullopt;
}

class SampleListing {
 public:
  SampleListing(const specs::Plan& plan, const Listed& listed, const SamplesOptions& options,
                engine::Client& client)
      : plan_(plan),
        options_(options),
        several_arrays_(listed.step->arrays > 1),
        samples_(specs::open_samples(plan.study().samples->design)),
        results_(results_of(plan, listed, options, client)),
        table_(headings()) {
    if (listed.convert != nullptr) split_.emplace(plan, *listed.convert, *samples_);
    if (options.csv) table_.print_csv();
  }

  void add(const TaskRow& row) {
    ++found_;
    if (options_.json) {
      fmt::print("{}{}", found_ == 1 ? "[\n  " : ",\n  ", json_of(row).dump());
    } else if (options_.csv) {
      Table::print_csv_row(cells_of(row));
    } else {
      table_.add(cells_of(row));
      if (found_ % kTogether == 0) print_table();
    }
  }

  void finish(bool more) {
    if (options_.json) {
      fmt::print("{}", found_ == 0 ? "[]\n" : "\n]\n");
    } else if (!options_.csv) {
      if (found_ == 0) fmt::print("no such sample\n");
      if (found_ % kTogether != 0) print_table();
      if (more) fmt::print("the first {}; --limit 0 shows all\n", found_);
    }
  }

  std::uint64_t found() const { return found_; }

 private:
  static constexpr std::uint64_t kTogether = 10'000;  // rows that share column widths

  void print_table() {
    table_.print(standard_output());
    table_.clear();
  }

  static std::optional<SampleResults> results_of(const specs::Plan& plan, const Listed& listed,
                                                 const SamplesOptions& options, engine::Client& client) {
    if (listed.convert == nullptr) return std::nullopt;
    return std::optional<SampleResults>(std::in_place, plan, *listed.step, *listed.convert, client,
                                        options.training);
  }

  // True if a result has the name of an input: a parameter that is also a target.
  bool is_input(const std::string& name) const {
    return std::ranges::find(samples_->columns(), name) != samples_->columns().end();
  }

  std::vector<std::string> headings() const {
    std::vector<std::string> names = {"id"};
    if (several_arrays_) names.emplace_back("array");
    names.insert(names.end(), samples_->columns().begin(), samples_->columns().end());
    for (const std::string& name : results_ ? results_->columns() : std::vector<std::string>()) {
      if (!is_input(name)) names.push_back(name);
    }
    if (options_.csv) {
      names.insert(names.end(), {"split", "state", "exit_code", "attempts", "duration_s", "cpu_s",
                                 "peak_bytes", "worker", "directory"});
    } else {
      names.insert(names.end(), {"split", "state", "time", "memory", "directory"});
    }
    return names;
  }

  // The targets and predictions that are no inputs, by their names.
  std::vector<std::pair<std::string, std::string>> results(const TaskRow& row) {
    std::vector<std::pair<std::string, std::string>> found;
    if (!results_) return found;
    const std::vector<std::string> cells = results_->of(row.array, row.element);
    for (std::size_t k = 0; k < cells.size(); ++k) {
      if (!is_input(results_->columns()[k])) found.emplace_back(results_->columns()[k], cells[k]);
    }
    return found;
  }

  // The CPU time, if a single sample used it, and not the bundle that it was in.
  static std::optional<double> cpu_of(const TaskRow& row) {
    return row.used && row.used->count == 1 ? std::optional(row.used->cpu_s) : std::nullopt;
  }

  static std::string number(const std::optional<double>& value) {
    return value ? text::from_real(*value) : std::string();
  }

  void add_task(const TaskRow& row, std::vector<Cell>& cells) {
    cells.push_back({row.state_name()});
    if (options_.csv) {
      cells.push_back({row.exit_code ? std::to_string(*row.exit_code) : std::string()});
      cells.push_back({std::to_string(row.attempts)});
      cells.push_back({number(row.duration_s)});
      cells.push_back({number(cpu_of(row))});
      cells.push_back({row.used ? std::to_string(row.used->peak_bytes) : std::string()});
      cells.push_back({row.worker});
    } else {
      cells.push_back({row.duration_s ? text::format_duration(*row.duration_s) : std::string()});
      cells.push_back({row.used ? text::format_bytes(row.used->peak_bytes) : std::string()});
    }
  }

  std::string split_text(specs::Element sample) {
    return std::string(split_ ? split_->of(sample).value_or("none") : "");
  }

  // An absolute path for programs (`whole`); relative to the campaign's directory in the table.
  std::string directory_of(const TaskRow& row, bool whole) {
    if (!template_ || template_->array != row.array) template_ = plan_.task_template(row.array);
    const std::string directory = steps::working_directory(*template_, row.element);
    const std::string campaign = plan_.campaign().string() + "/";
    return whole || !directory.starts_with(campaign) ? directory : directory.substr(campaign.size());
  }

  // Six digits are enough to read; programs get all of them.
  std::string shown(std::string value) const {
    constexpr std::size_t kDigits = 8;
    if (options_.csv || value.size() <= kDigits) return value;
    const auto number = text::to_real(value);
    return number && !text::to_integer(value) ? fmt::format("{:.6g}", *number) : value;
  }

  std::vector<Cell> cells_of(const TaskRow& row) {
    std::vector<Cell> cells = {{std::to_string(row.element)}};
    if (several_arrays_) cells.push_back({plan_.array_name(row.array)});
    for (std::size_t k = 0; k < samples_->columns().size(); ++k)
      cells.push_back({shown(samples_->text(row.element, k))});
    for (auto& [name, text] : results(row)) cells.push_back({shown(std::move(text))});
    cells.push_back({split_text(row.element)});
    add_task(row, cells);
    cells.push_back({directory_of(row, options_.csv)});
    return cells;
  }

  static nlohmann::json json_of_cell(const std::string& cell) {
    if (cell.empty()) return nullptr;
    const auto number = text::to_real(cell);
    return number ? nlohmann::json(*number) : nlohmann::json(cell);
  }

  nlohmann::json json_of(const TaskRow& row) {
    using Json = nlohmann::json;
    Json values = Json::object();
    for (std::size_t k = 0; k < samples_->columns().size(); ++k)
      values[samples_->columns()[k]] = json_of_cell(samples_->text(row.element, k));
    Json found = Json::object();
    for (const auto& [name, text] : results(row)) found[name] = json_of_cell(text);
    const auto real = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
    const std::string split = split_text(row.element);
    return {{"id", row.element},
            {"array", plan_.array_name(row.array)},
            {"values", values},
            {"results", found},
            {"split", split.empty() ? Json() : Json(split)},
            {"state", row.state_name()},
            {"exit_code", row.exit_code ? Json(*row.exit_code) : Json()},
            {"attempts", row.attempts},
            {"duration_s", real(row.duration_s)},
            {"cpu_s", real(cpu_of(row))},
            {"peak_bytes", row.used ? Json(row.used->peak_bytes) : Json()},
            {"worker", row.worker.empty() ? Json() : Json(row.worker)},
            {"directory", directory_of(row, true)}};
  }

  const specs::Plan& plan_;
  const SamplesOptions& options_;
  bool several_arrays_;
  std::unique_ptr<const specs::SampleTable> samples_;
  std::optional<SampleResults> results_;
  std::optional<SampleSplit> split_;
  std::optional<specs::TaskTemplate> template_;  // template of the array that is listed
  Table table_;
  std::uint64_t found_ = 0;
};

int samples(SamplesOptions& options) {
  const specs::Plan plan = read_plan(open_selection(options.selection));
  if (!plan.study().samples)
    throw Error(ExitCode::usage, "this campaign has no samples: its study has no samples: block");
  const Listed listed = listed_step(plan, options.selection.step);
  engine::Client client(plan);
  const std::uint64_t limit = options.limit.value_or(options.json || options.csv ? 0 : kSamplesListed);
  SelectionOptions selection = options.selection;
  selection.step = listed.step->name;
  selection.with_usage = true;
  selection.few = !options.json && !options.csv;
  SampleListing listing(plan, listed, options, client);
  list_tasks(plan, client, selection, limit, listing);
  return 0;
}

}  // namespace

void add_samples(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<SamplesOptions>();
  CLI::App* command =
      app.add_subcommand("samples", "one table of the samples: values, targets, predictions, state, time");
  command->footer(
      "State, time and memory are those of the sample's task in --step (default: the step that is converted, "
      "else the\nfirst that runs once a sample). The split is the one that the conversion makes. Once there "
      "is "
      "a data set, its\ntargets are columns, if all are numbers. Once a training has ended, the test samples "
      "have "
      "NAME_predicted and\nNAME_error (predicted - true). With --csv, times are in seconds and memory in "
      "bytes.\n"
      "Examples:\n  wflow samples\n  wflow samples --csv > samples.csv\n  wflow samples --missing\n"
      "  wflow samples cosmoflow --where \"omega_m > 0.3\" --json");
  add_selection(*command, options->selection);
  command->add_option("--training", options->training,
                      "whose predictions (default: the best training that has some)");
  command->add_option("--limit", options->limit,
                      "show so many at most; 0: all (default: 100, all for programs)");
  auto* json = command->add_flag("--json", options->json, "as JSON");
  command->add_flag("--csv", options->csv, "as comma-separated values")->excludes(json);
  command->callback([options, &chosen] { chosen = [options] { return samples(*options); }; });
}

}  // namespace wflow::cli
