// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/encode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "converters/shards/chunk_grid.h"
#include "converters/shards/shard_writer.h"

namespace wflow::converters {

namespace {

// The file and the row in it.
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
              fmt::format("{} holds ({}) {}{}, most samples of the block ({}) {}{}", place_of(config, row),
                          fmt::join(form.shape, ", "), dtype_name(form.dtype), of_field,
                          fmt::join(expected.shape, ", "), dtype_name(expected.dtype),
                          longer ? "; 'pad: [lengths]' fills shorter samples up and adds a mask" : ""));
}

[[noreturn]] void refuse_fields(const ConvertConfig& config, const SampleRow& row, std::size_t fields,
                                std::size_t expected) {
  throw Error(ExitCode::data, fmt::format("{} has {} fields, most samples of the block have {}",
                                          place_of(config, row), fields, expected));
}

SampleForm form_of(const std::vector<FieldValue>& values) {
  SampleForm form;
  for (const FieldValue& value : values) form.push_back(value.form);
  return form;
}

// Nothing if they have this form.
std::optional<SampleForm> form_unlike(const std::vector<FieldValue>& values, const SampleForm& form) {
  const bool same =
      std::equal(values.begin(), values.end(), form.begin(), form.end(),
                 [](const FieldValue& value, const FieldForm& field) { return value.form == field; });
  return same ? std::nullopt : std::optional(form_of(values));
}

// Moments, if present, answer this without another pass over the values: they cover the finite ones.
bool is_finite(const FieldValue& value, std::span<const Moments> moments) {
  if (moments.empty()) return all_finite(value.form.dtype, value.bytes);
  std::uint64_t count = 0;
  for (const Moments& channel : moments) count += channel.count;
  return count == value.bytes.size() / dtype_size(value.form.dtype);
}

