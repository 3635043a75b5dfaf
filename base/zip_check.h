// SPDX-License-Identifier: Apache-2.0
// Whether the members of a zip file, which libtorch's models are, still have their checksums: libtorch does
// not look.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace wflow {

// As zlib has it: `crc` is that of what stood before.
std::uint32_t crc32(std::string_view bytes, std::uint32_t crc = 0);

// What is wrong: "its member model/data/3 is damaged", or that it is no zip file. Reads all of it, and
// inflates what is compressed: code and constants of a model are.
std::optional<std::string> zip_damage(const std::filesystem::path& path);

}  // namespace wflow
