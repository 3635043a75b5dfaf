// SPDX-License-Identifier: Apache-2.0
#include "converters/input/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "converters/convert/statistics.h"
#include "converters/input/array.h"
#include "converters/input/input.h"

namespace wflow::converters {

namespace {

constexpr std::size_t kWholeBytes = std::size_t{256} << 20;  // larger arrays are read row by row

ConvertConfig config_of(const OutputCheck& expected) {
  ConvertConfig config;
  config.dataset = expected.dataset;
  if (!expected.dataset.empty()) config.format = Format::hdf5;  // whatever its suffix
  return config;
}

bool is_finite(const OutputCheck& expected, const ConvertConfig& config, const FileForm& form) {
  const auto bytes = array_bytes(form.dtype, form.shape);
  if ((bytes && *bytes <= kWholeBytes) || form.shape.size() < 2) {
    const Array array = read_array(expected.file, config);
    return all_finite(array.dtype, array.bytes);
  }
  for (std::uint64_t row = 0; row < form.shape[0]; ++row) {
    const Array array = read_array(expected.file, config, row);
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
  const ConvertConfig config = config_of(expected);
  if (!std::filesystem::exists(expected.file))
    throw Error(ExitCode::data, fmt::format("{} is not there", expected.file));
  const FileForm form = read_form(expected.file, config);
  const bool same =
      std::equal(form.shape.begin(), form.shape.end(), expected.shape.begin(), expected.shape.end());
  if (!expected.shape.empty() && !same) {
    throw Error(ExitCode::data, fmt::format("{} has shape ({}), and ({}) is declared", expected.file,
                                            fmt::join(form.shape, ", "), fmt::join(expected.shape, ", ")));
  }
  if (expected.finite && !is_finite(expected, config, form))
    throw Error(ExitCode::data, fmt::format("{} holds NaN or infinite values", expected.file));
}

}  // namespace wflow::converters
