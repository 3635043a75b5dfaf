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

// Reads record after record. Error{data} names the file and the byte (of a gzip stream: the byte of what it
// inflates to) of a record that is cut or does not have its checksum. A length is compared with what the
// file can hold before memory is taken for it.
class TfrecordFile {
 public:
  explicit TfrecordFile(std::filesystem::path path);
  ~TfrecordFile();

  // The next record; nothing at the end of the file.
  std::optional<std::vector<std::uint8_t>> next();
  // Passes over one, without its bytes' checksum; false at the end of the file.
  bool skip();
  // Where the last record's bytes begin.
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

// Records of a file.
std::uint64_t count_tfrecords(const std::filesystem::path& path);

// The bytes of a value of the feature in the file's first record, and whether it is a list of byte strings:
// to find out how a volume lies in it. Error{data} where there is none.
struct FeatureSize {
  bool is_bytes = false;
  std::size_t bytes = 0;   // of the byte string
  std::size_t values = 0;  // of a list of numbers
};
FeatureSize feature_size(const std::filesystem::path& path, const std::string& feature);

}  // namespace wflow::converters