// `moments`: those of all channels, or none.
void check_finite(const ConvertConfig& config, const SampleRow& row, const std::vector<FieldValue>& values,
                  std::span<const Moments> moments) {
  if (!config.check_finite) return;
  std::size_t k = 0;
  std::size_t channel = 0;  // the first one of values[k]
  for (const FieldConfig& field : config.fields) {
    for (; k < values.size() && values[k].form.name != field.name; ++k)
      channel += values[k].form.channel_count();
    if (k == values.size()) continue;
    const std::size_t channels = values[k].form.channel_count();
    if (is_finite(values[k], moments.empty() ? moments : moments.subspan(channel, channels))) continue;
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

// All split fields have the same number of pieces; the other fields are repeated in each row.
std::size_t piece_count(const ConvertConfig& config, const SampleRow& row,
                        const std::vector<FieldValue>& values) {
  std::size_t pieces = 1;
  for (const FieldValue& value : values) {
    if (value.form.pieces == 1 || value.form.pieces == pieces) continue;
    if (pieces > 1)
      throw Error(ExitCode::data,
                  fmt::format("{}: subcubes makes {} pieces of {} and {} of another field",
                              place_of(config, row), value.form.pieces, value.form.name, pieces));
    pieces = value.form.pieces;
  }
  return pieces;
}

std::vector<double> as_doubles(const FieldValue& value) {
  Array array{value.form.dtype, {value.bytes.size() / dtype_size(value.form.dtype)}, value.bytes};
  convert_values(array, DType::float64);
  std::vector<double> numbers(array.bytes.size() / sizeof(double));
  std::memcpy(numbers.data(), array.bytes.data(), array.bytes.size());
  return numbers;
}

// The value of a variable of a filter.
double variable_value(const std::string& variable, const std::string& filter,
                      const std::vector<FieldValue>& values, const Parameters& parameters) {
  const auto [function, name] = split_variable(variable);
  for (const FieldValue& value : values) {
    if (value.form.name != name) continue;
    const std::vector<double> numbers = as_doubles(value);
    if (!function.empty()) return reduce(function, numbers);
    if (numbers.size() == 1) return numbers.front();
    throw Error(
        ExitCode::spec,
        fmt::format("drop_if: {}: the field '{}' is of {} values; write mean({}), min, max, sum or std",
                    filter, name, numbers.size(), name));
  }
  const auto parameter = parameters.find(name);
  if (parameter) return *parameter;
  throw Error(ExitCode::spec,
              fmt::format("drop_if: {}: there is neither a field nor a parameter '{}'", filter, name));
}

struct WholeRange {
  double least = 0;
  double most = 0;
};

// The greatest of whole numbers up to 65,535; nothing if there is another value.
std::optional<WholeRange> whole_range(DType dtype, std::span<const std::uint8_t> bytes) {
  return with_type(dtype, [&](auto value) -> std::optional<WholeRange> {
    WholeRange range;
    for (std::size_t i = 0; i < bytes.size() / sizeof value; ++i) {
      std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
      const auto number = static_cast<double>(value);
      // -0 has other bits than 0: it would be lost.
      const bool whole = number == std::floor(number) && !(number == 0 && std::signbit(number));
      if (!whole || !(std::abs(number) <= 65535)) return std::nullopt;
      range.least = std::min(range.least, number);
      range.most = std::max(range.most, number);
    }
    return range;
  });
}

WholeRange range_of(DType narrow) {
  return with_type(narrow, [](auto zero) -> WholeRange {
    using Value = decltype(zero);
    return {static_cast<double>(std::numeric_limits<Value>::lowest()),
            static_cast<double>(std::numeric_limits<Value>::max())};
  });
}

bool holds(DType narrow, const WholeRange& range) {
  const WholeRange all = range_of(narrow);
  return range.least >= all.least && range.most <= all.most;
}

// The smallest type that is smaller than `dtype`.
std::optional<DType> type_for(const WholeRange& range, DType dtype) {
  for (const DType type : {DType::uint8, DType::int8, DType::uint16, DType::int16}) {
    if (holds(type, range) && dtype_size(type) < dtype_size(dtype)) return type;
  }
  return std::nullopt;
}

// The size of some samples of a field with each coder, in bytes.
struct CodedSizes {
  double before = 0;
  double runs = 0;
  double matches = 0;

  void add(const FieldForm& form, std::span<const std::uint8_t> values, int level) {
    const std::size_t width = dtype_size(form.held());
    const Filters filters{.shuffle = width > 1, .deflate = true};
    const auto size = [&](Coder coder) {
      return static_cast<double>(Encoder(filters, coder, level).encode(values, width).bytes.size());
    };
    before += static_cast<double>(values.size());
    runs += size(Coder::runs);
    matches += size(Coder::matches);
  }
  // Matches cost the writer five times the time, and the reader half as much again.
  bool matches_pay() const {
    constexpr double kSmaller = 0.9;
    return matches < kSmaller * runs;
  }
  bool compresses() const {
    constexpr double kWorthwhile = 1.15;  // for less, decoding costs more than the saved bytes
    return before >= kWorthwhile * (matches_pay() ? matches : runs);
  }
};

// The values in the type of the shard; unchanged if they do not fit into it.
std::vector<std::uint8_t> held_values(const FieldForm& form, std::span<const std::uint8_t> values) {
  std::vector<std::uint8_t> bytes(values.begin(), values.end());
  const auto range = form.narrow ? whole_range(form.dtype, values) : std::nullopt;
  if (!range || !holds(*form.narrow, *range)) return bytes;
  Array array{form.dtype, {values.size() / dtype_size(form.dtype)}, std::move(bytes)};
  convert_values(array, *form.narrow);
  return std::move(array.bytes);
}

// The chunks of a sample's values of `width` bytes.
class ChunkCutter {
 public:
  ChunkCutter(const FieldForm& form, std::size_t width)
      : grid_(chunk_grid(form)), whole_(SampleBox::whole(form.shape)), width_(width) {}
  std::size_t chunks() const { return grid_.chunks(); }
  std::size_t chunk_bytes() const { return grid_.chunk_values() * width_; }
  // A range of the sample, without the values beyond its end; a brick is in `scratch`, with zeros there.
  std::span<const std::uint8_t> values(std::span<const std::uint8_t> sample, std::size_t chunk,
                                       std::vector<std::uint8_t>& scratch) const {
    std::span<const std::uint8_t> range;
    const auto part = [&](const ChunkGrid::Run& run) {
      return sample.subspan(run.in_sample * width_, run.values * width_);
    };
    if (grid_.are_ranges()) {
      grid_.for_each_run(chunk, whole_, [&](const ChunkGrid::Run& run) { range = part(run); });
      return range;
    }
    scratch.assign(chunk_bytes(), 0);
    grid_.for_each_run(chunk, whole_, [&](const ChunkGrid::Run& run) {
      range = part(run);
      std::copy(range.begin(), range.end(),
                scratch.begin() + static_cast<std::ptrdiff_t>(run.in_chunk * width_));
    });
    return scratch;
  }

 private:
  ChunkGrid grid_;
  SampleBox whole_;
  std::size_t width_;
};

// Measures chunk by chunk, as they are written; only some chunks of a very large sample, to save memory and
// time.
void add_sample(const FieldForm& chosen, const FieldValue& value, int level, CodedSizes& sizes) {
  constexpr std::size_t kMostBytes = std::size_t{32} << 20;
  FieldForm form = value.form;  // the sample's form may differ from the block's
  form.narrow = chosen.narrow;
  const std::size_t width = dtype_size(form.dtype);
  form.chunk = chosen.chunk;
  const ChunkCutter cutter(form, width);
  const std::size_t piece_bytes = form.values() * width;
  const std::size_t step = value.bytes.size() / kMostBytes + 1;
  std::vector<std::uint8_t> scratch;
  for (std::size_t k = 0; k < cutter.chunks() * form.pieces; k += step) {
    const auto piece = std::span(value.bytes).subspan(k / cutter.chunks() * piece_bytes, piece_bytes);
    sizes.add(form, held_values(form, cutter.values(piece, k % cutter.chunks(), scratch)), level);
  }
}

void check_chunk(const FieldForm& form) {
  if (!form.chunk || form.chunk->size() <= form.shape.size()) return;
  throw Error(ExitCode::spec,
              fmt::format("'chunk' of {} has {} numbers, and its samples have {} axes: ({})", form.name,
                          form.chunk->size(), form.shape.size(), fmt::join(form.shape, ", ")));
}

void choose_storage(const ConvertConfig& config, const std::vector<FieldValue>& values, SampleForm& form) {
  for (std::size_t k = 0; k < form.size(); ++k) {
    form[k].compressed = config.compression == Compression::gzip;
    for (const FieldConfig& field : config.fields) {
      if (field.narrow && field.name == form[k].name)
        form[k].narrow = narrow_type(form[k].dtype, values[k].bytes);
      if (field.name == form[k].name) form[k].chunk = field.chunk;
    }
    check_chunk(form[k]);
  }
}

}  // namespace

std::optional<DType> narrow_type(DType dtype, std::span<const std::uint8_t> values) {
  const auto range = whole_range(dtype, values);
  return range ? type_for(*range, dtype) : std::nullopt;
}

std::optional<SampleForm> find_form(const ConvertConfig& config, const std::vector<std::string>& columns,
                                    std::span<const SampleRow> rows) {
  constexpr std::size_t kMeasured = 3;  // number of samples that decide how to compress
  SampleReader reader(config, columns);
  std::optional<SampleForm> form;
  std::size_t usable = 0;
  std::vector<CodedSizes> sizes;
  for (const SampleRow& row : rows) {
    try {
      const std::vector<FieldValue> values = reader.read(row);
      if (!form) {
        form = form_of(values);
        choose_storage(config, values, *form);
        sizes.resize(values.size());
      }
      if (config.compression == Compression::none) return form;
      for (std::size_t k = 0; k < std::min(sizes.size(), values.size()); ++k) {
        const FieldForm& field = (*form)[k];
        if (rows_per_chunk(field) == 1 && !field.mask) add_sample(field, values[k], config.level, sizes[k]);
      }
      if (++usable == kMeasured) break;
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
    }
  }
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    // A given level requests libdeflate.
    (*form)[k].matches = config.level > 1 || sizes[k].matches_pay();
    if (config.compression == Compression::automatic) (*form)[k].compressed = sizes[k].compresses();
  }
  return form;
}

