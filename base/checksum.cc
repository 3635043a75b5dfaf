// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <libdeflate.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/file.h"

namespace wflow {

namespace {

// Slicing by 8 (Kounavis and Berry 2005): table k has the remainders of a byte that k bytes follow.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables(std::uint32_t reflected_polynomial) {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? reflected_polynomial : 0U);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xFFU];
  }
  return tables;
}

constexpr Tables kZipTables = make_tables(0xEDB88320U);
constexpr Tables kTables = make_tables(0x82F63B78U);

constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kLocatorBytes = 20;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kMemberBytes = 46;
constexpr std::size_t kLocalBytes = 30;
constexpr std::size_t kMostComment = 65535;
constexpr std::uint64_t kStored = 0;
constexpr std::uint64_t kDeflated = 8;
constexpr std::uint64_t kMostInflation =
    1032;                                    // deflate's limit: a damaged size must not allocate all memory
constexpr std::uint32_t kIn64 = 0xFFFFFFFF;  // the number is in the extra field

// Every supported machine is little endian.
template <typename Value>
std::uint64_t number(std::string_view bytes, std::size_t at) {
  Value value{};
  if (at + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

struct Member {
  std::string name;
  std::uint64_t method = 0;
  std::uint64_t crc = 0;
  std::uint64_t bytes = 0;  // in the file
  std::uint64_t whole = 0;  // inflated
  std::uint64_t offset = 0;
};

class ZipReader {
 public:
  explicit ZipReader(const std::filesystem::path& path)
      : path_(path), fd_(open_file(path, O_RDONLY)), size_(std::filesystem::file_size(path)) {}

  std::optional<std::string> damage() {
    const auto directory = find_directory();
    if (!directory) return "it is cut off, or no zip file";
    std::string_view rest = *directory;
    while (!rest.empty()) {
      const auto member = next_member(rest);
      if (!member) return "its directory is damaged";
      if (!is_whole(*member)) return fmt::format("its member {} is damaged", member->name);
    }
    return std::nullopt;
  }

 private:
  std::string bytes_at(std::uint64_t offset, std::uint64_t count) const {
    if (offset > size_) return {};
    std::string bytes(std::min(count, size_ - offset), '\0');
    bytes.resize(read_at(fd_.get(), offset, bytes.data(), bytes.size(), path_));
    return bytes;
  }

  std::optional<std::string> find_directory() const {
    const std::uint64_t tail_bytes = std::min<std::uint64_t>(size_, kEndBytes + kMostComment);
    const std::string tail = bytes_at(size_ - tail_bytes, tail_bytes);
    const std::size_t end = tail.rfind("PK\x05\x06");
    if (end == std::string::npos || end + kEndBytes > tail.size()) return std::nullopt;
    std::uint64_t bytes = number<std::uint32_t>(tail, end + 12);
    std::uint64_t offset = number<std::uint32_t>(tail, end + 16);
    if (end >= kLocatorBytes && tail.compare(end - kLocatorBytes, 4, "PK\x06\x07") == 0) {
      const std::string end64 = bytes_at(number<std::uint64_t>(tail, end - kLocatorBytes + 8), kEnd64Bytes);
      if (!end64.starts_with("PK\x06\x06") || end64.size() < kEnd64Bytes) return std::nullopt;
      bytes = number<std::uint64_t>(end64, 40);
      offset = number<std::uint64_t>(end64, 48);
    }
    if (bytes == 0 || offset > size_ || bytes > size_ - offset) return std::nullopt;
    return bytes_at(offset, bytes);
  }

  static std::optional<Member> next_member(std::string_view& rest) {
    if (rest.size() < kMemberBytes || !rest.starts_with("PK\x01\x02")) return std::nullopt;
    const std::size_t name = number<std::uint16_t>(rest, 28);
    const std::size_t extra = number<std::uint16_t>(rest, 30);
    const std::size_t comment = number<std::uint16_t>(rest, 32);
    if (rest.size() - kMemberBytes < name + extra + comment) return std::nullopt;
    Member member{std::string(rest.substr(kMemberBytes, name)),
                  number<std::uint16_t>(rest, 10),
                  number<std::uint32_t>(rest, 16),
                  number<std::uint32_t>(rest, 20),
                  number<std::uint32_t>(rest, 24),
                  number<std::uint32_t>(rest, 42)};
    const bool long_whole = member.whole == kIn64;
    std::string_view fields = rest.substr(kMemberBytes + name, extra);
    while (fields.size() >= 4) {
      const std::size_t length = number<std::uint16_t>(fields, 2);
      if (number<std::uint16_t>(fields, 0) == 1) {
        std::size_t at = long_whole ? 12 : 4;
        if (long_whole) member.whole = number<std::uint64_t>(fields, 4);
        if (member.bytes == kIn64) {
          member.bytes = number<std::uint64_t>(fields, at);
          at += 8;
        }
        if (member.offset == kIn64) member.offset = number<std::uint64_t>(fields, at);
      }
      fields.remove_prefix(std::min(fields.size(), length + 4));
    }
    rest.remove_prefix(kMemberBytes + name + extra + comment);
    return member;
  }

  bool is_whole(const Member& member) const {
    const std::string local = bytes_at(member.offset, kLocalBytes);
    if (local.size() < kLocalBytes || !local.starts_with("PK\x03\x04")) return false;
    const std::uint64_t at =
        member.offset + kLocalBytes + number<std::uint16_t>(local, 26) + number<std::uint16_t>(local, 28);
    if (number<std::uint16_t>(local, 8) != member.method) return false;
    if (member.method == kStored) return stored_is_whole(member, at);
    return member.method == kDeflated && deflated_is_whole(member, at);
  }

  bool deflated_is_whole(const Member& member, std::uint64_t at) const {
    const std::string deflated = bytes_at(at, member.bytes);
    if (deflated.size() != member.bytes || member.whole / kMostInflation > member.bytes) return false;
    std::string inflated(member.whole, '\0');
    const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> inflater(
        libdeflate_alloc_decompressor(), &libdeflate_free_decompressor);
    // Given no pointer to the size, libdeflate fails if the size differs.
    return inflater != nullptr &&
           libdeflate_deflate_decompress(inflater.get(), deflated.data(), deflated.size(), inflated.data(),
                                         inflated.size(), nullptr) == LIBDEFLATE_SUCCESS &&
           crc32(inflated) == member.crc;
  }

  bool stored_is_whole(const Member& member, std::uint64_t at) const {
    std::uint32_t crc = 0;
    for (std::uint64_t left = member.bytes; left > 0;) {
      constexpr std::uint64_t kPart = 1 << 20;
      const std::string part = bytes_at(at, std::min(left, kPart));
      if (part.empty()) return false;
      crc = crc32(part, crc);
      at += part.size();
      left -= part.size();
    }
    return crc == member.crc;
  }

  std::filesystem::path path_;
  FileDescriptor fd_;
  std::uint64_t size_;
};

}  // namespace

std::uint32_t crc32(std::string_view bytes, std::uint32_t crc) {
  crc = ~crc;
  while (bytes.size() >= 8) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    std::memcpy(&low, bytes.data(), 4);
    std::memcpy(&high, bytes.data() + 4, 4);
    low ^= crc;
    crc = kZipTables[7][low & 255] ^ kZipTables[6][low >> 8 & 255] ^ kZipTables[5][low >> 16 & 255] ^
          kZipTables[4][low >> 24] ^ kZipTables[3][high & 255] ^ kZipTables[2][high >> 8 & 255] ^
          kZipTables[1][high >> 16 & 255] ^ kZipTables[0][high >> 24];
    bytes.remove_prefix(8);
  }
  for (const char byte : bytes)
    crc = crc >> 8 ^ kZipTables[0][(crc ^ static_cast<unsigned char>(byte)) & 255];
  return ~crc;
}

