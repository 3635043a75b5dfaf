// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/output_check.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "steps/files.h"
#include "steps/outputs.h"

namespace wflow::workers {

namespace wire = engine::wire;

namespace {

std::string log_name(std::size_t slot) {
  return fmt::format("slot-{}.check", slot);
}

Ending bad_output(std::string why) {
  return {false, wire::EndReason::bad_output, 0, std::move(why)};
}

}  // namespace

bool OutputCheck::start(std::size_t slot, Ending& ending) {
  SlotRecord& record = slots_.records[slot];
  const TaskArray& array = arrays_.at(record.array);
  const std::string log = log_name(slot);
  ::unlink((slots_.directory + "/" + log).c_str());
  std::vector<const char*> environment;
  for (const std::string& variable : array.environment) environment.push_back(variable.c_str());
  environment.push_back(nullptr);
  try {
    const std::vector<steps::OutputFile> files =
        steps::output_files(array.task_template, arrays_.samples(), slots_.tasks[slot].execution());
    if (std::string why = steps::missing_output(files); !why.empty()) {
      ending = bad_output(std::move(why));
      return false;
    }
    const std::vector<std::string> argv = steps::check_command(files);
    if (argv.empty()) return false;
    // From here on a guardian gives the task no result.
    record.checking = true;
    launcher_.start({argv.front().c_str(), &argv, &environment, &slots_.directory, &log, &log, -1, -1,
                     &slots_.tasks[slot].share.cpus, reinterpret_cast<pid_t*>(&record.pid)});
  } catch (const Error& error) {
    ending = bad_output(fmt::format("its outputs could not be looked at: {}", error.what()));
    return false;
  }
  return true;
}

Ending OutputCheck::judge(std::size_t slot, int code, int status) const {
  Ending ending = workers::judge(slots_.records[slot], code, status);
  if (ending.success || slots_.records[slot].killed) return ending;
  constexpr std::size_t kSentence = 2048;
  const std::string log = slots_.directory + "/" + log_name(slot);
  std::string said(text::trim(steps::output_tail("", log, {}, kSentence)));
  const std::string_view program = "wflow-convert: ";
  if (said.starts_with(program)) said.erase(0, program.size());
  if (code == CLD_EXITED && status == static_cast<int>(ExitCode::data))
    return bad_output("a declared output is wrong: " + said);
  return bad_output(
      fmt::format("its outputs could not be looked at: wflow-convert check ended with {} {}: {}",
                  code == CLD_EXITED ? "exit code" : "signal", status, said));
}

}  // namespace wflow::workers
