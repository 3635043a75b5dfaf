// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"

namespace wflow::engine::batch {

std::string CommandAnswer::problem() const {
  if (!started) return fmt::format("{} is not here", program);
  if (timed_out) {
    return fmt::format("{} gave no answer within {:.0f} s", program, BatchSystem::kCallTimeout_s);
  }
  const std::string words = one_line(err.empty() ? out : err);
  return words.empty() ? fmt::format("{} ended with code {}", program, status) : words;
}

CommandAnswer call(const CommandCall& command) {
  CommandAnswer answer;
  answer.program = command.argv.front();
  SpawnRequest request;
  request.argv = command.argv;
  request.directory = command.directory;
  request.environment = scheduler_environment(command.scheduler, current_environment());
  for (const std::string& variable : command.environment) request.environment->push_back(variable);
  try {
    FileDescriptor input;
    if (!command.input.empty()) input = open_file(command.input, O_RDONLY);
    request.stdin_fd = input ? input.get() : -1;
    CommandResult result = run_command(request, BatchSystem::kCallTimeout_s);
    answer.started = true;
    answer.timed_out = result.timed_out;
    answer.status = result.status;
    answer.out = std::move(result.out);
    answer.err = std::move(result.err);
  } catch (const Error& error) {
    answer.err = error.what();
  }
  return answer;
}

bool mentions_any(std::string_view text, const std::vector<std::string_view>& patterns) {
  const std::string low = text::lower(text);
  return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
    return low.find(text::lower(pattern)) != std::string::npos;
  });
}

Submission refused(const CommandAnswer& answer, const std::vector<std::string_view>& passes) {
  Submission submission;
  submission.text = answer.problem();
  if (!answer.started) {
    submission.refusal = Submission::Refusal::fatal;
  } else if (answer.timed_out || mentions_any(answer.err + answer.out, passes)) {
    submission.refusal = Submission::Refusal::wait;
  } else {
    submission.refusal = Submission::Refusal::fix;
  }
  return submission;
}

std::string one_line(std::string_view text) {
  constexpr std::size_t kMost = 400;
  std::string result;
  for (const std::string_view line : lines_of(text)) {
    if (!result.empty()) result += "; ";
    result += line;
    if (result.size() > kMost) break;
  }
  if (result.size() > kMost) result = result.substr(0, kMost) + " ...";
  return result;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text::trim(text.substr(0, end));
    if (!line.empty()) lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string user_name() {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found);
  if (found != nullptr) return found->pw_name;
  const char* user = std::getenv("USER");
  return user != nullptr ? user : std::to_string(::geteuid());
}

}  // namespace wflow::engine::batch
