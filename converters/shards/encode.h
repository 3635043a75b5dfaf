// SPDX-License-Identifier: Apache-2.0
// One sample from its files to the bytes of its chunks. Many run at once, one SampleEncoder a thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "converters/config.h"
#include "converters/convert/statistics.h"
#include "converters/input/sample.h"
#include "converters/shards/codec.h"

namespace wflow::converters {

struct EncodedField {
  EncodedChunk chunk;            // of a packed field: its values as they are
  std::uint64_t raw_hash = 0;    // XXH3-64 of the values, to verify before inputs are deleted
  std::vector<Moments> moments;  // one a channel, where asked for
};

struct EncodedSample {
  std::string problem;               // why the sample is unusable; empty when it is usable
  std::vector<EncodedField> fields;  // in the order of the form
};

// What every sample of a block must be.
using SampleForm = std::vector<FieldForm>;

// The form of the first row that can be read and agrees with the configuration; nothing if none does.
std::optional<SampleForm> find_form(const ConvertConfig& config, const std::vector<std::string>& columns,
                                    const std::vector<SampleRow>& rows);

class SampleEncoder {
 public:
  // Without a form nothing can be usable, and encode() finds the reasons.
  SampleEncoder(const ConvertConfig& config, const std::vector<std::string>& columns,
                const std::optional<SampleForm>& form);
  // Errors of the sample become its `problem`; those of the machine or the configuration are thrown.
  EncodedSample encode(const SampleRow& row, bool with_statistics);

 private:
  EncodedField encode_field(FieldValue& value, std::size_t k, bool with_statistics);

  const ConvertConfig& config_;
  const std::vector<std::string>& columns_;
  std::optional<SampleForm> form_;
  std::vector<Encoder> encoders_;  // one a field
};

}  // namespace wflow::converters
