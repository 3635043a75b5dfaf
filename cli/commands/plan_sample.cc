// SPDX-License-Identifier: Apache-2.0
// `wflow plan --sample N`: runs a few tasks of each step in a temporary directory, and reckons what the whole
// campaign takes.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/estimate.h"
#include "cli/campaign/usage.h"
#include "cli/commands/run.h"
#include "engine/batch/local_pool.h"
#include "engine/coordinate/coordinator.h"
#include "engine/query/client.h"
#include "specs/samples/samples.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

// Removed with all of its files, unless kept.
class SampleFolder {
 public:
  SampleFolder() {
    std::string name = (fs::temp_directory_path() / "wflow-sample-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw system_error(errno, "cannot make " + name);
    path_ = name;
  }
  SampleFolder(const SampleFolder&) = delete;
  SampleFolder& operator=(const SampleFolder&) = delete;
  ~SampleFolder() {
    std::error_code ignored;
    if (!kept_) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  fs::path path_;
  bool kept_ = false;
};

void require_can_be_sampled(const specs::Study& study, bool local) {
  const auto refuse = [](const std::string& why) -> Error {
    return Error(ExitCode::usage, "--sample " + why);
  };
  if (study.iterate) throw refuse("does not run a study with iterate:, whose next samples depend on results");
  if (study.samples && study.samples->design.count == 0)
    throw refuse(
        "needs the samples, which a command of the study has not generated yet; run that command first");
  if (study.samples && study.samples->design.kind == specs::DesignKind::parts)
    throw refuse("does not run a study whose samples: is a list of designs; plan with one of them");
  const auto schedulers = engine::wanted_schedulers(study);
  if (!local && !schedulers.empty())
    throw refuse(
        fmt::format("runs tasks on this machine, and the study asks for the scheduler '{}'; with "
                    "--local they run here",
                    *schedulers.begin()));
}

// `count` places in [0, size), from the first to the last one.
std::vector<std::uint64_t> spread(std::uint64_t size, std::uint64_t count) {
  std::vector<std::uint64_t> places;
  for (std::uint64_t i = 0; i < std::min(size, count); ++i)
    places.push_back(size <= count ? i : count == 1 ? 0 : i * (size - 1) / (count - 1));
  return places;
}

fs::path write_samples(const specs::Samples& samples, std::uint64_t count, const fs::path& folder) {
  const auto table = specs::open_samples(samples.design);
  std::string text = text::join(table->columns(), "\t") + "\n";
  for (const std::uint64_t row : spread(table->count(), count)) {
    std::vector<std::string> cells;
    for (std::size_t k = 0; k < table->columns().size(); ++k) cells.push_back(table->text(row, k));
    text += text::join(cells, "\t") + "\n";
  }
  fs::path file = folder / "sample.tsv";
  write_file_durably(file, text);
  return file;
}

// The same parameters with a part of their values, in the form that --pgen records.
std::string some_parameters(const std::vector<specs::Parameter>& parameters,
                            const std::vector<std::uint64_t>& rows) {
  nlohmann::json made = nlohmann::json::object();
  for (const specs::Parameter& parameter : parameters) {
    std::vector<std::string> values, labels;
    for (const std::uint64_t row : rows) {
      values.push_back(parameter.values[row]);
      labels.push_back(parameter.labels[row]);
    }
    made[parameter.name] = {{"values", values}, {"label", labels}, {"name", parameter.title}};
  }
  return made.dump();
}

specs::StudyAndWarnings read_small(const specs::Study& whole, std::uint64_t count, const fs::path& folder) {
  specs::ReadOptions options = whole.options;
  std::erase_if(options.variables, [](const std::string& one) { return one.starts_with("OUTPUT_PATH="); });
  options.variables.push_back("OUTPUT_PATH=" + folder.string());
  std::uint64_t combinations = 1;
  if (!whole.parameters.empty()) {
    const std::vector<std::uint64_t> rows = spread(whole.parameters.front().values.size(), count);
    combinations = rows.size();
    options.parameters = some_parameters(whole.parameters, rows);
    if (options.generator.empty()) options.generator = whole.file.string();  // is not run: it has its result
  }
  if (whole.samples) {
    const std::uint64_t samples = (count + combinations - 1) / combinations;
    options.samples_file = write_samples(*whole.samples, samples, folder).string();
  }
  try {
    return specs::read_study(whole.file, options);
  } catch (const Error& error) {
    if (error.code() != ExitCode::spec) throw;
    throw Error(ExitCode::usage,
                fmt::format("--sample {}: the study does not go with so few samples; take more of them: {}",
                            count, error.what()));
  }
}

engine::wire::Request cancel_trainings(const specs::Plan& plan) {
  engine::wire::CancelRequest request;
  request.tasks.chosen = true;
  for (const std::size_t place : steps_of_trainings(plan)) {
    const specs::PlannedStep& step = plan.steps()[place];
    for (specs::ArrayId array = step.first_array; array < step.first_array + step.arrays; ++array)
      request.tasks.parts.push_back({array, 0, step.elements - 1});
  }
  return request;
}

// Bytes in the directories of each step.
std::map<std::string, std::uint64_t> disk_of(const specs::Plan& plan) {
  std::map<std::string, std::uint64_t> bytes;
  std::set<std::string> counted;
  for (const specs::PlannedStep& step : plan.steps()) {
    for (specs::ArrayId array = step.first_array; array < step.first_array + step.arrays; ++array) {
      const std::string folder = plan.task_template(array).workspace;
      if (counted.insert(folder).second) bytes[step.name] += bytes_below(folder);
    }
  }
  return bytes;
}

void show_failures(const fs::path& campaign, std::uint64_t failed) {
  fmt::print(stderr, "{} of the sample failed; the campaign is kept: {}\n",
             failed == 1 ? "1 task" : fmt::format("{} tasks", failed), campaign.string());
  std::fflush(stdout);
  SpawnRequest request;
  request.argv = {sibling_program("wflow"), "logs", campaign.string(), "--failed"};
  const CommandResult logs = run_command(request);
  fmt::print(stderr, "{}{}", logs.out, logs.err);
}

}  // namespace

int sample_plan(const specs::Study& study, const SampleOptions& options) {
  require_can_be_sampled(study, options.local);
  SampleFolder folder;
  const specs::StudyAndWarnings small = read_small(study, options.tasks, folder.path());
  require_programs(small.study);
  const specs::Plan plan = create(small);
  RunOptions run;
  run.quiet = true;
  run.local = true;
  run.keep_going = true;
  run.observed = false;
  run.slots = options.slots;
  if (!steps_of_trainings(plan).empty()) run.first = cancel_trainings(plan);
  fmt::print(stderr, "{} task{} of each step run in {}\n", options.tasks, options.tasks == 1 ? "" : "s",
             folder.path().string());
  coordinate(plan, run, false);
  const engine::CampaignStatus status = engine::campaign_status(plan.campaign());
  if (status.failed() > 0 || status.ended() < status.elements()) {
    folder.keep();
    show_failures(plan.campaign(), status.failed());
    return static_cast<int>(status.failed() > 0 ? ExitCode::tasks_failed : ExitCode::interrupted);
  }
  const Estimate estimate = estimate_of(specs::Plan(study, "/"), plan, usage_facts(plan.campaign()),
                                        disk_of(plan), options.tasks, engine::batch::usable_cores());
  fmt::print("{}", options.json ? to_json(estimate).dump(2) + "\n" : text_of(estimate));
  return 0;
}

}  // namespace wflow::cli
