// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/git_dependency.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"

namespace wflow::specs {

namespace fs = std::filesystem;

namespace {

// A directory of our own beside the target, removed with what is in it.
class CloneDirectory {
 public:
  explicit CloneDirectory(const fs::path& target) {
    std::string name = (target.parent_path() / ("." + target.filename().string() + ".clone-XXXXXX")).string();
    if (::mkdtemp(name.data()) == nullptr)
      throw system_error(errno, "cannot make a directory beside " + target.string());
    path_ = name;
  }
  CloneDirectory(const CloneDirectory&) = delete;
  CloneDirectory& operator=(const CloneDirectory&) = delete;
  ~CloneDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void run_git(const GitDependency& git, std::vector<std::string> argv) {
  SpawnRequest request;
  request.argv = std::move(argv);
  const CommandResult result = run_command(request);
  if (result.status == 0) return;
  throw Error(ExitCode::system, fmt::format("the dependency '{}' can't be cloned from {}: {}", git.name,
                                            git.url, text::trim(text::tail(result.err, 400))));
}

}  // namespace

void clone_dependency(const GitDependency& git) {
  const fs::path target = fs::path(git.path) / git.name;
  std::error_code error;
  if (fs::exists(target, error)) return;
  make_directories(target.parent_path());
  const CloneDirectory directory(target);
  // Below the private directory, so that git chooses the access rights.
  const fs::path repository = directory.path() / "repository";
  run_git(git, {"git", "clone", "--quiet", "--", git.url, repository.string()});
  if (!git.tag.empty())
    run_git(git, {"git", "-C", repository.string(), "checkout", "--quiet", git.tag, "--"});
  fs::rename(repository, target, error);
  // Another campaign that started at the same time may have been first: its clone is as good.
  const bool other_was_first = error == std::errc::directory_not_empty || error == std::errc::file_exists;
  if (error && !other_was_first)
    throw system_error(error.value(), fmt::format("cannot make {}", target.string()));
}

}  // namespace wflow::specs
