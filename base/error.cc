// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/log.h"

namespace wflow {

namespace {

void report(const char* program, const std::string& sentence) {
  std::fprintf(stderr, "%s: %s\n", program, sentence.c_str());
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
