// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"

namespace wflow::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

constexpr std::string_view kMagic = "WFLOWCKP";
constexpr std::size_t kPrefix = 24;  // magic, version, reserved, header length
constexpr std::size_t kAlignment = 64;
constexpr const char* kExtension = ".wfck";
constexpr const char* kBest = "best.wfck";
constexpr const char* kBeginning = "beginning.wfck";

std::uint64_t round_up(std::uint64_t n) {
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

std::string_view bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

Error damaged(const std::string& name, const std::string& what) {
  return Error(ExitCode::data, fmt::format("checkpoint {} is damaged: {}", name, what));
}

// Writes to a file and keeps the checksum of all bytes.
class HashedOutput {
 public:
  HashedOutput(const std::filesystem::path& file, const std::filesystem::path& target)
      : target_(target), file_(open_file(file, O_WRONLY | O_CREAT | O_TRUNC)) {}

  void add(std::string_view bytes) {
    write_all(file_.get(), bytes, target_);
    hash_.add(bytes);
    written_ += bytes.size();
  }
  void pad() { add(std::string(round_up(written_) - written_, '\0')); }
  // Returns the checksum, which it writes as the last bytes. The descriptor that wrote receives the errors
  // that a file system reports at the end.
  std::string finish() {
    const std::string hash = hash_.text();
    write_all(file_.get(), hash, target_);
    if (::fsync(file_.get()) != 0 || (::close(file_.release()) != 0 && errno != EINTR))
      throw system_error(errno, fmt::format("cannot write {}", target_.string()));
    return hash;
  }

 private:
  const std::filesystem::path& target_;
  FileDescriptor file_;
  HashStream hash_;
  std::uint64_t written_ = 0;
};

// The header with the place of each array, and everything before it in the file.
std::string first_bytes(const Snapshot& snapshot) {
  nlohmann::json header = snapshot.header;
  nlohmann::json& list = header["arrays"] = nlohmann::json::array();
  std::uint64_t offset = 0;
  for (const CheckpointView& array : snapshot.arrays) {
    list.push_back({{"kind", array.kind}, {"name", array.name}, {"shape", array.shape}, {"offset", offset}});
    offset += round_up(array.count() * sizeof(float));
  }
  const std::string text = header.dump();
  std::string bytes(kPrefix, '\0');
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  put(bytes, 8, static_cast<std::uint32_t>(kCheckpointVersion));
  put(bytes, 16, static_cast<std::uint64_t>(text.size()));
  return bytes + text;
}

// The array of a header's entry, for a file with data up to `data_end`.
CheckpointReader::Entry entry_of(const nlohmann::json& json, std::uint64_t data_begin, std::uint64_t data_end,
                                 const std::string& name) {
  CheckpointReader::Entry entry;
  entry.kind = json.at("kind").get<std::string>();
  entry.name = json.at("name").get<std::string>();
  entry.shape = json.at("shape").get<std::vector<std::int64_t>>();
  entry.count = 1;
  for (const std::int64_t n : entry.shape) {
    if (n < 0 || static_cast<std::uint64_t>(n) > data_end)
      throw damaged(name, "an array has an impossible shape");
    entry.count *= static_cast<std::uint64_t>(n);
    if (entry.count > data_end) throw damaged(name, "an array is longer than the file");
  }
  const auto offset = json.at("offset").get<std::uint64_t>();
  entry.position = data_begin + offset;
  if (offset > data_end || entry.position + entry.count * sizeof(float) > data_end)
    throw damaged(name, "an array reaches beyond its end");
  return entry;
}

}  // namespace

std::size_t CheckpointView::count() const {
  std::size_t count = 1;
  for (const std::int64_t n : shape) count *= static_cast<std::size_t>(n);
  return count;
}

void for_pieces(const CheckpointView& array, const PieceSource& source,
                const std::function<void(std::span<const float>)>& call) {
  const std::size_t count = array.count();
  for (std::size_t at = 0; at < count; at += kPieceFloats) {
    const std::size_t piece = std::min(kPieceFloats, count - at);
    call(source ? source(array, at, piece) : array.values.subspan(at, piece));
  }
}

std::size_t Snapshot::bytes() const {
  std::size_t bytes = 0;
  for (const CheckpointView& array : arrays) bytes += array.values.size_bytes();
  return bytes;
}

SnapshotCopy::SnapshotCopy(const Snapshot& from) : copy_(from) {
  values_.reserve(from.arrays.size());
  for (CheckpointView& array : copy_.arrays) {
    values_.emplace_back(array.values.begin(), array.values.end());
    array.values = values_.back();
  }
}

