// SPDX-License-Identifier: Apache-2.0
// Studies beside the exact text expected of them. WFLOW_RENEW=1 rewrites the expected texts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "specs/plan/plan.h"
#include "specs/plan/workspace.h"
#include "specs/study/study.h"

namespace wflow::specs {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> studies(const std::string& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(fs::path(WFLOW_TESTDATA) / folder)) {
    if (entry.path().extension() == ".yaml") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Messages name files; the checkout may be anywhere.
std::string without_place(std::string text) {
  for (const std::string& place : {std::string(WFLOW_TESTDATA), fs::canonical(WFLOW_TESTDATA).string()}) {
    for (std::size_t at = text.find(place); at != std::string::npos; at = text.find(place, at)) {
      text.replace(at, place.size(), "<testdata>");
    }
  }
  return text;
}

void compare(const fs::path& study, std::string found) {
  found = without_place(found);
  fs::path beside = study;
  beside.replace_extension(".expected");
  if (std::getenv("WFLOW_RENEW") != nullptr) {
    write_file_durably(beside, found);
    return;
  }
  ASSERT_TRUE(fs::exists(beside)) << beside << " is missing; WFLOW_RENEW=1 writes it";
  EXPECT_EQ(read_file(beside), found) << study;
}

ReadOptions options_for(const fs::path& study) {
  ReadOptions options;
  options.directory = study.parent_path();
  return options;
}

std::string warnings_of(const StudyAndWarnings& read) {
  std::string text;
  for (const yaml::Diagnostic& warning : read.warnings) text += warning.to_string() + "\n";
  return text;
}

TEST(Errors, ReadAsExpected) {
  for (const fs::path& study : studies("errors")) {
    std::string found;
    try {
      const StudyAndWarnings read = read_study(study, options_for(study));
      found = warnings_of(read) + "(no error)\n";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::spec) << study;
      found = std::string(error.what()) + "\n";
    }
    compare(study, found);
  }
}

TEST(Plans, ReadAsExpected) {
  for (const fs::path& study : studies("plans")) {
    std::string found;
    try {
      const StudyAndWarnings read = read_study(study, options_for(study));
      found = warnings_of(read) + describe(Plan(read.study, campaign_directory(read.study, "")));
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
      continue;
    }
    compare(study, found);
  }
}

}  // namespace
}  // namespace wflow::specs