SampleEncoder::SampleEncoder(const ConvertConfig& config, const std::vector<std::string>& columns,
                             const std::optional<SampleForm>& form)
    : config_(config), columns_(columns), form_(form), reader_(config, columns) {
  for (const FieldForm& field : form.value_or(SampleForm{}))
    encoders_.emplace_back(filters_of(field), field.matches ? Coder::matches : Coder::runs, config.level);
  for (const std::string& filter : config.drop_if) filters_.push_back(Formula::parse(filter));
}

std::string SampleEncoder::failed_filter(const std::vector<FieldValue>& values, const SampleRow& row) const {
  const Parameters parameters{columns_, row.parameters};
  for (std::size_t k = 0; k < filters_.size(); ++k) {
    std::vector<double> numbers;
    for (const std::string& variable : filters_[k].variables())
      numbers.push_back(variable_value(variable, config_.drop_if[k], values, parameters));
    std::vector<std::span<const double>> each;
    for (const double& number : numbers) each.emplace_back(&number, 1);
    double result = 0;
    filters_[k].evaluate(each, {&result, 1});
    if (result != 0) return "drop_if: " + config_.drop_if[k];
  }
  return {};
}

// Converts to the types of the shard.
void SampleEncoder::narrow(std::vector<FieldValue>& values, EncodedSample& sample) const {
  for (std::size_t k = 0; form_ && k < values.size(); ++k) {
    const auto target = (*form_)[k].narrow;
    if (!target) continue;
    const auto range = whole_range(values[k].form.dtype, values[k].bytes);
    if (!range || !holds(*target, *range)) {
      const WholeRange held = range_of(*target);
      sample.too_wide = {k, std::nullopt};
      if (range) {
        const WholeRange both{std::min(held.least, range->least), std::max(held.most, range->most)};
        sample.too_wide->type = type_for(both, values[k].form.dtype);
      }
      return;
    }
    Array array{
        values[k].form.dtype, {values[k].form.values() * values[k].form.pieces}, std::move(values[k].bytes)};
    convert_values(array, *target);
    values[k].bytes = std::move(array.bytes);
    values[k].form.narrow = target;
  }
}