std::optional<std::string> zip_damage(const std::filesystem::path& path) {
  return ZipReader(path).damage();
}

std::uint32_t crc32c(std::span<const std::uint8_t> bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  std::size_t at = 0;
  for (; bytes.size() - at >= 8; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    word ^= crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFFU];
  }
  for (; at < bytes.size(); ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ bytes[at]) & 0xFFU];
  return ~crc;
}

namespace {

constexpr std::string_view kKey = "\"wflow_checksum\"";
constexpr std::string_view kBegin = "{\n";
constexpr std::size_t kHexDigits = 32;

}  // namespace

std::string with_checksum(std::string text) {
  WFLOW_CHECK(text.starts_with(kBegin));
  const std::size_t indent = text.find_first_not_of(' ', kBegin.size()) - kBegin.size();
  const std::string line = fmt::format("{:{}}{}: \"{}\",\n", "", indent, kKey, hash_bytes(text));
  text.insert(kBegin.size(), line);
  return text;
}

CheckedJson take_checksum(std::string text) {
  const std::size_t key = text.find(kKey);
  if (key == std::string::npos) return {std::move(text), false, true};
  CheckedJson result{{}, true, false};
  const std::size_t end = text.find('\n', key);
  const std::size_t value = key + kKey.size() + 3;  // behind `: "`
  const bool in_place = text.starts_with(kBegin) && text.find_first_not_of(' ', kBegin.size()) == key &&
                        end == value + kHexDigits + 2;
  if (in_place) {
    const std::string written = text.substr(key, end + 1 - key);
    text.erase(kBegin.size(), end + 1 - kBegin.size());
    result.whole = written == fmt::format("{}: \"{}\",\n", kKey, hash_bytes(text));
  }
  result.text = std::move(text);
  return result;
}

struct HashStream::State {
  State() : xxh(XXH3_createState()) { XXH3_128bits_reset(xxh); }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  XXH3_state_t* xxh;
};

HashStream::HashStream() : state_(std::make_unique<State>()) {}
HashStream::~HashStream() = default;

void HashStream::add(std::string_view bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::string HashStream::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

bool ends_with_its_hash(const std::filesystem::path& path) {
  constexpr std::size_t kHash = 32;
  const FileDescriptor file = open_file(path, O_RDONLY);
  const std::uintmax_t size = std::filesystem::file_size(path);
  if (size < kHash) return false;
  HashStream hash;
  std::string piece(std::size_t{1} << 20, '\0');
  for (std::uintmax_t at = 0; at < size - kHash;) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uintmax_t>(piece.size(), size - kHash - at));
    if (read_at(file.get(), at, piece.data(), wanted, path) != wanted) return false;
    hash.add(std::string_view(piece).substr(0, wanted));
    at += wanted;
  }
  std::string end(kHash, '\0');
  return read_at(file.get(), size - kHash, end.data(), kHash, path) == kHash && end == hash.text();
}

}  // namespace wflow
