// SPDX-License-Identifier: Apache-2.0
#include "cli/export/sha256.h"

#include <fcntl.h>
#include <sodium.h>

#include <array>
#include <cstdint>

#include "base/error.h"
#include "base/file.h"

namespace wflow::cli {

std::string sha256_of(const std::filesystem::path& file) {
  if (::sodium_init() < 0) throw Error(ExitCode::system, "libsodium cannot start");
  const FileDescriptor fd = open_file(file, O_RDONLY | O_CLOEXEC);
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  std::string buffer(std::size_t{1} << 20, '\0');
  std::uint64_t offset = 0;
  std::size_t got = 0;
  do {
    got = read_at(fd.get(), offset, buffer.data(), buffer.size(), file);
    crypto_hash_sha256_update(&state, reinterpret_cast<const unsigned char*>(buffer.data()), got);
    offset += got;
  } while (got == buffer.size());
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest{};
  crypto_hash_sha256_final(&state, digest.data());
  std::array<char, 2 * crypto_hash_sha256_BYTES + 1> text{};
  return sodium_bin2hex(text.data(), text.size(), digest.data(), digest.size());
}

}  // namespace wflow::cli
