// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace wflow {

Error system_error(int error_number, const std::string& what_and_where) {
  std::string sentence = what_and_where + ": " + std::strerror(error_number);
  if (error_number == ENOSPC || error_number == EDQUOT) sentence += "; free some space and try again";
  return Error(ExitCode::system, sentence);
}

int run_main(const char* program, int (*body)(int, char**), int argc, char** argv) {
  try {
    return body(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: out of memory\n", program);
    return static_cast<int>(ExitCode::system);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: internal error: %s (please report it)\n", program, error.what());
    return static_cast<int>(ExitCode::internal);
  }
}

void broken_invariant(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "wflow: broken invariant at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace wflow
