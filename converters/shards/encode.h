// SPDX-License-Identifier: Apache-2.0
// Converts one sample from its files to the bytes of its chunks. Each thread uses its own SampleEncoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "converters/config.h"
#include "converters/convert/statistics.h"
#include "converters/dtype.h"
#include "converters/formula.h"
#include "converters/input/sample.h"
#include "converters/shards/codec.h"

namespace wflow::converters {

// A field of a row.
struct EncodedField {
  std::vector<EncodedChunk>
      chunks;  // for a packed field: one chunk with its plain values; for a large one: its slabs
  std::uint64_t raw_hash = 0;  // XXH3-64 of the values in the shard, to verify them before inputs are deleted
  std::uint64_t steps = 0;     // ragged: length along that axis; its one chunk holds plain values
};

// One entry for each channel; a field of very many channels has no distributions.
struct FieldStatistics {
  std::vector<Moments> moments;
  std::vector<Sketch> sketches;
};

// The form that every sample of a block must have.
using SampleForm = std::vector<FieldForm>;

struct EncodedSample {
  std::string problem;                   // why the sample is unusable; empty if it is usable
  bool readable = false;                 // its files are readable, even if their form is wrong
  std::optional<SampleForm> other_form;  // the form of a readable sample, if it differs from the required one
  std::string dropped;                   // the filter that drops it
  // A field whose values do not fit into the narrow type of the form, and the type into which all so far fit;
  // without one: no type fits.
  struct TooWide {
    std::size_t field = 0;
    std::optional<DType> type;
  };
  std::optional<TooWide> too_wide;
  std::vector<std::vector<EncodedField>>
      rows;                      // usually one; one for each sub-cube; fields in the order of the form
  std::vector<Moments> moments;  // for each field, one for each channel, one behind the other; if requested
};

// The form of the first row that can be read and agrees with the configuration; nothing if there is none. Its
// values decide the type of narrowed fields; those of the first three decide how each field is compressed.
std::optional<SampleForm> find_form(const ConvertConfig& config, const std::vector<std::string>& columns,
                                    std::span<const SampleRow> rows);

// The smallest type that holds all values exactly, if they are whole numbers and it is smaller than their
// type.
std::optional<DType> narrow_type(DType dtype, std::span<const std::uint8_t> values);

// The moments of a field's channels, over all its pieces.
FieldStatistics channel_statistics(const FieldValue& value);

// The values of a row, in the type of the shard, as chunks; `hashed`: with raw_hash. A field that is stored
// unchanged takes over the bytes.
EncodedField encode_values(std::vector<std::uint8_t>&& values, const FieldForm& form, Encoder& encoder,
                           bool hashed);
EncodedField encode_values(std::span<const std::uint8_t> values, const FieldForm& form, Encoder& encoder,
                           bool hashed = false);

// A ragged field: the values with the ragged axis first, which the writer puts behind those of the samples
// before. `form` is the sample's own. A mask has no values.
EncodedField encode_ragged(std::vector<std::uint8_t>&& values, const FieldForm& form, bool hashed);

class SampleEncoder {
 public:
  // Without a form no sample is usable, and encode() finds the reasons.
  SampleEncoder(const ConvertConfig& config, const std::vector<std::string>& columns,
                const std::optional<SampleForm>& form);
  // Errors of the sample become its `problem`; those of the machine or the configuration are thrown.
  EncodedSample encode(const SampleRow& row, bool with_statistics);
  // The distributions of all samples so far that were usable and had statistics: for each field, one for each
  // channel. Counts add up exactly, so that the assignment of samples to encoders does not matter.
  const std::vector<std::vector<Sketch>>& sketches() const { return sketches_; }

 private:
  std::string failed_filter(const std::vector<FieldValue>& values, const SampleRow& row) const;
  void narrow(std::vector<FieldValue>& values, EncodedSample& sample) const;
  std::vector<EncodedField> encode_piece(std::vector<FieldValue>& values, std::size_t piece,
                                         std::size_t pieces);

  const ConvertConfig& config_;
  const std::vector<std::string>& columns_;
  std::optional<SampleForm> form_;
  SampleReader reader_;
  std::vector<Encoder> encoders_;  // one for each field
  std::vector<std::vector<Sketch>> sketches_;
  std::vector<Formula> filters_;
};

// Ragged fields: samples of different lengths along one axis. A shard holds their values one behind the
// other, with the ragged axis first, and the offset of each sample; readers return them padded.

// Neighbouring steps along an axis.
struct StepRange {
  std::size_t axis = 0;
  std::size_t first = 0;
  std::size_t count = 0;
};

// Moves the axis of values in C order of `shape` to the front. The reverse function writes such values into a
// range of steps of an array of `shape`, and leaves its other values unchanged.
std::vector<std::uint8_t> ragged_axis_first(std::vector<std::uint8_t> values,
                                            const std::vector<std::size_t>& shape, std::size_t axis,
                                            std::size_t width);
void put_steps(std::span<const std::uint8_t> steps, const std::vector<std::size_t>& shape, StepRange range,
               std::size_t width, std::span<std::uint8_t> to);

// Fills `to` with one value.
void fill_values(DType dtype, double value, std::span<std::uint8_t> to);

}  // namespace wflow::converters
