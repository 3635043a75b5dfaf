// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/file.h"

namespace wflow::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

constexpr std::string_view kMagic = "WFLOWCKP";
constexpr std::size_t kPrefix = 24;  // magic, version, reserved, header length
constexpr std::size_t kAlignment = 64;
constexpr const char* kExtension = ".wfck";

std::size_t round_up(std::size_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}

template <typename T>
T get(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <typename T>
void put(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

Error damaged(const std::string& name, const std::string& what) {
  return Error(ExitCode::data, fmt::format("checkpoint {} is damaged: {}", name, what));
}

}  // namespace

const CheckpointArray* Checkpoint::find(std::string_view kind, std::string_view name) const {
  for (const CheckpointArray& array : arrays) {
    if (array.kind == kind && array.name == name) return &array;
  }
  return nullptr;
}

std::string encode_unsealed(nlohmann::json header, std::span<const CheckpointView> arrays) {
  nlohmann::json& list = header["arrays"] = nlohmann::json::array();
  std::size_t data_length = 0;
  for (const CheckpointView& array : arrays) {
    list.push_back(
        {{"kind", array.kind}, {"name", array.name}, {"shape", array.shape}, {"offset", data_length}});
    data_length += round_up(array.values.size() * sizeof(float));
  }
  const std::string text = header.dump();
  const std::size_t data_begin = round_up(kPrefix + text.size());
  std::string bytes;
  bytes.reserve(data_begin + data_length + kHashLength);
  bytes.resize(data_begin + data_length);
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  put(bytes, 8, static_cast<std::uint32_t>(kCheckpointVersion));
  put(bytes, 12, std::uint32_t{0});
  put(bytes, 16, static_cast<std::uint64_t>(text.size()));
  std::memcpy(bytes.data() + kPrefix, text.data(), text.size());
  std::size_t at = data_begin;
  for (const CheckpointView& array : arrays) {
    const std::size_t length = array.values.size() * sizeof(float);
    if (length > 0) std::memcpy(bytes.data() + at, array.values.data(), length);
    at += round_up(length);
  }
  return bytes;
}

std::string sealed(std::string unsealed) {
  unsealed += hash_bytes(unsealed);
  return unsealed;
}

std::string encode_checkpoint(const Checkpoint& checkpoint) {
  std::vector<CheckpointView> views;
  for (const CheckpointArray& array : checkpoint.arrays)
    views.push_back({array.kind, array.name, array.shape, array.values});
  return sealed(encode_unsealed(checkpoint.header, views));
}

Checkpoint decode_checkpoint(std::string_view bytes, const std::string& name) {
  if (bytes.size() < kPrefix + kHashLength) throw damaged(name, "it is too short");
  if (bytes.substr(0, kMagic.size()) != kMagic)
    throw damaged(name, "it does not begin as a wflow checkpoint does");
  const auto version = get<std::uint32_t>(bytes, 8);
  if (version > static_cast<std::uint32_t>(kCheckpointVersion)) {
    throw Error(ExitCode::version,
                fmt::format("checkpoint {} has format {}, this wflow-train knows {}; use a newer one", name,
                            version, kCheckpointVersion));
  }
  const std::string_view body = bytes.substr(0, bytes.size() - kHashLength);
  if (hash_bytes(body) != bytes.substr(body.size())) throw damaged(name, "its checksum does not match");
  try {
    const auto length = get<std::uint64_t>(bytes, 16);
    if (length > body.size() - kPrefix) throw damaged(name, "its header is cut off");
    Checkpoint checkpoint;
    checkpoint.header = nlohmann::json::parse(body.substr(kPrefix, length));
    const std::size_t data_begin = round_up(kPrefix + length);
    for (const nlohmann::json& entry : checkpoint.header.at("arrays")) {
      CheckpointArray array;
      array.kind = entry.at("kind").get<std::string>();
      array.name = entry.at("name").get<std::string>();
      array.shape = entry.at("shape").get<std::vector<std::int64_t>>();
      std::size_t count = 1;
      for (const std::int64_t n : array.shape) {
        if (n < 0 || static_cast<std::size_t>(n) > body.size())
          throw damaged(name, "an array has an impossible shape");
        count *= static_cast<std::size_t>(n);
        if (count > body.size()) throw damaged(name, "an array is longer than the file");
      }
      const auto offset = entry.at("offset").get<std::size_t>();
      if (offset > body.size() || data_begin + offset + count * sizeof(float) > body.size()) {
        throw damaged(name, "an array reaches beyond its end");
      }
      array.values.resize(count);
      if (count > 0)
        std::memcpy(array.values.data(), body.data() + data_begin + offset, count * sizeof(float));
      checkpoint.arrays.push_back(std::move(array));
    }
    checkpoint.header.erase("arrays");
    return checkpoint;
  } catch (const nlohmann::json::exception& error) {
    throw damaged(name, error.what());
  }
}

CheckpointDirectory::CheckpointDirectory(std::filesystem::path directory, std::int64_t keep)
    : directory_(std::move(directory)), keep_(keep) {}

std::filesystem::path CheckpointDirectory::path_of(std::int64_t step) const {
  return directory_ / fmt::format("step-{:012}{}", step, kExtension);
}

std::vector<std::filesystem::path> CheckpointDirectory::files() const {
  std::vector<std::filesystem::path> list;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-") && entry.path().extension() == kExtension) list.push_back(entry.path());
  }
  std::sort(list.begin(), list.end(), std::greater<>());
  return list;
}

