// SPDX-License-Identifier: Apache-2.0
// A table of two columns for tests: "x" holds 10 * row, "name" a text that needs quoting.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "specs/samples/samples.h"

namespace wflow::steps {

class TestSamples final : public specs::SampleTable {
 public:
  explicit TestSamples(std::uint64_t count) : count_(count) {}
  std::uint64_t count() const override { return count_; }
  const std::vector<std::string>& columns() const override { return columns_; }
  std::string text(std::uint64_t row, std::size_t column) const override {
    return column == 0 ? std::to_string(10 * row) : "a,\"" + std::to_string(row) + "\"";
  }

 private:
  std::uint64_t count_;
  std::vector<std::string> columns_ = {"x", "name"};
};

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "wflow-steps-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline specs::Piece literal(std::string text) {
  return {specs::Piece::Kind::literal, std::move(text), 0};
}
inline specs::Piece token(specs::Piece::Kind kind, std::uint32_t column = 0) {
  return {kind, "", column};
}

}  // namespace wflow::steps
