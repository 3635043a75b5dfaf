// SPDX-License-Identifier: Apache-2.0
#include "steps/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "steps/command.h"
#include "steps/step.h"

namespace wflow::steps {

namespace {

constexpr int kScriptMode = 0755;
constexpr std::string_view kSeal = "wflow lease ";

void require_campaign(const std::string& campaign) {
  if (::access(campaign.c_str(), F_OK) == 0 || errno != ENOENT) return;
  throw Error(ExitCode::system, campaign + " is not there any more: the campaign was moved or removed");
}

// One system call if the parent exists, which is nearly always so.
void make_directory(const std::string& path, const std::string& campaign) {
  if (::mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return;
  require_campaign(campaign);
  make_directories(path);
}

// True if the path is a readable regular file with this text.
bool holds(const NewFile& file) {
  const FileDescriptor fd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (static_cast<std::size_t>(status.st_size) != file.text.size()) return false;
  std::string text(file.text.size(), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = ::pread(fd.get(), text.data() + have, text.size() - have, static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    have += static_cast<std::size_t>(got);
  }
  return text == file.text;
}

// Opens a new file whose name no other process uses: with the host, because the file system may be shared,
// and exclusively, because containers may share host names and process ids.
FileDescriptor open_temporary(const std::string& target, std::string& name) {
  static std::atomic<unsigned> counter{0};
  static const std::string process = host_name() + "." + std::to_string(::getpid());
  for (;;) {
    name = target + ".tmp." + process + "." + std::to_string(counter.fetch_add(1));
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kScriptMode);
    if (fd >= 0) return FileDescriptor(fd);
    if (errno != EINTR && errno != EEXIST) throw system_error(errno, "cannot write " + target);
  }
}

// Other processes see either the old file or the new one. A process that has the old one open goes on reading
// it: bash reads a script while it runs it.
void publish(const NewFile& file) {
  if (holds(file)) return;
  std::string temporary;
  try {
    const FileDescriptor fd = open_temporary(file.path, temporary);
    write_all(fd.get(), file.text, file.path);
    if (::rename(temporary.c_str(), file.path.c_str()) != 0)
      throw system_error(errno, "cannot write " + file.path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

std::uint64_t size_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

std::string tail_of(const std::string& path, std::uint64_t from, std::size_t limit) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  const std::uint64_t size = size_of(path);
  const std::uint64_t start = std::max(from, size > 2 * limit ? size - 2 * limit : 0);
  if (start >= size) return {};
  std::string text(size - start, '\0');
  const ssize_t got = ::pread(fd.get(), text.data(), text.size(), static_cast<off_t>(start));
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text::tail(text, limit);
}

}  // namespace

void write_setup(const ArraySetup& setup, const std::string& campaign) {
  require_campaign(campaign);
  for (const std::string& directory : setup.directories) make_directories(directory);
  for (const NewFile& file : setup.files) publish(file);
}

void write_files(const PreparedTask& task, const std::string& campaign) {
  make_directory(task.directory, campaign);
  for (const NewFile& file : task.files) publish(file);
}

bool mark_finished(const std::string& marker) {
  if (marker.empty()) return true;
  const FileDescriptor fd(::open(marker.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  return static_cast<bool>(fd);
}

bool seal_marker(const std::string& marker, std::uint64_t lease) {
  if (marker.empty()) return true;
  const std::string text = fmt::format("{}{}", kSeal, lease);
  try {
    write_file_durably(marker, fmt::format("{} {}\n", text, hash_bytes(text)));
  } catch (const Error&) {
    return false;
  }
  return true;
}

std::optional<std::uint64_t> sealed_by(const std::string& marker) {
  std::string text;
  try {
    text = read_file(marker);
  } catch (const Error&) {
    return std::nullopt;
  }
  const std::size_t end = text.rfind(' ');
  if (!text.starts_with(kSeal) || end == std::string::npos || end < kSeal.size()) return std::nullopt;
  const std::string sealed = text.substr(0, end);
  std::uint64_t lease = 0;
  const auto parsed = std::from_chars(sealed.data() + kSeal.size(), sealed.data() + sealed.size(), lease);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == sealed.data() + sealed.size();
  return whole && text.substr(end + 1) == hash_bytes(sealed) + "\n" ? std::optional(lease) : std::nullopt;
}

OutputSizes output_sizes(const PreparedTask& task) {
  return {size_of(task.directory + "/" + task.out_file), size_of(task.directory + "/" + task.err_file)};
}

std::string output_tail(const std::string& out_path, const std::string& err_path, const OutputSizes& before,
                        std::size_t limit) {
  std::string text = tail_of(err_path, before.err, limit);
  if (text::trim(text).empty()) text = tail_of(out_path, before.out, limit);
  return text;
}

bool leaves_marker(const specs::TaskTemplate& task) {
  return task.kind == specs::StepKind::shell && task.bundle == 0 && task.output == specs::OutputMode::files;
}

std::filesystem::path finished_marker(const specs::TaskTemplate& task, specs::Element element) {
  return std::filesystem::path(working_directory(task, element)) / kFinishedMarker;
}

namespace {

bool looks_inside(const specs::DeclaredOutput& output) {
  return !output.dataset.empty() || !output.shape.empty() || output.finite;
}

}  // namespace

std::vector<OutputFile> output_files(const specs::TaskTemplate& t, const specs::SampleTable* samples,
                                     const Execution& execution) {
  std::vector<OutputFile> files;
  const std::string directory = working_directory(t, execution.element);
  const std::string path = t.sample_dependent && t.bundle == 0
                               ? specs::sample_path(execution.element, layout_of(t), t.level_max_dirs)
                               : "";
  const BundleRows rows{"", execution.element, execution.count};
  for (const specs::DeclaredOutput& output : t.outputs) {
    const std::string name =
        render(output.file, samples, execution.element, path, t.bundle > 0 ? &rows : nullptr);
    files.push_back({name.starts_with('/') ? name : directory + "/" + name, &output});
  }
  return files;
}

std::string missing_output(const std::vector<OutputFile>& files) {
  for (const OutputFile& file : files) {
    struct stat status {};
    if (::stat(file.path.c_str(), &status) != 0)
      return fmt::format("the declared output {} is not there ({})", file.path, std::strerror(errno));
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
      return fmt::format("the declared output {} is neither a file nor a directory", file.path);
    if (S_ISREG(status.st_mode) && status.st_size == 0)
      return fmt::format("the declared output {} is empty", file.path);
  }
  return {};
}

std::vector<std::string> check_command(const std::vector<OutputFile>& files) {
  nlohmann::json list = nlohmann::json::array();
  for (const OutputFile& file : files) {
    const specs::DeclaredOutput& declared = *file.declared;
    if (!looks_inside(declared)) continue;
    list.push_back({{"file", file.path},
                    {"dataset", declared.dataset},
                    {"shape", declared.shape},
                    {"finite", declared.finite}});
  }
  if (list.empty()) return {};
  return {sibling_program("wflow-convert"), "check", "--list",
          list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

}  // namespace wflow::steps