CheckpointDirectory::Written CheckpointDirectory::write(std::int64_t step, const std::string& bytes,
                                                        std::span<const std::int64_t> keep_steps) const {
  make_directories(directory_);
  const std::filesystem::path path = path_of(step);
  write_file_durably(path, bytes);
  std::vector<std::filesystem::path> kept;
  for (const std::int64_t kept_step : keep_steps) kept.push_back(path_of(kept_step));
  const std::vector<std::filesystem::path> all = files();
  for (std::size_t i = static_cast<std::size_t>(keep_); i < all.size(); ++i) {
    if (std::find(kept.begin(), kept.end(), all[i]) != kept.end()) continue;
    std::error_code ignored;
    std::filesystem::remove(all[i], ignored);
  }
  return {path, bytes.substr(bytes.size() - kHashLength)};
}

CheckpointDirectory::Written CheckpointDirectory::write_best(const std::string& bytes) const {
  make_directories(directory_);
  const std::filesystem::path path = directory_ / (std::string("best") + kExtension);
  write_file_durably(path, bytes);
  return {path, bytes.substr(bytes.size() - kHashLength)};
}

std::optional<CheckpointDirectory::Found> CheckpointDirectory::newest(
    const std::function<void(const std::string&)>& report, std::int64_t limit) const {
  for (const std::filesystem::path& path : files()) {
    if (limit < kNoLimit && path >= path_of(limit)) continue;
    try {
      Found found = {path, read_file(path)};
      decode_checkpoint(found.bytes, path.string());
      return found;
    } catch (const Error& error) {
      if (error.code() == ExitCode::version) throw;
      // Renamed, so that it does not count as one of the last few.
      std::filesystem::path aside = path;
      aside += ".damaged";
      std::error_code ignored;
      std::filesystem::rename(path, aside, ignored);
      report(fmt::format("{}; trying the one before", error.what()));
    }
  }
  return std::nullopt;
}

void CheckpointDirectory::remove_from(std::int64_t step) const {
  const std::filesystem::path first = path_of(step);
  for (const std::filesystem::path& path : files()) {
    if (path < first) return;
    std::filesystem::remove(path);
  }
}

std::string CheckpointDirectory::best_bytes(const std::function<void(const std::string&)>& report) const {
  const std::filesystem::path path = directory_ / (std::string("best") + kExtension);
  if (!std::filesystem::exists(path)) return {};
  try {
    std::string bytes = read_file(path);
    decode_checkpoint(bytes, path.string());
    return bytes;
  } catch (const Error& error) {
    if (error.code() == ExitCode::version) throw;
    report(error.what());
    return {};
  }
}

void CheckpointDirectory::clear() const {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

}  // namespace wflow::trainer
