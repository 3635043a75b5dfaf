// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>

#include "base/log.h"

namespace wflow {

namespace {

// "file:3:5: error: ...": editors find the place where it stands first in its line.
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

void report(const char* program, const std::string& sentence) {
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
  return Error(ExitCode::system, sentence, error_number);
}

bool is_disk_trouble(const Error& error) {
  const int number = error.error_number();
  return number == ENOSPC || number == EDQUOT || number == EROFS || number == EIO;
}

int run_main(const char* program, int (*body)(int, char**), int argc, char** argv) {
  try {
    return body(argc, argv);
  } catch (const Error& error) {
    report(program, error.what());
    return static_cast<int>(error.code());
  } catch (const std::filesystem::filesystem_error& error) {
    // What no place of its own looks at: still one sentence about the user's files, no defect.
    const std::string path = error.path1().empty() ? std::string("a file") : error.path1().string();
    report(program, "cannot look at " + path + ": " + error.code().message());
    return static_cast<int>(ExitCode::system);
  } catch (const std::bad_alloc&) {
    report(program, "out of memory");
    return static_cast<int>(ExitCode::system);
  } catch (const std::exception& error) {
    report(program, std::string("internal error: ") + error.what() + " (please report it)");
    return static_cast<int>(ExitCode::internal);
  }
}

void broken_invariant(const char* condition, const char* file, int line) {
  log::record(LogLevel::error, std::string("broken invariant: ") + condition);
  std::fprintf(stderr, "wflow: broken invariant at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace wflow
