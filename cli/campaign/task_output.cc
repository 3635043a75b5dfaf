// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/task_output.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "specs/samples/samples.h"
#include "steps/packed_output.h"
#include "steps/step.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

bool is_packed(const specs::TaskTemplate& task) {
  return task.kind == specs::StepKind::shell && task.output == specs::OutputMode::packed;
}

std::vector<TaskOutput> packed_output_of(const std::string& name, const fs::path& directory,
                                         specs::Element element) {
  std::vector<TaskOutput> result;
  for (const steps::PackedExecution& execution : steps::find_packed(directory, element)) {
    const std::string from =
        fmt::format(" of attempt {} (from {})", execution.entry.attempt, execution.log.string());
    result.push_back({steps::packed_out(execution), steps::packed_err(execution), from, from});
  }
  if (!result.empty()) return result;
  if (const auto damage = steps::packed_damage(directory, false); !damage.empty()) {
    throw Error(ExitCode::data, fmt::format("there is no output of {}, and some is damaged: {}{}", name, damage.front(),
                                            damage.size() > 1 ? fmt::format(" (and {} more)", damage.size() - 1) : ""));
  }
  throw Error(ExitCode::data,
              fmt::format("{} has printed nothing, or has not ended yet: {} has no entry for it", name,
                          directory.string()));
}

std::string end_of_file(const fs::path& path, std::uint64_t most) {
  std::error_code none;
  if (!fs::exists(path, none)) return {};
  const std::uint64_t size = fs::file_size(path, none);
  if (none || size <= most) return read_file(path);
  std::string bytes(most, '\0');
  bytes.resize(read_at(open_file(path, O_RDONLY).get(), size - most, bytes.data(), most, path));
  return bytes;
}

}  // namespace

std::optional<std::pair<fs::path, fs::path>> output_files(const specs::Plan& plan,
                                                          const specs::TaskId& task) {
  const specs::TaskTemplate task_template = plan.task_template(task.array);
  if (is_packed(task_template)) return std::nullopt;
  std::unique_ptr<const specs::SampleTable> samples;
  if (plan.study().samples) samples = specs::open_samples(plan.study().samples->design);
  const auto step = steps::make_step(task_template, samples.get());
  const steps::PreparedTask prepared = step->prepare({task.element, 0, false});
  const fs::path directory = prepared.directory;
  return std::pair(directory / prepared.out_file, directory / prepared.err_file);
}

void require_output(const specs::Plan& plan, const specs::TaskId& task,
                    const std::pair<fs::path, fs::path>& files) {
  std::error_code ignored;
  if (fs::exists(files.first, ignored) || fs::exists(files.second, ignored)) return;
  throw Error(ExitCode::data,
              fmt::format("{} has not run yet: there is no {}", specs::task_name(plan, task.array, task.element),
                          files.first.string()));
}

std::vector<TaskOutput> task_output(const specs::Plan& plan, const specs::TaskId& task, std::uint64_t most) {
  const auto files = output_files(plan, task);
  if (!files) {
    const fs::path directory = steps::packed_directory(plan.task_template(task.array).workspace);
    return packed_output_of(specs::task_name(plan, task.array, task.element), directory, task.element);
  }
  require_output(plan, task, *files);
  const auto& [out, err] = *files;
  return {{end_of_file(out, most), end_of_file(err, most), " " + out.string(), " " + err.string()}};
}

}  // namespace wflow::cli
