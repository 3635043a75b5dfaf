// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/encode.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "converters/input/input.h"

namespace wflow::converters {

namespace {

std::string shape_text(const std::vector<std::size_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

// The file, and in it the row.
std::string place_of(const SampleRow& row) {
  return row.row ? fmt::format("{} (row {})", row.file.string(), *row.row) : row.file.string();
}

// The sample in its stored type, or Error{data} where it is not what the configuration wants.
Array read_sample(const ConvertConfig& config, const SampleRow& row, SampleForm& form) {
  if (row.file.empty()) throw Error(ExitCode::data, "no output file was handed over for it");
  Array array = read_array(row.file, config, row.row);
  const auto refuse = [&](const std::string& what) {
    return Error(ExitCode::data,
                 fmt::format("{} has shape {}, {}", place_of(row), shape_text(array.shape), what));
  };
  const auto shape = normal_shape(array.shape);
  if (!shape) throw refuse("but one to four axes with values are expected");
  if (!config.shape.empty() && *shape != normal_shape(config.shape))
    throw refuse("expected " + shape_text(config.shape));
  if (!config.channels.empty() && (*shape)[0] != config.channels.size()) {
    throw refuse(fmt::format("but {} channels are named", config.channels.size()));
  }
  if (config.dtype) convert_values(array, *config.dtype);
  form = {*shape, array.dtype};
  return array;
}

void check_form(const SampleRow& row, const SampleForm& form, const SampleForm& expected) {
  if (form == expected) return;
  throw Error(ExitCode::data, fmt::format("{} holds ({}) {}, the block's first sample ({}) {}", place_of(row),
                                          fmt::join(form.shape, ", "), dtype_name(form.dtype),
                                          fmt::join(expected.shape, ", "), dtype_name(expected.dtype)));
}

void check_finite(const ConvertConfig& config, const SampleRow& row, const Array& array) {
  if (!config.check_finite) return;
  if (!all_finite(array.dtype, array.bytes)) {
    throw Error(ExitCode::data, fmt::format("{} holds NaN or infinite values", place_of(row)));
  }
  for (const double target : row.targets) {
    if (!std::isfinite(target))
      throw Error(ExitCode::data, fmt::format("the target {} is not finite", target));
  }
}

std::vector<Moments> channel_moments(const Array& array, std::size_t channels) {
  std::vector<Moments> result;
  const std::size_t bytes = array.bytes.size() / channels;
  for (std::size_t c = 0; c < channels; ++c) {
    result.push_back(moments_of(array.dtype, std::span(array.bytes).subspan(c * bytes, bytes)));
  }
  return result;
}

}  // namespace

Filters filters_of(const ConvertConfig& config, DType dtype) {
  const bool gzip = config.compression == Compression::gzip;
  return {.shuffle = gzip && dtype_size(dtype) > 1, .deflate = gzip};
}

std::optional<SampleForm> find_form(const ConvertConfig& config, const std::vector<SampleRow>& rows) {
  for (const SampleRow& row : rows) {
    try {
      SampleForm form;
      read_sample(config, row, form);
      return form;
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
    }
  }
  return std::nullopt;
}

SampleEncoder::SampleEncoder(const ConvertConfig& config, const std::optional<SampleForm>& form)
    : config_(config),
      form_(form),
      encoder_(filters_of(config, form ? form->dtype : DType::float32), config.level) {}

EncodedSample SampleEncoder::encode(const SampleRow& row, bool with_statistics) {
  EncodedSample sample;
  try {
    SampleForm form;
    Array array = read_sample(config_, row, form);
    check_form(row, form, form_.value_or(form));
    check_finite(config_, row, array);
    if (with_statistics) sample.x = channel_moments(array, form.shape[0]);
    if (config_.delete_inputs) sample.raw_hash = chunk_hash(array.bytes);
    sample.chunk = encoder_.encode(std::move(array.bytes), dtype_size(form.dtype));
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) throw;
    sample.problem = error.what();
  }
  return sample;
}

}  // namespace wflow::converters