std::string write_checkpoint(const std::filesystem::path& path, const Snapshot& snapshot,
                             const PieceSource& source) {
  DurableFile file(path);
  HashedOutput out(file.temporary(), path);
  out.add(first_bytes(snapshot));
  out.pad();
  std::string hashes;
  for (const CheckpointView& array : snapshot.arrays) {
    HashStream hash;
    for_pieces(array, source, [&](std::span<const float> piece) {
      hash.add(bytes_of(piece));
      out.add(bytes_of(piece));
    });
    out.pad();
    hashes += hash.text();
  }
  out.add(hashes);
  std::string whole = out.finish();
  file.publish();
  return whole;
}

const CheckpointReader::Entry* CheckpointReader::find(std::string_view kind, std::string_view name) const {
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.kind == kind && entry.name == name; });
  return at == entries_.end() ? nullptr : &*at;
}

void CheckpointReader::read(const Entry& entry, std::size_t first, std::span<float> values) const {
  const std::size_t end = first + values.size();
  WFLOW_CHECK(end <= entry.count);
  HashStream hash;
  std::vector<float> buffer;  // for pieces that are not wanted as a whole
  for (std::size_t at = 0; at < entry.count; at += kPieceFloats) {
    const std::size_t count = std::min<std::size_t>(kPieceFloats, entry.count - at);
    const bool whole = first <= at && at + count <= end;
    if (!whole) buffer.resize(count);
    const std::span<float> piece = whole ? values.subspan(at - first, count) : std::span(buffer);
    read_piece(entry, at, piece);
    hash.add(bytes_of(piece));
    const std::size_t from = std::max(first, at);
    const std::size_t to = std::min(end, at + count);
    if (!whole && from < to)
      std::ranges::copy(piece.subspan(from - at, to - from), values.subspan(from - first).begin());
  }
  if (!entry.hash.empty() && hash.text() != entry.hash)
    throw damaged(name_, fmt::format("the checksum of {} '{}' does not match", entry.kind, entry.name));
}

CheckpointFile::CheckpointFile(const std::filesystem::path& path) : path_(path) {
  name_ = path.string();
  file_ = open_file(path, O_RDONLY);
  const std::uint64_t size = std::filesystem::file_size(path);
  if (size < kPrefix + kHashLength) throw damaged(name_, "it is too short");
  const std::string prefix = bytes_at(0, kPrefix);
  if (!prefix.starts_with(kMagic)) throw damaged(name_, "it does not begin as a wflow checkpoint does");
  const auto version = get<std::uint32_t>(prefix, 8);
  if (version > static_cast<std::uint32_t>(kCheckpointVersion)) {
    throw Error(ExitCode::version,
                fmt::format("checkpoint {} has format {}, this wflow-train knows {}; use a newer one", name_,
                            version, kCheckpointVersion));
  }
  if (!ends_with_its_hash(path)) throw damaged(name_, "its checksum does not match");
  const std::uint64_t end = size - kHashLength;
  const auto length = get<std::uint64_t>(prefix, 16);
  if (length > end - kPrefix) throw damaged(name_, "its header is cut off");
  try {
    header_ = nlohmann::json::parse(bytes_at(kPrefix, length));
    const nlohmann::json& list = header_.at("arrays");
    const std::uint64_t hashes = version == 1 ? 0 : kHashLength * list.size();
    if (hashes > end) throw damaged(name_, "its checksums are cut off");
    for (const nlohmann::json& json : list)
      entries_.push_back(entry_of(json, round_up(kPrefix + length), end - hashes, name_));
    const std::string text = bytes_at(end - hashes, hashes);
    for (std::size_t i = 0; i < entries_.size() && !text.empty(); ++i)
      entries_[i].hash = text.substr(i * kHashLength, kHashLength);
    header_.erase("arrays");
  } catch (const nlohmann::json::exception& error) {
    throw damaged(name_, error.what());
  }
}

std::string CheckpointFile::bytes_at(std::uint64_t position, std::size_t count) const {
  std::string bytes(count, '\0');
  if (read_at(file_.get(), position, bytes.data(), count, path_) != count)
    throw damaged(name_, "it has become shorter");
  return bytes;
}

void CheckpointFile::read_piece(const Entry& entry, std::size_t first, std::span<float> values) const {
  const std::uint64_t position = entry.position + first * sizeof(float);
  if (read_at(file_.get(), position, values.data(), values.size_bytes(), path_) != values.size_bytes())
    throw damaged(name_, "it has become shorter");
}

