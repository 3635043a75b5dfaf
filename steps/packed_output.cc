// SPDX-License-Identifier: Apache-2.0
#include "steps/packed_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace wflow::steps {

namespace {

constexpr std::size_t kEntryBytes = 56;
constexpr std::size_t kOldEntryBytes = 52;  // in indexes without a header; no checksum of the text
constexpr std::size_t kCountOffset = 44;
// The first entry's place in an index; no sample has this number.
constexpr std::string_view kMagic = "WFLOWIX2";  // ends with the version, 2 to 9
constexpr std::uint64_t kLogBytes = 1 << 30;     // a new pair of files is begun beyond
constexpr std::size_t kCopyBytes = 1 << 20;

static_assert(sizeof(double) == 8);

// Little endian on every machine that this is built for; base/ checks nothing else either.
template <class T>
void put(char*& at, T value) {
  std::memcpy(at, &value, sizeof value);
  at += sizeof value;
}
template <class T>
void take(const char*& at, T& value) {
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
}

std::uint32_t check_of(const char* bytes, std::size_t size) {
  return static_cast<std::uint32_t>(XXH3_64bits(bytes, size));
}

// The checksum of text that comes in parts.
class TextCheck {
 public:
  TextCheck() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }
  void add(std::string_view part) { XXH3_64bits_update(state_.get(), part.data(), part.size()); }
  std::uint32_t value() const { return static_cast<std::uint32_t>(XXH3_64bits_digest(state_.get())); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

// How an index is written.
struct IndexForm {
  std::size_t entry = kEntryBytes;
  std::uint64_t begin = kEntryBytes;  // position of the first entry
};

std::array<char, kEntryBytes> encode(const PackedEntry& entry) {
  std::array<char, kEntryBytes> bytes{};
  char* at = bytes.data();
  put(at, entry.element);
  put(at, entry.lease);
  put(at, entry.offset);
  put(at, entry.ended_s);
  put(at, entry.out_bytes);
  put(at, entry.err_bytes);
  put(at, entry.attempt);
  put(at, entry.count);
  put(at, entry.text_check.value_or(0));
  put(at, check_of(bytes.data(), kEntryBytes - sizeof(std::uint32_t)));
  return bytes;
}

std::optional<PackedEntry> decode(const char* bytes, const IndexForm& form) {
  PackedEntry entry;
  const char* at = bytes;
  take(at, entry.element);
  take(at, entry.lease);
  take(at, entry.offset);
  take(at, entry.ended_s);
  take(at, entry.out_bytes);
  take(at, entry.err_bytes);
  take(at, entry.attempt);
  take(at, entry.count);
  std::uint32_t check = 0;
  if (form.entry == kEntryBytes) take(at, entry.text_check.emplace());
  take(at, check);
  if (check != check_of(bytes, form.entry - sizeof check)) return std::nullopt;
  return entry;
}

std::uint64_t size_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

std::string read_at(int fd, std::uint64_t offset, std::uint64_t size) {
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

IndexForm form_of(int index, const std::filesystem::path& path) {
  const std::string head = read_at(index, 0, kMagic.size());
  if (head == kMagic) return {};
  const bool named = head.size() == kMagic.size() && head.starts_with(kMagic.substr(0, kMagic.size() - 1));
  if (named && head.back() > kMagic.back() && head.back() <= '9')
    throw Error(ExitCode::version,
                fmt::format("{} was written by a newer wflow than this one; use that one", path.string()));
  return {kOldEntryBytes, 0};
}

// Appends a part of a file; gives the bytes written (fewer where somebody has cut it meanwhile).
std::uint64_t copy(int from, std::uint64_t offset, std::uint64_t size, int to,
                   const std::filesystem::path& path, TextCheck& check) {
  std::uint64_t done = 0;
  while (done < size) {
    const std::string part = read_at(from, offset + done, std::min<std::uint64_t>(size - done, kCopyBytes));
    if (part.empty()) break;
    write_all(to, part, path);
    check.add(part);
    done += part.size();
  }
  return done;
}

// Beginning and end of a stream that is too long, and a sentence in the middle.
std::uint64_t copy_stream(int from, std::uint64_t size, int to, const std::filesystem::path& path,
                          TextCheck& check) {
  if (size <= kPackedStreamBytes) return copy(from, 0, size, to, path, check);
  constexpr std::uint64_t kSentence = 256;
  constexpr std::uint64_t kPart = (kPackedStreamBytes - kSentence) / 2;
  std::uint64_t written = copy(from, 0, kPart, to, path, check);
  const std::string sentence = fmt::format("\n[wflow: {} bytes are left out here]\n", size - 2 * kPart);
  write_all(to, sentence, path);
  check.add(sentence);
  written += sentence.size();
  return written + copy(from, size - kPart, kPart, to, path, check);
}

std::filesystem::path file_of(const std::filesystem::path& directory, const std::string& worker,
                              std::uint32_t number, const char* suffix) {
  return directory / fmt::format("{}.{}.{}", worker, number, suffix);
}

}  // namespace

PackWriter::PackWriter(std::filesystem::path directory, std::string worker)
    : directory_(std::move(directory)), worker_(std::move(worker)) {
  make_directories(directory_);
  std::uint32_t last = 0;
  std::error_code unreadable;  // open() then reports the error
  while (std::filesystem::exists(file_of(directory_, worker_, last + 1, "log"), unreadable)) ++last;
  open(last);
  // Leaves a file of an older version as it is.
  if (form_of(index_.get(), file_of(directory_, worker_, last, "index")).entry != kEntryBytes) open(last + 1);
}

void PackWriter::open(std::uint32_t number) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC;
  log_ = open_file(file_of(directory_, worker_, number, "log"), kFlags);
  index_ = open_file(file_of(directory_, worker_, number, "index"), kFlags);
  number_ = number;
  end_ = size_of(log_.get());
  cut_index();  // the writer before may have died within an entry
  if (size_of(index_.get()) > 0) return;
  std::array<char, kEntryBytes> header{};
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  write_all(index_.get(), {header.data(), header.size()}, file_of(directory_, worker_, number_, "index"));
}

// Cuts off an incomplete entry, so that entries begin at multiples of their size.
void PackWriter::cut_index() {
  const std::uint64_t bytes = size_of(index_.get());
  const std::filesystem::path path = file_of(directory_, worker_, number_, "index");
  const std::size_t entry = bytes < kEntryBytes ? kEntryBytes : form_of(index_.get(), path).entry;
  if (bytes % entry != 0 && ::ftruncate(index_.get(), static_cast<off_t>(bytes - bytes % entry)) != 0) {
    throw system_error(errno, "cannot repair " + path.string());
  }
}

void PackWriter::append(PackedEntry entry, const std::string& title, int out, int err) {
  const std::uint64_t out_size = size_of(out);
  const std::uint64_t err_size = size_of(err);
  if (out_size + err_size == 0) return;
  if (end_ >= kLogBytes) open(number_ + 1);
  const std::filesystem::path path = file_of(directory_, worker_, number_, "log");
  const std::string header = (end_ == 0 ? "" : "\n") + title + "\n";
  // An earlier write that failed half way has left bytes that no entry names.
  end_ = size_of(log_.get());
  entry.offset = end_ + header.size();
  TextCheck check;
  if (out_size + err_size <= kCopyBytes) {  // nearly always: one write
    const std::string text = read_at(out, 0, out_size);
    const std::string errors = read_at(err, 0, err_size);
    write_all(log_.get(), header + text + errors, path);
    entry.out_bytes = static_cast<std::uint32_t>(text.size());
    entry.err_bytes = static_cast<std::uint32_t>(errors.size());
    check.add(text);
    check.add(errors);
  } else {
    write_all(log_.get(), header, path);
    entry.out_bytes = static_cast<std::uint32_t>(copy_stream(out, out_size, log_.get(), path, check));
    entry.err_bytes = static_cast<std::uint32_t>(copy_stream(err, err_size, log_.get(), path, check));
  }
  entry.text_check = check.value();
  end_ = entry.offset + entry.out_bytes + entry.err_bytes;
  const auto bytes = encode(entry);
  try {
    write_all(index_.get(), {bytes.data(), bytes.size()}, file_of(directory_, worker_, number_, "index"));
  } catch (const Error&) {  // a full disk may have taken a part of the entry
    cut_index();
    throw;
  }
}

std::filesystem::path packed_directory(const std::filesystem::path& workspace) {
  return workspace / "packed";
}

namespace {

// (worker, lease, attempt). A worker that was killed between entry and result has left its own entry, and
// its guardian has written another; the last one counts.
using Key = std::tuple<std::string, std::uint64_t, std::uint32_t>;

void find_in(const std::filesystem::path& index, specs::Element element,
             std::map<Key, PackedExecution>& found) {
  const FileDescriptor fd = open_file(index, O_RDONLY | O_CLOEXEC);
  const std::string worker = index.stem().stem().string();  // <worker>.<number>.index
  auto log = index;
  log.replace_extension(".log");
  const IndexForm form = form_of(fd.get(), index);
  std::uint64_t offset = form.begin;
  while (true) {
    const std::string bytes = read_at(fd.get(), offset, kCopyBytes / form.entry * form.entry);
    if (bytes.size() < form.entry) return;
    offset += bytes.size();
    for (std::size_t at = 0; at + form.entry <= bytes.size(); at += form.entry) {
      // Does not check the checksum of every entry, because an index may have 10^7.
      specs::Element first = 0;
      std::uint32_t count = 0;
      std::memcpy(&first, bytes.data() + at, sizeof first);
      std::memcpy(&count, bytes.data() + at + kCountOffset, sizeof count);
      if (element - first >= count) continue;  // also where element < first
      const auto entry = decode(bytes.data() + at, form);
      if (!entry) continue;
      found[{worker, entry->lease, entry->attempt}] = {*entry, log};
    }
  }
}

}  // namespace

std::vector<PackedExecution> find_packed(const std::filesystem::path& directory, specs::Element element) {
  std::map<Key, PackedExecution> found;
  std::error_code missing;  // also set if the directory is removed meanwhile
  std::filesystem::directory_iterator file(directory, missing);
  for (; !missing && file != std::filesystem::directory_iterator(); file.increment(missing)) {
    if (file->path().extension() == ".index") find_in(file->path(), element, found);
  }
  std::vector<PackedExecution> executions;
  for (auto& [key, execution] : found) executions.push_back(std::move(execution));
  std::stable_sort(executions.begin(), executions.end(),
                   [](const auto& a, const auto& b) { return a.entry.ended_s < b.entry.ended_s; });
  return executions;
}

PackReader::PackReader(std::filesystem::path directory) : directory_(std::move(directory)) {}

std::vector<PackedExecution> PackReader::news() {
  std::vector<PackedExecution> executions;
  std::error_code missing;  // set until the first task prints
  std::filesystem::directory_iterator file(directory_, missing);
  for (; !missing && file != std::filesystem::directory_iterator(); file.increment(missing)) {
    if (file->path().extension() == ".index") read_index(file->path(), executions);
  }
  return executions;
}

void PackReader::read_index(const std::filesystem::path& index, std::vector<PackedExecution>& executions) {
  std::uint64_t& offset = read_[index.filename().string()];
  const FileDescriptor fd = open_file(index, O_RDONLY | O_CLOEXEC);
  if (size_of(fd.get()) < kOldEntryBytes) return;
  const IndexForm form = form_of(fd.get(), index);
  if (offset == 0) offset = form.begin;
  if (size_of(fd.get()) < offset + form.entry) return;
  auto log = index;
  log.replace_extension(".log");
  const std::string bytes = read_at(fd.get(), offset, size_of(fd.get()) - offset);
  for (std::size_t at = 0; at + form.entry <= bytes.size(); at += form.entry) {
    const auto entry = decode(bytes.data() + at, form);
    // The last entry may be incomplete.
    if (!entry && at + 2 * form.entry > bytes.size()) return;
    offset += form.entry;
    if (entry) executions.push_back({*entry, log});
  }
}

namespace {

// Returns stdout and stderr, which follow each other in the log, as far as they exist.
std::string text_of(int log, const PackedEntry& entry) {
  return read_at(log, entry.offset, std::uint64_t{entry.out_bytes} + entry.err_bytes);
}

bool is_whole(const PackedEntry& entry, const std::string& text) {
  if (text.size() != std::uint64_t{entry.out_bytes} + entry.err_bytes) return false;
  TextCheck check;
  check.add(text);
  return !entry.text_check || check.value() == *entry.text_check;
}

std::string whole_text(const PackedExecution& execution) {
  const FileDescriptor fd = open_file(execution.log, O_RDONLY | O_CLOEXEC);
  std::string text = text_of(fd.get(), execution.entry);
  if (is_whole(execution.entry, text)) return text;
  throw Error(
      ExitCode::data,
      fmt::format("what sample {} printed in attempt {} is damaged: bytes {} to {} of {} are not those that "
                  "were written; its result is not affected",
                  execution.entry.element, execution.entry.attempt, execution.entry.offset,
                  execution.entry.offset + execution.entry.out_bytes + execution.entry.err_bytes,
                  execution.log.string()));
}

// Sentences for one index and its log.
void look_at_index(const std::filesystem::path& index, bool texts, std::vector<std::string>& damage) {
  auto log = index;
  log.replace_extension(".log");
  std::error_code missing;
  if (!std::filesystem::exists(log, missing)) {
    damage.push_back(fmt::format("{} is missing: what its tasks printed is lost", log.string()));
    return;
  }
  const FileDescriptor fd = open_file(index, O_RDONLY | O_CLOEXEC);
  const FileDescriptor log_fd = open_file(log, O_RDONLY | O_CLOEXEC);
  const std::uint64_t size = size_of(log_fd.get());
  const IndexForm form = form_of(fd.get(), index);
  std::uint64_t bad = 0;
  std::uint64_t damaged = 0;
  std::uint64_t end = 0;  // end of the text that entries name
  for (std::uint64_t offset = form.begin;;) {
    const std::string bytes = read_at(fd.get(), offset, kCopyBytes / form.entry * form.entry);
    for (std::size_t at = 0; at + form.entry <= bytes.size(); at += form.entry) {
      const auto entry = decode(bytes.data() + at, form);
      if (!entry) {
        ++bad;
        continue;
      }
      const std::uint64_t last = entry->offset + entry->out_bytes + entry->err_bytes;
      end = std::max(end, last);
      const bool whole = last <= size && (!texts || is_whole(*entry, text_of(log_fd.get(), *entry)));
      damaged += whole ? 0 : 1;
    }
    offset += bytes.size();
    if (bytes.size() < form.entry) break;
  }
  if (bad > 0)
    damage.push_back(fmt::format(
        "{} entries of {} are damaged: what those tasks printed is not found any more", bad, index.string()));
  if (damaged > 0)
    damage.push_back(fmt::format("what {} tasks printed in {} is damaged or cut off", damaged, log.string()));
  // A writer that was killed between text and entry leaves the same; its task has run again.
  if (bad == 0 && end < size)
    damage.push_back(
        fmt::format("the last {} bytes of {} have no entry in {}: its end was cut off, or its worker was "
                    "killed",
                    size - end, log.string(), index.filename().string()));
}

}  // namespace

std::vector<std::string> packed_damage(const std::filesystem::path& directory, bool texts) {
  std::vector<std::string> damage;
  std::error_code missing;
  std::filesystem::directory_iterator file(directory, missing);
  for (; !missing && file != std::filesystem::directory_iterator(); file.increment(missing)) {
    const std::filesystem::path& path = file->path();
    try {
      if (path.extension() == ".index") look_at_index(path, texts, damage);
    } catch (const Error& error) {
      damage.emplace_back(error.what());  // of a newer version
    }
    auto index = path;
    index.replace_extension(".index");
    std::error_code none;
    if (path.extension() == ".log" && !std::filesystem::exists(index, none))
      damage.push_back(fmt::format("{} is missing: the text of its tasks is in {}, without their numbers",
                                   index.string(), path.filename().string()));
  }
  std::sort(damage.begin(), damage.end());
  return damage;
}

std::string packed_out(const PackedExecution& execution) {
  return whole_text(execution).substr(0, execution.entry.out_bytes);
}

std::string packed_err(const PackedExecution& execution) {
  return whole_text(execution).substr(execution.entry.out_bytes);
}

}  // namespace wflow::steps
