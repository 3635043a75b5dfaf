// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/staging.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "converters/shards/shard_file.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;
using converters::FieldLayout;
using converters::ShardContents;

constexpr std::size_t kCopyBytes = 4 << 20;  // a read from the shared file system
constexpr rlim_t kOtherFiles = 256;          // descriptors for libraries

std::string path_of(pid_t pid, int fd) {
  return fmt::format("/proc/{}/fd/{}", pid, fd);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

void put(std::string& bytes, std::uint64_t number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}
std::uint64_t take(std::string_view& bytes) {
  std::uint64_t number = 0;
  WFLOW_CHECK(bytes.size() >= sizeof number);
  std::memcpy(&number, bytes.data(), sizeof number);
  bytes.remove_prefix(sizeof number);
  return number;
}

class RemoteBytes final : public converters::ShardBytes {
 public:
  RemoteBytes(FetchService& service, std::size_t owner, std::uint64_t file)
      : service_(service), owner_(static_cast<int>(owner)), file_(file) {}
  void read(std::span<const converters::ByteRange> ranges) const override {
    std::vector<RemoteRange> wanted;
    for (const converters::ByteRange& range : ranges) wanted.push_back({range.offset, range.to});
    service_.fetch(owner_, file_, wanted);
  }

 private:
  FetchService& service_;
  int owner_;
  std::uint64_t file_;
};

// Raises the limit above its default of 1,024 if there are more shards. If that is not allowed, opening fails
// later with a message.
void allow_open_files(std::size_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count + kOtherFiles) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, count + kOtherFiles);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct Staging::Copy {
  std::string file;  // relative to the data
  std::uint64_t bytes = 0;
  std::size_t owner = 0;
  std::uint64_t number = 0;  // index among the owner's copies
  ShardContents contents;
  // At its owner, for other ranks of the node.
  std::uint64_t pid = 0;
  std::uint64_t fd = 0;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
};

struct Staging::Files {
  std::vector<FileDescriptor> fds;
  bool read(std::uint64_t file, std::uint64_t offset, std::span<std::uint8_t> to) const {
    try {
      return file < fds.size() &&
             read_at(fds[file].get(), offset, to.data(), to.size(), "the staged copy") == to.size();
    } catch (const Error&) {
      return false;
    }
  }
};

std::vector<std::size_t> groups_of(std::span<const std::string> hosts, std::size_t ranks_per_group) {
  std::map<std::pair<std::string, std::size_t>, std::size_t> known;
  std::map<std::string, std::size_t> ranks;
  std::vector<std::size_t> groups;
  for (const std::string& host : hosts) {
    const std::size_t on_host = ranks[host]++;
    const std::size_t part = ranks_per_group > 0 ? on_host / ranks_per_group : 0;
    groups.push_back(known.try_emplace({host, part}, known.size()).first->second);
  }
  return groups;
}

std::size_t ranks_per_group() {
  const char* text = std::getenv("WFLOW_RANKS_PER_GROUP");
  if (text == nullptr) return 0;
  return static_cast<std::size_t>(std::max<std::int64_t>(0, text::to_integer(text).value_or(0)));
}

std::vector<std::size_t> owners_of(std::span<const std::uint64_t> shard_bytes,
                                   std::span<const std::size_t> groups) {
  std::vector<std::uint64_t> of_rank(groups.size(), 0);
  std::vector<std::uint64_t> of_group(groups.size(), 0);
  std::vector<std::size_t> owners;
  for (const std::uint64_t bytes : shard_bytes) {
    std::size_t best = 0;
    for (std::size_t rank = 1; rank < groups.size(); ++rank) {
      if (std::tuple(of_group[groups[rank]], of_rank[rank]) <
          std::tuple(of_group[groups[best]], of_rank[best]))
        best = rank;
    }
    of_rank[best] += bytes;
    of_group[groups[best]] += bytes;
    owners.push_back(best);
  }
  return owners;
}