EncodedField encode_values(std::span<const std::uint8_t> bytes, const FieldForm& form, Encoder& encoder,
                           bool hashed) {
  EncodedField result;
  if (hashed) result.raw_hash = chunk_hash(bytes);
  if (rows_per_chunk(form) > 1) {
    result.chunks.resize(1);
    result.chunks[0].bytes.assign(bytes.begin(), bytes.end());
    return result;
  }
  const std::size_t width = dtype_size(form.held());
  const ChunkCutter cutter(form, width);
  std::vector<std::uint8_t> scratch;
  for (std::size_t k = 0; k < cutter.chunks(); ++k) {
    std::span<const std::uint8_t> values = cutter.values(bytes, k, scratch);
    if (values.size() < cutter.chunk_bytes()) {
      scratch.assign(values.begin(), values.end());
      scratch.resize(cutter.chunk_bytes(), 0);  // the last slab is complete in the file
      values = scratch;
    }
    result.chunks.push_back(encoder.encode(values, width));
  }
  return result;
}

EncodedField encode_values(std::vector<std::uint8_t>&& bytes, const FieldForm& form, Encoder& encoder,
                           bool hashed) {
  const bool packed = rows_per_chunk(form) > 1;
  const bool kept = packed || (!filters_of(form).deflate && chunk_shape(form) == form.shape);
  if (!kept) return encode_values(std::span<const std::uint8_t>(bytes), form, encoder, hashed);
  EncodedField result;
  if (hashed) result.raw_hash = chunk_hash(bytes);
  result.chunks.resize(1);
  EncodedChunk& chunk = result.chunks[0];
  chunk.bytes = std::move(bytes);
  if (!packed) chunk.hash = hashed ? result.raw_hash : chunk_hash(chunk.bytes);
  return result;
}

EncodedField encode_ragged(std::vector<std::uint8_t>&& bytes, const FieldForm& form, bool hashed) {
  EncodedField result;
  result.steps = form.shape[form.ragged->axis];
  if (form.mask) return result;
  result.chunks.resize(1);
  result.chunks[0].bytes =
      ragged_axis_first(std::move(bytes), form.shape, form.ragged->axis, dtype_size(form.held()));
  if (hashed) result.raw_hash = chunk_hash(result.chunks[0].bytes);
  return result;
}

