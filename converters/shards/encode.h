// SPDX-License-Identifier: Apache-2.0
// One sample from its files to the bytes of its chunks. Many run at once, one SampleEncoder a thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "converters/config.h"
#include "converters/convert/sketch.h"
#include "converters/convert/statistics.h"
#include "converters/formula.h"
#include "converters/input/sample.h"
#include "converters/shards/codec.h"

namespace wflow::converters {

// A field of a row.
struct EncodedField {
  std::vector<EncodedChunk>
      chunks;  // of a packed field: one of its values as they are; of a large one: its slabs
  std::uint64_t raw_hash =
      0;  // XXH3-64 of the values as the shard holds them, to verify before inputs are deleted
};

// One entry a channel; a field of very many channels has no distributions.
struct FieldStatistics {
  std::vector<Moments> moments;
  std::vector<Sketch> sketches;
};

// What every sample of a block must be.
using SampleForm = std::vector<FieldForm>;

struct EncodedSample {
  std::string problem;                   // why the sample is unusable; empty when it is usable
  bool readable = false;                 // its files are, whatever they hold
  std::optional<SampleForm> other_form;  // that of a readable sample, where it is not the form asked for
  std::string dropped;                   // the filter that leaves it out
  // A field whose values do not fit into the narrow type of the form, and the one that all so far do; without
  // one: none does.
  struct TooWide {
    std::size_t field = 0;
    std::optional<DType> type;
  };
  std::optional<TooWide> too_wide;
  std::vector<std::vector<EncodedField>>
      rows;                      // usually one; a row a sub-cube; fields in the order of the form
  std::vector<Moments> moments;  // of each field, one a channel, one behind the other; where asked for
};

// The form of the first row that can be read and agrees with the configuration; nothing if none does. Its
// values decide the type of narrowed fields, those of the first three how each field is compressed.
std::optional<SampleForm> find_form(const ConvertConfig& config, const std::vector<std::string>& columns,
                                    std::span<const SampleRow> rows);

// The smallest type that holds all values exactly, where they are whole numbers and it is smaller than
// theirs.
std::optional<DType> narrow_type(DType dtype, std::span<const std::uint8_t> values);

// Of the channels of a field, over all its pieces.
FieldStatistics channel_statistics(const FieldValue& value);

// The values of a row, in the type that the shard holds, as chunks; `hashed`: with raw_hash. A field that is
// kept as it is takes the bytes themselves.
EncodedField encode_values(std::vector<std::uint8_t>&& values, const FieldForm& form, Encoder& encoder,
                           bool hashed);
EncodedField encode_values(std::span<const std::uint8_t> values, const FieldForm& form, Encoder& encoder,
                           bool hashed = false);

class SampleEncoder {
 public:
  // Without a form nothing can be usable, and encode() finds the reasons.
  SampleEncoder(const ConvertConfig& config, const std::vector<std::string>& columns,
                const std::optional<SampleForm>& form);
  // Errors of the sample become its `problem`; those of the machine or the configuration are thrown.
  EncodedSample encode(const SampleRow& row, bool with_statistics);
  // The distributions of all samples so far that were usable and had statistics: of each field, one a
  // channel. Counts add up exactly, so that it does not matter which encoder had which sample.
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
  std::vector<Encoder> encoders_;  // one a field
  std::vector<std::vector<Sketch>> sketches_;
  std::vector<Formula> filters_;
};

}  // namespace wflow::converters
