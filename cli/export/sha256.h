// SPDX-License-Identifier: Apache-2.0
// SHA-256 of a file, for checksums that others check with sha256sum. By libsodium.
#pragma once

#include <filesystem>
#include <string>

namespace wflow::cli {

// In hexadecimal. Throws Error{system} where the file can't be read.
std::string sha256_of(const std::filesystem::path& file);

}  // namespace wflow::cli
