// SPDX-License-Identifier: Apache-2.0
#include "converters/input/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "converters/convert/statistics.h"
#include "converters/input/array.h"
#include "converters/readers/reader.h"

namespace wflow::converters {

namespace {

constexpr std::size_t kWholeBytes = std::size_t{256} << 20;  // larger arrays are read row by row

Selector selector_of(const OutputCheck& expected) {
  Selector selector;
  selector.dataset = expected.dataset;
  selector.external = true;  // the check reads the values, but copies none
  const bool has_datasets = expected.file.ends_with(".npz") || expected.file.ends_with(".nc");
  if (!expected.dataset.empty() && !has_datasets) selector.format = Format::hdf5;  // ignores its suffix
  return selector;
}

bool is_finite(const OutputCheck& expected, const Selector& selector, const InputField& field) {
  const auto bytes = array_bytes(field.dtype, field.shape);
  if ((bytes && *bytes <= kWholeBytes) || field.shape.size() < 2) {
    const Array array = read_array(expected.file, selector);
    return all_finite(array.dtype, array.bytes);
  }
  for (std::uint64_t row = 0; row < field.shape[0]; ++row) {
    const Array array = read_array(expected.file, selector, row);
    if (!all_finite(array.dtype, array.bytes)) return false;
  }
  return true;
}

}  // namespace

std::vector<OutputCheck> checks_from_json(const std::string& text) {
  try {
    std::vector<OutputCheck> checks;
    for (const nlohmann::json& item : nlohmann::json::parse(text)) {
      checks.push_back({item.at("file").get<std::string>(), item.value("dataset", ""),
                        item.value("shape", std::vector<std::uint64_t>{}), item.value("finite", false)});
    }
    return checks;
  } catch (const nlohmann::json::exception& error) {
    throw Error(ExitCode::usage, fmt::format("--list does not read: {}", error.what()));
  }
}

void check(const OutputCheck& expected) {
  const Selector selector = selector_of(expected);
  if (!std::filesystem::exists(expected.file))
    throw Error(ExitCode::data, fmt::format("{} is not there", expected.file));
  const InputField form = read_form(expected.file, selector);
  const bool same =
      std::equal(form.shape.begin(), form.shape.end(), expected.shape.begin(), expected.shape.end());
  if (!expected.shape.empty() && !same) {
    throw Error(ExitCode::data, fmt::format("{} has shape ({}), and ({}) is declared", expected.file,
                                            fmt::join(form.shape, ", "), fmt::join(expected.shape, ", ")));
  }
  if (expected.finite && !is_finite(expected, selector, form))
    throw Error(ExitCode::data, fmt::format("{} holds NaN or infinite values", expected.file));
}

}  // namespace wflow::converters
