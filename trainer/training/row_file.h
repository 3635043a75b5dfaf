// SPDX-License-Identifier: Apache-2.0
// An HDF5 file of contiguous datasets that have a row a sample, written part by part and published whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace wflow::trainer {

class RowFile {
 public:
  // All throw Error{system} where the disk refuses.
  RowFile(const std::filesystem::path& target, std::span<const std::int64_t> ids);  // dataset /id
  ~RowFile();  // an unpublished file is removed
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  // Attributes of the file.
  void text(const char* name, const std::vector<std::string>& values);
  void number(const char* name, std::int64_t value);
  // A dataset of float32, or float64 where it is `wide`; `shape` of a row. Gives its number.
  std::size_t add(const char* name, std::span<const std::int64_t> shape, bool wide = false);
  // Rows from `first` on, as many as there are in `values`.
  void write(std::size_t dataset, std::size_t first, std::span<const float> values);
  void write(std::size_t dataset, std::size_t first, std::span<const double> values);
  void publish();
  std::size_t rows() const;

 private:
  struct State;
  void write_rows(std::size_t dataset, std::size_t first, const void* values, std::size_t count, bool wide);
  std::unique_ptr<State> state_;
};

// Such a file, read part by part.
class RowFileReader {
 public:
  // All throw Error{data} where the file can't be read.
  explicit RowFileReader(const std::filesystem::path& path);
  ~RowFileReader();
  RowFileReader(RowFileReader&&) noexcept;

  const std::vector<std::int64_t>& ids() const;
  // Of a row; nothing where there is no such dataset.
  std::optional<std::vector<std::int64_t>> shape(const char* name) const;
  // Whether its values are float64.
  bool is_wide(const char* name) const;
  // Rows [first, first + count).
  std::vector<double> read(const char* name, std::size_t first, std::size_t count) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wflow::trainer