std::unique_ptr<SharedCheckpoint> SharedCheckpoint::share(Communicator& communicator,
                                                          std::unique_ptr<CheckpointFile> file) {
  std::string table;
  if (communicator.rank() == 0 && file != nullptr) {
    nlohmann::json entries = nlohmann::json::array();
    for (const Entry& entry : file->entries())
      entries.push_back({entry.kind, entry.name, entry.shape, entry.position, entry.count, entry.hash});
    table = nlohmann::json{{"name", file->name()}, {"header", file->header()}, {"entries", entries}}.dump();
  }
  communicator.broadcast(table);
  if (table.empty()) return nullptr;
  return std::unique_ptr<SharedCheckpoint>(new SharedCheckpoint(communicator, std::move(file), table));
}

SharedCheckpoint::SharedCheckpoint(Communicator& communicator, std::unique_ptr<CheckpointFile> file,
                                   const std::string& table)
    : communicator_(communicator), file_(std::move(file)) {
  const nlohmann::json json = nlohmann::json::parse(table);
  name_ = json.at("name").get<std::string>();
  header_ = json.at("header");
  for (const nlohmann::json& entry : json.at("entries")) {
    entries_.push_back({entry[0].get<std::string>(), entry[1].get<std::string>(),
                        entry[2].get<std::vector<std::int64_t>>(), entry[3].get<std::uint64_t>(),
                        entry[4].get<std::uint64_t>(), entry[5].get<std::string>()});
  }
}

// Rank 0 sends the values, or one byte more and a message.
void SharedCheckpoint::read_piece(const Entry& entry, std::size_t first, std::span<float> values) const {
  if (communicator_.size() == 1) return file_->read_piece(entry, first, values);
  std::string bytes;
  if (communicator_.rank() == 0) {
    try {
      file_->read_piece(entry, first, values);
      bytes = bytes_of(values);
    } catch (const Error& error) {
      bytes.assign(values.size_bytes() + 1, '\0');
      bytes += error.what();
    }
  }
  communicator_.broadcast(bytes);
  if (bytes.size() > values.size_bytes())
    throw CommonError(ExitCode::data, bytes.substr(values.size_bytes() + 1));
  std::memcpy(values.data(), bytes.data(), values.size_bytes());
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

CheckpointDirectory::Written CheckpointDirectory::write(std::int64_t step, const Snapshot& snapshot,
                                                        std::span<const std::int64_t> keep_steps,
                                                        const PieceSource& source) const {
  make_directories(directory_);
  const Written written = {path_of(step), write_checkpoint(path_of(step), snapshot, source)};
  std::vector<std::filesystem::path> kept;
  for (const std::int64_t kept_step : keep_steps) kept.push_back(path_of(kept_step));
  const std::vector<std::filesystem::path> all = files();
  for (std::size_t i = static_cast<std::size_t>(keep_); i < all.size(); ++i) {
    if (std::find(kept.begin(), kept.end(), all[i]) != kept.end()) continue;
    std::error_code ignored;
    std::filesystem::remove(all[i], ignored);
  }
  return written;
}

void CheckpointDirectory::write_best(const Snapshot& snapshot, const PieceSource& source) const {
  make_directories(directory_);
  write_checkpoint(directory_ / kBest, snapshot, source);
}

void CheckpointDirectory::write_beginning(const Snapshot& snapshot, const PieceSource& source) const {
  make_directories(directory_);
  write_checkpoint(directory_ / kBeginning, snapshot, source);
}

void CheckpointDirectory::remove_beginning() const {
  std::error_code ignored;
  std::filesystem::remove(directory_ / kBeginning, ignored);
}

std::unique_ptr<CheckpointFile> CheckpointDirectory::newest(const Report& report, std::int64_t limit) const {
  for (const std::filesystem::path& path : files()) {
    if (limit < kNoLimit && path >= path_of(limit)) continue;
    try {
      return std::make_unique<CheckpointFile>(path);
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
  return nullptr;
}

std::unique_ptr<CheckpointFile> CheckpointDirectory::named(const char* name, const Report& report) const {
  const std::filesystem::path path = directory_ / name;
  if (!std::filesystem::exists(path)) return nullptr;
  try {
    return std::make_unique<CheckpointFile>(path);
  } catch (const Error& error) {
    if (error.code() == ExitCode::version) throw;
    report(error.what());
    return nullptr;
  }
}

std::unique_ptr<CheckpointFile> CheckpointDirectory::best(const Report& report) const {
  return named(kBest, report);
}

std::unique_ptr<CheckpointFile> CheckpointDirectory::beginning(const Report& report) const {
  return named(kBeginning, report);
}

void CheckpointDirectory::remove_from(std::int64_t step) const {
  const std::filesystem::path first = path_of(step);
  for (const std::filesystem::path& path : files()) {
    if (path < first) return;
    std::filesystem::remove(path);
  }
}

void CheckpointDirectory::clear() const {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

}  // namespace wflow::trainer
