// SPDX-License-Identifier: Apache-2.0
// Reads TFRecord files (base/protobuf.h); the whole file may be a gzip stream. A record is a message
// tf.train.Example: features by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::converters {

// Reads record after record. Error{data} names the file and the byte (in a gzip stream: the byte of the
// inflated data) of a record that is cut or has a wrong checksum. A length is compared with the possible size
// of the file before memory is allocated.
class TfrecordFile {
 public:
  explicit TfrecordFile(std::filesystem::path path);
  ~TfrecordFile();

  // The next record; nothing at the end of the file.
  std::optional<std::vector<std::uint8_t>> next();
  // Skips a record without checking its checksum; false at the end of the file.
  bool skip();
  // The begin of the last record's bytes.
  std::uint64_t record_begin() const { return begin_; }

 private:
  class Bytes;
  class PlainBytes;
  class GzipBytes;
  std::optional<std::uint64_t> next_length();
  [[noreturn]] void fail(std::uint64_t at, const std::string& why) const;

  std::filesystem::path path_;
  std::unique_ptr<Bytes> bytes_;
  std::uint64_t begin_ = 0;
};

// The number of records in a file.
std::uint64_t count_tfrecords(const std::filesystem::path& path);

// The sizes of the feature in the file's first record: of a byte string, or of a list of numbers. They tell
// the layout of a volume. Error{data} if there is no such feature.
struct FeatureSize {
  bool is_bytes = false;
  std::size_t bytes = 0;   // size of the byte string
  std::size_t values = 0;  // length of a list of numbers
};
FeatureSize feature_size(const std::filesystem::path& path, const std::string& feature);

}  // namespace wflow::converters
