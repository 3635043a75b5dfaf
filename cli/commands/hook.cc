// SPDX-License-Identifier: Apache-2.0
// `wflow hook`, hidden: runs one command of on: beside its campaign. It reads its order as JSON from
// standard input (cli/observe/hooks), ends the command at its time limit and keeps the beginning of its
// output.
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/observe/hooks.h"

extern char** environ;

namespace wflow::cli {

namespace {

constexpr std::size_t kKeptBytes = 64 << 10;  // kept bytes of a command's output
constexpr double kGrace_s = 2;                // between SIGTERM and SIGKILL
constexpr int kLook_ms = 20;

class HookRun {
 public:
  explicit HookRun(const nlohmann::json& request)
      : facts_(request.at("facts")),
        command_(request.at("command").get<std::string>()),
        campaign_(request.at("campaign").get<std::string>()),
        limit_s_(request.at("timeout_s").get<double>()) {}

  void run() {
    log_ = open_file(hook_log(campaign_), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    write(fmt::format("== {} on {}: {}\n", now_text(), facts_.at("event").get<std::string>(), command_));
    const double began_s = steady_now_s();
    std::string end;
    try {
      start();
      end = follow(began_s + limit_s_);
    } catch (const Error& error) {
      end = error.what();
    }
    if (kept_ == kKeptBytes) write("\n[wflow: the rest is left out]");
    write(fmt::format("\n== {} {} after {}\n", now_text(), end,
                      text::format_duration(steady_now_s() - began_s)));
  }

 private:
  static std::string now_text() {
    return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)));
  }

  // Writes one line of the log at a time, because several hooks write to it.
  void write(const std::string& text) { write_all(log_.get(), text, hook_log(campaign_)); }

  void start() {
    const std::string input = facts_.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    const FileDescriptor facts(::memfd_create("wflow-facts", MFD_CLOEXEC));
    write_all(facts.get(), input, "a hook's facts");
    ::lseek(facts.get(), 0, SEEK_SET);
    std::array<int, 2> pipe{};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) throw system_error(errno, "cannot make a pipe");
    output_ = FileDescriptor(pipe[0]);
    const FileDescriptor write_end(pipe[1]);
    SpawnRequest request;
    request.argv = {"/bin/sh", "-c", command_};
    request.environment.emplace();
    for (char** variable = environ; *variable != nullptr; ++variable)
      request.environment->emplace_back(*variable);
    for (std::string& variable : hook_variables(facts_)) request.environment->push_back(std::move(variable));
    request.directory = campaign_;
    request.stdin_fd = facts.get();
    request.stdout_fd = request.stderr_fd = write_end.get();
    request.own_group = true;
    child_ = spawn(request);
  }

  // Gives how the command ended. Ends the processes that it left in the background.
  std::string follow(double until_s) {
    bool asked = false;
    for (;;) {
      // Without output to wait for, or with a flood of it, only check from time to time.
      if (output_ && kept_ < kKeptBytes) {
        pollfd ready{output_.get(), POLLIN, 0};
        ::poll(&ready, 1, kLook_ms);
      } else {
        ::usleep(kLook_ms * 1000);
      }
      read_some();
      int status = 0;
      if (::waitpid(child_, &status, WNOHANG) == child_) {
        ::kill(-child_, SIGKILL);
        read_some();
        if (asked) return fmt::format("ended at its time limit of {}", text::format_duration(limit_s_));
        return fmt::format("exit code {}", exit_status(status));
      }
      if (steady_now_s() < until_s) continue;
      ::kill(-child_, asked ? SIGKILL : SIGTERM);
      asked = true;
      until_s = steady_now_s() + kGrace_s;
    }
  }

  // Reads the available output, up to a megabyte at a time, so that a flood does not occupy this process.
  void read_some() {
    std::array<char, 64 << 10> buffer;
    for (int i = 0; i < 16 && output_; ++i) {
      pollfd ready{output_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 0) <= 0) return;
      const ssize_t got = ::read(output_.get(), buffer.data(), buffer.size());
      if (got <= 0) {
        output_ = {};
        return;
      }
      const std::size_t keep = std::min(kKeptBytes - kept_, static_cast<std::size_t>(got));
      if (keep > 0) write(std::string(buffer.data(), keep));
      kept_ += keep;
    }
  }

  nlohmann::json facts_;
  std::string command_;
  std::string campaign_;
  double limit_s_;
  FileDescriptor log_, output_;
  std::size_t kept_ = 0;
  pid_t child_ = 0;
};

int hook() {
  ::setsid();  // the terminal's signals go to the campaign
  std::signal(SIGPIPE, SIG_IGN);
  const std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  const nlohmann::json request = nlohmann::json::parse(text, nullptr, false);
  if (!request.is_object() || !request.contains("facts"))
    throw Error(ExitCode::usage, "wflow hook is started by a campaign whose study has on:");
  HookRun(request).run();
  return 0;
}

}  // namespace

void add_hook(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("hook", "run one command of on:")->group("");
  command->callback([&chosen] { chosen = [] { return hook(); }; });
}

}  // namespace wflow::cli
