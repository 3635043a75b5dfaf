// SPDX-License-Identifier: Apache-2.0
// libwflow_ppx.so: a plugin whose simulator is a program of its own, which $WFLOW_PLUGIN_COMMAND starts and
// which speaks PPX (README.md).
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "session.h"

namespace {

// The exported functions share it: the host has one plugin, and calls it from one thread.
struct Plugin {
  std::unique_ptr<wflow::ppx::Session> session;
  std::vector<wflow_array> arrays;
  struct wflow_plugin description {};
  std::string error;
};

Plugin& plugin() {
  static Plugin one;
  return one;
}

int trace(void* /*state*/, std::uint64_t /*sample*/, const double* /*parameters*/, wflow_trace* trace,
          char* error, std::size_t error_bytes) {
  try {
    plugin().session->run(*trace);
    return 0;
  } catch (const std::exception& reason) {
    std::snprintf(error, error_bytes, "%s", reason.what());
    return 1;
  }
}

void end(void* /*state*/) {
  plugin().session.reset();
}

std::string value_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

void describe(Plugin& one) {
  const std::string command = value_of("WFLOW_PLUGIN_COMMAND");
  if (command.empty()) throw std::runtime_error("it needs 'command', a program that speaks PPX");
  one.session = std::make_unique<wflow::ppx::Session>(command, value_of("WFLOW_PLUGIN_DIRECTORY"));
  one.arrays = one.session->describe();
  one.description.abi = WFLOW_PLUGIN_ABI;
  one.description.array_count = static_cast<std::uint32_t>(one.arrays.size());
  one.description.arrays = one.arrays.data();
  one.description.end = end;
  one.description.trace = trace;
}

}  // namespace

extern "C" {

const struct wflow_plugin* wflow_plugin() {
  try {
    describe(plugin());
    return &plugin().description;
  } catch (const std::exception& reason) {
    plugin().error = reason.what();
    plugin().session.reset();
    return nullptr;
  }
}

const char* wflow_plugin_error() {
  return plugin().error.c_str();
}
}
