// SPDX-License-Identifier: Apache-2.0
// One sample from its file to the bytes of its chunk. Many run at once, one SampleEncoder a thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "converters/config.h"
#include "converters/convert/statistics.h"
#include "converters/input/array.h"
#include "converters/input/sample_table.h"
#include "converters/shards/codec.h"

namespace wflow::converters {

struct EncodedSample {
  std::string problem;  // why the sample is unusable; empty when it is usable
  EncodedChunk chunk;
  std::uint64_t raw_hash = 0;  // XXH3-64 of the values, to verify before inputs are deleted
  std::vector<Moments> x;      // one a channel, where asked for
};

// What every sample of a block must be.
struct SampleForm {
  std::array<std::size_t, 4> shape{};
  DType dtype = DType::float32;
  bool operator==(const SampleForm&) const = default;
};

Filters filters_of(const ConvertConfig& config, DType dtype);

// The form of the first row that can be read and agrees with the configuration; nothing if none does.
std::optional<SampleForm> find_form(const ConvertConfig& config, const std::vector<SampleRow>& rows);

class SampleEncoder {
 public:
  // Without a form nothing can be usable, and encode() finds the reasons.
  SampleEncoder(const ConvertConfig& config, const std::optional<SampleForm>& form);
  // Errors of the sample become its `problem`; those of the machine or the configuration are thrown.
  EncodedSample encode(const SampleRow& row, bool with_statistics);

 private:
  const ConvertConfig& config_;
  std::optional<SampleForm> form_;
  Encoder encoder_;
};

}  // namespace wflow::converters
