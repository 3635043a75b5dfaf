// SPDX-License-Identifier: Apache-2.0
// An HDF5 file of contiguous datasets with a row per sample, written in parts and published whole.
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
  // Every function throws Error{system} if a write fails.
  RowFile(const std::filesystem::path& target, std::span<const std::int64_t> ids);  // dataset /id
  ~RowFile();  // removes an unpublished file
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  // Later attributes and datasets belong to this new group; empty: to the file itself.
  void use_group(const std::string& name);
  // Attributes of the file, or of the group.
  void text(const char* name, const std::vector<std::string>& values);
  void number(const char* name, std::int64_t value);
  void reals(const char* name, std::span<const double> values);
  // Adds a dataset of float32, or float64 if `wide`; `shape`: of a row. Returns its number.
  std::size_t add(const char* name, std::span<const std::int64_t> shape, bool wide = false);
  std::size_t add_bytes(const char* name, std::span<const std::int64_t> shape);  // of uint8
  // Writes the rows in `values` from row `first` on.
  void write(std::size_t dataset, std::size_t first, std::span<const float> values);
  void write(std::size_t dataset, std::size_t first, std::span<const double> values);
  void write(std::size_t dataset, std::size_t first, std::span<const std::uint8_t> values);
  void publish();
  std::size_t rows() const;

 private:
  struct State;
  enum class Number { float32, float64, uint8 };
  std::size_t add(const char* name, std::span<const std::int64_t> shape, Number number);
  void write_rows(std::size_t dataset, std::size_t first, const void* values, std::size_t count,
                  Number number);
  std::unique_ptr<State> state_;
};

// Reads such a file in parts.
class RowFileReader {
 public:
  // Every function throws Error{data} if the file can't be read.
  explicit RowFileReader(const std::filesystem::path& path);
  ~RowFileReader();
  RowFileReader(RowFileReader&&) noexcept;

  const std::vector<std::int64_t>& ids() const;  // none in a file without a dataset `id`
  // Shape of a row; no value without such a dataset.
  std::optional<std::vector<std::int64_t>> shape(const char* name) const;
  // True if its values are float64.
  bool is_wide(const char* name) const;
  // Rows [first, first + count).
  std::vector<double> read(const char* name, std::size_t first, std::size_t count) const;
  // The whole dataset, with the lengths of all its axes.
  std::vector<double> read_all(const char* name, std::vector<std::int64_t>& extent) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wflow::trainer
