// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>

#include "base/log.h"
#include "base/text.h"

namespace wflow {

namespace {

// "file:3:5: error: ...": editors find the place only at the beginning of a line.
bool begins_with_place(const std::string& sentence) {
  const std::string line = sentence.substr(0, sentence.find('\n'));
  const std::size_t end = std::min(line.find(": error: "), line.find(": warning: "));
  if (end == std::string::npos) return false;
  std::size_t at = end;
  for (int number = 0; number < 2; ++number) {
    const std::size_t last = at;
    while (at > 0 && std::isdigit(static_cast<unsigned char>(line[at - 1])) != 0) --at;
    if (at == last || at == 0 || line[--at] != ':') return false;
  }
  return at > 0;
}

void report(const char* program, const std::string& said) {
  const std::string sentence = ::isatty(STDERR_FILENO) != 0 ? visible(said) : said;
  if (begins_with_place(sentence)) {
    std::fprintf(stderr, "%s\n", sentence.c_str());
  } else {
    std::fprintf(stderr, "%s: %s\n", program, sentence.c_str());
  }
  log::record(LogLevel::error, sentence);
}

}  // namespace

Error system_error(int error_number, const std::string& what_and_where) {
  std::string sentence = what_and_where + ": " + std::strerror(error_number);
  if (error_number == ENOSPC || error_number == EDQUOT) sentence += "; free some space and try again";
  if (error_number == EFBIG) sentence += "; raise the limit on the size of files (ulimit -f)";
  return Error(ExitCode::system, sentence, error_number);
}

bool is_disk_trouble(const Error& error) {
  const int number = error.error_number();
  return number == ENOSPC || number == EDQUOT || number == EROFS || number == EIO;
}

namespace {

// A file that is opened later must not take the number of a closed standard stream: it would receive the
// program's output. These descriptors cannot be written to.
void occupy_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", O_RDONLY) != fd) return;
  }
}

// True if the reader of a pipe has closed it, as in `wflow tasks | head`.
bool reader_is_gone() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

// A write beyond `ulimit -f` then fails with EFBIG, which has a message; the signal would end the process
// without one. A handler, not SIG_IGN: child processes do not inherit it.
void outlive_file_size_limit() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGXFSZ, &action, nullptr);
}

// With a stack of 64 KiB, reading a study ends with a signal; threads get stacks of the same size.
void require_stack() {
  constexpr rlim_t kLeastStack = rlim_t{256} << 10U;
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeastStack) return;
  throw Error(ExitCode::system, "the stack may take " + std::to_string(limit.rlim_cur >> 10U) +
                                    " KiB (ulimit -s), and " + std::to_string(kLeastStack >> 10U) +
                                    " are needed; raise it: ulimit -s 8192");
}

int report_lost_output(const char* program, int error_number) {
  if (reader_is_gone()) return static_cast<int>(ExitCode::ok);
  const std::string what = "cannot write standard output";
  report(program, error_number != 0 ? std::string(system_error(error_number, what).what())
                                    : what + "; free some space and try again");
  return static_cast<int>(ExitCode::system);
}

// Standard output is buffered: a write error may appear only at the end.
int with_output_written(const char* program, int code) {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0;
  const int error_number = errno;
  if (!failed && std::ferror(stdout) == 0) return code;
  const int lost = report_lost_output(program, failed ? error_number : 0);
  return code == 0 ? lost : code;
}

int run_body(const char* program, int (*body)(int, char**), int argc, char** argv) {
  try {
    require_stack();
    return with_output_written(program, body(argc, argv));
  } catch (const Error& error) {
    report(program, error.what());
    return static_cast<int>(error.code());
  } catch (const std::filesystem::filesystem_error& error) {
    // A file system error that no caller handles: still one sentence about the user's files, not a defect.
    const std::string path = error.path1().empty() ? std::string("a file") : error.path1().string();
    report(program, "cannot look at " + path + ": " + error.code().message());
    return static_cast<int>(ExitCode::system);
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) return report_lost_output(program, error.code().value());
    report(program, std::string("internal error: ") + error.what() + " (please report it)");
    return static_cast<int>(ExitCode::internal);
  } catch (const std::bad_alloc&) {
    report(program, "out of memory");
    return static_cast<int>(ExitCode::system);
  } catch (const std::exception& error) {
    report(program, std::string("internal error: ") + error.what() + " (please report it)");
    return static_cast<int>(ExitCode::internal);
  }
}

}  // namespace

int run_main(const char* program, int (*body)(int, char**), int argc, char** argv) {
  occupy_standard_descriptors();
  outlive_file_size_limit();
  return run_body(program, body, argc, argv);
}

void broken_invariant(const char* condition, const char* file, int line) {
  log::record(LogLevel::error, std::string("broken invariant: ") + condition);
  std::fprintf(stderr, "wflow: broken invariant at %s:%d: %s\n", file, line, condition);
  std::abort();
}

namespace {

constexpr ExitCodeText kExitCodes[] = {
    {ExitCode::ok, "ok", "done", ""},
    {ExitCode::tasks_failed, "tasks_failed", "the campaign has ended, and some tasks have failed for good",
     "`wflow status`, `wflow logs`"},
    {ExitCode::usage, "usage", "the command line is wrong", "`--help`"},
    {ExitCode::spec, "spec", "the YAML file is wrong", "correct the lines named"},
    {ExitCode::data, "data", "an input file is wrong: samples, simulation output, shard, checkpoint",
     "see the file named"},
    {ExitCode::system, "system", "the machine refused: disk full, permission, missing program, socket",
     "`wflow doctor`; then `wflow resume`"},
    {ExitCode::interrupted, "interrupted",
     "stopped before the end, by Ctrl-C, a signal or a time limit; or tasks were cancelled",
     "`wflow resume`; `wflow retry` runs cancelled tasks"},
    {ExitCode::busy, "busy", "another coordinator runs this campaign", "`wflow status`"},
    {ExitCode::version, "version", "a file or a peer is of another format", "use that version of wflow"},
    {ExitCode::internal, "internal", "a defect in wflow", "please report it"},
};

}  // namespace

std::span<const ExitCodeText> exit_codes() {
  return kExitCodes;
}

}  // namespace wflow
