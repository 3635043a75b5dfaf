// SPDX-License-Identifier: Apache-2.0
// A small file of each format, for tests and as seeds of the fuzzers. All contain 0, 1, 2, ... in some shape.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "converters/fields.h"

namespace wflow::converters {

struct TestFile {
  std::string name;
  Selector selector;
  std::vector<std::size_t> shape;  // shape of the selected values
};

// Writes them into the folder.
std::vector<TestFile> write_test_files(const std::filesystem::path& folder);

}  // namespace wflow::converters