namespace {

constexpr std::size_t kMostSketched = 256;  // limit of channels

// Calls f(channel, its values) for each channel of each piece.
template <typename Function>
void for_each_channel(const FieldValue& value, Function f) {
  const std::size_t channels = value.form.channel_count();
  const std::size_t bytes = value.bytes.size() / channels / value.form.pieces;
  for (std::size_t piece = 0; piece < value.form.pieces; ++piece) {
    for (std::size_t c = 0; c < channels; ++c)
      f(c, std::span(value.bytes).subspan((piece * channels + c) * bytes, bytes));
  }
}

// Appends the field's channels to those of the fields before.
void add_moments(const FieldValue& value, std::vector<Moments>& moments) {
  const std::size_t first = moments.size();
  moments.resize(first + value.form.channel_count());
  for_each_channel(value, [&](std::size_t c, std::span<const std::uint8_t> values) {
    moments[first + c].merge(moments_of(value.form.dtype, values));
  });
}

// `moments`: those of its channels.
void add_sketches(const FieldValue& value, std::span<const Moments> moments, std::vector<Sketch>& sketches) {
  const std::size_t channels = value.form.channel_count();
  if (channels > kMostSketched) return;
  sketches.resize(channels);
  const std::size_t each = value.bytes.size() / dtype_size(value.form.dtype) / channels;
  for_each_channel(value, [&](std::size_t c, std::span<const std::uint8_t> values) {
    std::optional<std::pair<double, double>> known;
    if (moments[c].count == each) known.emplace(moments[c].min, moments[c].max);
    sketches[c].add(value.form.dtype, values, known);
  });
}

}  // namespace

FieldStatistics channel_statistics(const FieldValue& value) {
  FieldStatistics result;
  add_moments(value, result.moments);
  add_sketches(value, result.moments, result.sketches);
  return result;
}

std::vector<EncodedField> SampleEncoder::encode_piece(std::vector<FieldValue>& values, std::size_t piece,
                                                      std::size_t pieces) {
  std::vector<EncodedField> fields;
  fields.reserve(values.size());
  for (std::size_t k = 0; k < values.size(); ++k) {
    const FieldForm& form = (*form_)[k];
    if (form.ragged) {
      std::vector<std::uint8_t> bytes = pieces == 1 ? std::move(values[k].bytes) : values[k].bytes;
      fields.push_back(encode_ragged(std::move(bytes), values[k].form, config_.delete_inputs));
      continue;
    }
    if (pieces == 1) {
      fields.push_back(encode_values(std::move(values[k].bytes), form, encoders_[k], config_.delete_inputs));
      continue;
    }
    const std::size_t bytes = values[k].bytes.size() / values[k].form.pieces;
    const std::size_t first = values[k].form.pieces == 1 ? 0 : piece * bytes;
    fields.push_back(encode_values(std::span<const std::uint8_t>(values[k].bytes).subspan(first, bytes), form,
                                   encoders_[k], config_.delete_inputs));
  }
  return fields;
}

EncodedSample SampleEncoder::encode(const SampleRow& row, bool with_statistics) {
  EncodedSample sample;
  try {
    std::vector<FieldValue> values = reader_.read(row);
    sample.readable = true;
    if (form_) sample.other_form = form_unlike(values, *form_);
    if (form_ && values.size() != form_->size()) refuse_fields(config_, row, values.size(), form_->size());
    for (std::size_t k = 0; form_ && k < values.size(); ++k)
      check_form(config_, row, values[k].form, (*form_)[k]);
    for (std::size_t k = 0; with_statistics && k < values.size(); ++k) add_moments(values[k], sample.moments);
    check_finite(config_, row, values, sample.moments);
    sample.dropped = failed_filter(values, row);
    if (!sample.dropped.empty()) return sample;
    const std::size_t pieces = piece_count(config_, row, values);
    if (with_statistics && form_) {
      sketches_.resize(values.size());
      std::span<const Moments> moments = sample.moments;
      for (std::size_t k = 0; k < values.size(); ++k) {
        add_sketches(values[k], moments, sketches_[k]);
        moments = moments.subspan(values[k].form.channel_count());
      }
    }
    narrow(values, sample);
    if (sample.too_wide || !form_) return sample;
    sample.rows.reserve(pieces);
    for (std::size_t piece = 0; piece < pieces; ++piece)
      sample.rows.push_back(encode_piece(values, piece, pieces));
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) throw;
    EncodedSample unusable;
    unusable.problem = error.what();
    unusable.readable = sample.readable;
    unusable.other_form = std::move(sample.other_form);
    return unusable;
  }
  return sample;
}

}  // namespace wflow::converters
