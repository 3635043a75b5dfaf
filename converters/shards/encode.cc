// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/encode.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "converters/shards/shard_writer.h"

namespace wflow::converters {

namespace {

// The file, and in it the row.
std::string place_of(const ConvertConfig& config, const SampleRow& row) {
  const auto files = sample_files(config, row);
  const std::string file = files.empty() ? fmt::format("sample {}", row.id) : files.front().string();
  return row.row ? fmt::format("{} (row {})", file, *row.row) : file;
}

void check_form(const ConvertConfig& config, const SampleRow& row, const FieldForm& form,
                const FieldForm& expected) {
  if (form == expected) return;
  const std::string of_field = config.short_form ? "" : fmt::format(" of {}", form.name);
  const bool longer = !config.short_form && form.layout == expected.layout && form.shape != expected.shape;
  throw Error(ExitCode::data,
              fmt::format("{} holds ({}) {}{}, the block's first sample ({}) {}{}", place_of(config, row),
                          fmt::join(form.shape, ", "), dtype_name(form.dtype), of_field,
                          fmt::join(expected.shape, ", "), dtype_name(expected.dtype),
                          longer ? "; 'pad: [lengths]' fills shorter samples up and adds a mask" : ""));
}

void check_finite(const ConvertConfig& config, const SampleRow& row, const std::vector<FieldValue>& values) {
  if (!config.check_finite) return;
  std::size_t k = 0;
  for (const FieldConfig& field : config.fields) {
    while (k < values.size() && values[k].form.name != field.name) ++k;
    if (k == values.size() || all_finite(values[k].form.dtype, values[k].bytes)) continue;
    if (!field.from_parameters) {
      const std::string which = config.short_form ? "" : fmt::format(" in {}", field.name);
      throw Error(ExitCode::data,
                  fmt::format("{} holds NaN or infinite values{}", place_of(config, row), which));
    }
    for (const double value : row.parameters) {
      if (!std::isfinite(value))
        throw Error(ExitCode::data, fmt::format("the {} {} is not finite", role_name(field.role), value));
    }
    throw Error(ExitCode::data, fmt::format("the {} {} is not finite", role_name(field.role), field.name));
  }
}

std::vector<Moments> channel_moments(const FieldValue& value) {
  std::vector<Moments> result;
  const std::size_t channels = value.form.channel_count();
  const std::size_t bytes = value.bytes.size() / channels;
  for (std::size_t c = 0; c < channels; ++c)
    result.push_back(moments_of(value.form.dtype, std::span(value.bytes).subspan(c * bytes, bytes)));
  return result;
}

}  // namespace

std::optional<SampleForm> find_form(const ConvertConfig& config, const std::vector<std::string>& columns,
                                    const std::vector<SampleRow>& rows) {
  for (const SampleRow& row : rows) {
    try {
      SampleForm form;
      for (FieldValue& value : read_sample(config, columns, row)) form.push_back(std::move(value.form));
      return form;
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
    }
  }
  return std::nullopt;
}

SampleEncoder::SampleEncoder(const ConvertConfig& config, const std::vector<std::string>& columns,
                             const std::optional<SampleForm>& form)
    : config_(config), columns_(columns), form_(form) {
  for (const FieldForm& field : form.value_or(SampleForm{}))
    encoders_.emplace_back(filters_of(config.compression, field), config.level);
}

EncodedField SampleEncoder::encode_field(FieldValue& value, std::size_t k, bool with_statistics) {
  EncodedField result;
  if (with_statistics) result.moments = channel_moments(value);
  if (config_.delete_inputs) result.raw_hash = chunk_hash(value.bytes);
  if (rows_per_chunk(value.form) > 1 || !form_) {
    result.chunk.bytes = std::move(value.bytes);
  } else {
    result.chunk = encoders_[k].encode(std::move(value.bytes), dtype_size(value.form.dtype));
  }
  return result;
}

EncodedSample SampleEncoder::encode(const SampleRow& row, bool with_statistics) {
  EncodedSample sample;
  try {
    std::vector<FieldValue> values = read_sample(config_, columns_, row);
    for (std::size_t k = 0; form_ && k < values.size(); ++k)
      check_form(config_, row, values[k].form, (*form_)[k]);
    check_finite(config_, row, values);
    for (std::size_t k = 0; k < values.size(); ++k)
      sample.fields.push_back(encode_field(values[k], k, with_statistics));
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) throw;
    sample.problem = error.what();
    sample.fields.clear();
  }
  return sample;
}

}  // namespace wflow::converters
