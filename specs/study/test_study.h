// SPDX-License-Identifier: Apache-2.0
// Helpers of the tests of this folder: a temporary folder, and studies given as text.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "specs/plan/plan.h"
#include "specs/study/study.h"

namespace wflow::specs {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "wflow-specs-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error(ExitCode::system, "no temporary folder");
    path_ = std::filesystem::canonical(name);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// Reads `text` as a file study.yaml of its own folder.
class StudyText {
 public:
  explicit StudyText(std::string_view text) : file_(folder_.write("study.yaml", text)) {
    options.directory = folder_.path();
  }
  StudyAndWarnings read() const { return read_study(file_, options); }
  Study study() const { return read().study; }
  Plan plan() const { return Plan(study(), "/campaign"); }
  // The error's text; empty if the study is valid.
  std::string error() const {
    try {
      read();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  const TemporaryFolder& folder() const { return folder_; }
  const std::filesystem::path& file() const { return file_; }
  ReadOptions options;

 private:
  TemporaryFolder folder_;
  std::filesystem::path file_;
};

inline std::size_t planned(const Plan& plan, std::string_view name) {
  for (std::size_t i = 0; i < plan.steps().size(); ++i) {
    if (plan.steps()[i].name == name) return i;
  }
  throw Error(ExitCode::internal, "no step " + std::string(name));
}

}  // namespace wflow::specs