Staging::Staging(const TrainConfig& config, Communicator& communicator)
    : config_(config),
      manifest_(converters::read_manifest(config.data)),
      communicator_(communicator),
      space_(config),
      files_(std::make_shared<Files>()) {
  const auto begin = std::chrono::steady_clock::now();
  plan();
  check_room();
  reserve();
  copy();
  share();
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Staging::~Staging() = default;

fs::path Staging::source(const Copy& copy) const {
  return fs::path(config_.data) / copy.file;
}
bool Staging::is_own(const Copy& copy) const {
  return copy.owner == static_cast<std::size_t>(communicator_.rank());
}

void Staging::plan() {
  hosts_ = communicator_.all_gather(host_name());
  groups_ = groups_of(hosts_, ranks_per_group());
  report_.groups = *std::max_element(groups_.begin(), groups_.end()) + 1;
  std::vector<std::uint64_t> bytes;
  for (const auto& [split, entry] : manifest_.splits) {
    for (const converters::ShardEntry& shard : entry.shards) {
      Copy& copy = copies_.emplace_back();
      copy.file = shard.file;
      copy.bytes = shard.bytes;
      bytes.push_back(shard.bytes);
    }
  }
  const std::vector<std::size_t> owners = owners_of(bytes, groups_);
  std::vector<std::uint64_t> owned(groups_.size(), 0);
  for (std::size_t k = 0; k < copies_.size(); ++k) {
    copies_[k].owner = owners[k];
    copies_[k].number = owned[owners[k]]++;
    report_.bytes += bytes[k];
    if (is_own(copies_[k])) report_.own_bytes += bytes[k];
  }
  report_.shards = copies_.size();
  allow_open_files(2 * copies_.size());
}

// Uses the manifest's sizes, before anything is read.
void Staging::check_room() {
  space_.check(communicator_, report_.own_bytes, "shards",
               {"use more nodes, 'stage: local' or 'stage: none'",
                "use more nodes, another folder (stage: {local: FOLDER}) or 'stage: none'"});
}

void Staging::reserve() {
  agree(communicator_, failure_of([&] {
          for (Copy& copy : copies_) {
            if (!is_own(copy)) continue;
            std::error_code failed;
            copy.bytes = fs::file_size(source(copy), failed);
            if (failed)
              throw Error(ExitCode::data,
                          fmt::format("cannot read {}: {}", source(copy).string(), failed.message()));
            files_->fds.push_back(space_.file(
                copy.bytes,
                fmt::format("the {} of {}", text::format_bytes(copy.bytes), source(copy).string())));
          }
        }));
}

void Staging::copy() {
  std::vector<char> buffer(kCopyBytes);
  agree(communicator_, failure_of([&] {
          for (const Copy& copy : copies_) {
            if (!is_own(copy)) continue;
            const fs::path path = source(copy);
            const FileDescriptor from = open_file(path, O_RDONLY);
            ::posix_fadvise(from.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
            for (std::uint64_t at = 0; at < copy.bytes;) {
              const std::size_t want = std::min<std::uint64_t>(kCopyBytes, copy.bytes - at);
              if (read_at(from.get(), at, buffer.data(), want, path) < want)
                throw Error(ExitCode::data,
                            fmt::format("{} is shorter than when staging began", path.string()));
              write_all(files_->fds[copy.number].get(), {buffer.data(), want}, "a staged shard");
              at += want;
            }
            // These pages are not read again.
            ::posix_fadvise(from.get(), 0, 0, POSIX_FADV_DONTNEED);
          }
        }));
}

// Broadcasts the contents of each shard, as its owner read them with HDF5.
void Staging::share() {
  std::uint64_t rounds = 0;
  for (const Copy& copy : copies_) rounds = std::max(rounds, copy.number + 1);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::string bytes;
    agree(communicator_, failure_of([&] {
            for (const Copy& copy : copies_)
              if (is_own(copy) && copy.number == round) bytes = description_of(copy);
          }));
    const std::vector<std::string> parts = communicator_.all_gather(bytes);
    for (Copy& copy : copies_) {
      if (copy.number != round) continue;
      std::string_view part = parts[copy.owner];
      for (std::uint64_t* number : {&copy.bytes, &copy.pid, &copy.fd, &copy.device, &copy.inode})
        *number = take(part);
      copy.contents = converters::decode_contents(part);
    }
  }
  if (communicator_.size() == 1) return;
  service_ = std::make_unique<FetchService>(
      communicator_, [files = files_](std::uint64_t file, std::uint64_t offset, std::span<std::uint8_t> to) {
        return files->read(file, offset, to);
      });
}

// Location of one of this rank's copies, and the contents of the shard.
std::string Staging::description_of(const Copy& copy) const {
  const int fd = files_->fds[copy.number].get();
  const std::string staged = path_of(::getpid(), fd);
  ShardContents contents;
  try {
    contents = converters::read_shard_contents(staged, manifest_);
  } catch (const Error& error) {
    throw Error(error.code(), replaced(error.what(), staged, source(copy).string()));
  }
  for (const FieldLayout& field : contents.layout.fields) {
    if (field.access == FieldLayout::Access::direct) continue;
    throw Error(ExitCode::data,
                fmt::format("{} was rewritten by another tool, so that only HDF5 can read its "
                            "/{}: use 'stage: none', or convert again",
                            source(copy).string(), field.name));
  }
  struct stat about {};
  if (::fstat(fd, &about) != 0) throw system_error(errno, "cannot look at a staged shard");
  std::string bytes;
  for (const std::uint64_t number :
       {copy.bytes, static_cast<std::uint64_t>(::getpid()), static_cast<std::uint64_t>(fd),
        static_cast<std::uint64_t>(about.st_dev), static_cast<std::uint64_t>(about.st_ino)})
    put(bytes, number);
  return bytes + converters::encode_contents(contents);
}

// The copy itself if it is on this node and /proc leads to this very file (in another process namespace the
// numbers differ); else a reader that requests it from its owner.
std::unique_ptr<converters::ShardBytes> Staging::bytes_of(const Copy& copy) const {
  const auto own = static_cast<std::size_t>(communicator_.rank());
  if (groups_[copy.owner] == groups_[own]) {
    const std::string path = path_of(static_cast<pid_t>(copy.pid), static_cast<int>(copy.fd));
    FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat found {};
    if (fd && ::fstat(fd.get(), &found) == 0 && found.st_dev == copy.device && found.st_ino == copy.inode)
      return std::make_unique<converters::FileBytes>(source(copy), std::move(fd));
    if (is_own(copy)) throw system_error(errno, "cannot open the staged copy of " + copy.file);
  }
  return std::make_unique<RemoteBytes>(*service_, copy.owner, copy.number);
}

converters::SplitReader Staging::open(std::string_view split) {
  const auto opener = [this](const converters::ShardEntry& shard) {
    const auto copy = std::find_if(copies_.begin(), copies_.end(),
                                   [&](const Copy& candidate) { return candidate.file == shard.file; });
    WFLOW_CHECK(copy != copies_.end());
    return converters::OpenedShard{std::move(copy->contents), bytes_of(*copy)};
  };
  return converters::SplitReader::open_with(config_.data, manifest_, split, opener);
}

Dataset Staging::open_dataset() {
  return trainer::open_dataset(config_.data, manifest_,
                               [this](std::string_view split) { return open(split); });
}

std::uint64_t Staging::fetched_bytes() const {
  return service_ ? service_->fetched_bytes() : 0;
}

}  // namespace wflow::trainer
