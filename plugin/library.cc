// SPDX-License-Identifier: Apache-2.0
#include "plugin/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <set>
#include <string_view>

#include "base/error.h"

namespace wflow::plugin {

namespace {

constexpr std::uint32_t kMostArrays = 1000;
constexpr std::size_t kMostValues = std::size_t{1} << 28;  // of one array of one sample

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ExitCode::spec, fmt::format("the plugin {} {}", path, what));
}

bool is_file_name(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return !name.empty() && name.size() < 200 && name.front() != '.' &&
         name.find_first_not_of(kLetters) == std::string_view::npos;
}

void check_array(const std::string& path, const wflow_array& array) {
  if (array.name == nullptr || !is_file_name(array.name)) {
    fail(path,
         fmt::format("has an array '{}', whose name can't be a file's: letters, digits, '_', '-' and '.'",
                     array.name == nullptr ? "" : array.name));
  }
  if (array.type != WFLOW_FLOAT32 && array.type != WFLOW_FLOAT64)
    fail(path,
         fmt::format("gives the array '{}' the type {}; 1 is float32, 2 is float64", array.name, array.type));
  if (array.axes > WFLOW_MOST_AXES)
    fail(path, fmt::format("gives the array '{}' {} axes; {} is the most", array.name, array.axes,
                           WFLOW_MOST_AXES));
  std::size_t values = 1;
  for (std::uint32_t axis = 0; axis < array.axes; ++axis) {
    if (array.shape[axis] == 0 || array.shape[axis] > kMostValues / values)
      fail(path, fmt::format("gives the array '{}' a length of {}", array.name, array.shape[axis]));
    values *= array.shape[axis];
  }
}

}  // namespace

const Description& load_library(const std::string& path, const std::string& symbol) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error(ExitCode::spec, fmt::format("cannot load the plugin {}: {}", path, ::dlerror()));
  void* found = ::dlsym(library, symbol.c_str());
  if (found == nullptr) fail(path, fmt::format("has no function '{}'", symbol));
  const auto describe = reinterpret_cast<const Description* (*)()>(found);
  const Description* plugin = describe();
  if (plugin == nullptr) fail(path, "describes nothing");
  if (plugin->abi != WFLOW_PLUGIN_ABI) {
    fail(path, fmt::format("was compiled for version {} of wflow_plugin.h, and this is {}; compile it again",
                           plugin->abi, WFLOW_PLUGIN_ABI));
  }
  if (plugin->run == nullptr) fail(path, "has no run()");
  if (plugin->arrays == nullptr || plugin->array_count == 0) fail(path, "makes no array");
  if (plugin->array_count > kMostArrays) fail(path, fmt::format("makes {} arrays", plugin->array_count));
  std::set<std::string_view> names;
  for (const wflow_array& array : arrays_of(*plugin)) {
    check_array(path, array);
    if (!names.insert(array.name).second) fail(path, fmt::format("has two arrays '{}'", array.name));
  }
  return *plugin;
}

std::size_t values_of(const wflow_array& array) {
  std::size_t values = 1;
  for (std::uint32_t axis = 0; axis < array.axes; ++axis) values *= array.shape[axis];
  return values;
}

std::size_t value_bytes(const wflow_array& array) {
  return array.type == WFLOW_FLOAT32 ? sizeof(float) : sizeof(double);
}

}  // namespace wflow::plugin
