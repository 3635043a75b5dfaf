// SPDX-License-Identifier: Apache-2.0
// Damaged studies: reading any file gives a study or an Error. WFLOW_FUZZ sets the rounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "specs/plan/plan_formats.h"
#include "specs/study/reading.h"

namespace wflow::specs {
namespace {

namespace fs = std::filesystem;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t operator()(std::uint64_t below) { return below == 0 ? 0 : hash64(seed_, next_++) % below; }

 private:
  std::uint64_t seed_;
  std::uint64_t next_ = 0;
};

std::string damaged(std::string text, const std::string& other, Dice& dice) {
  static const std::string kBytes = "$(){}[]:,-*&!|>'\"#%@ \n\t\\~0a.\xff";
  for (std::uint64_t edits = 1 + dice(6); edits > 0; --edits) {
    const std::size_t at = dice(text.size() + 1);
    switch (dice(5)) {
      case 0:
        text.insert(at, 1, kBytes[dice(kBytes.size())]);
        break;
      case 1:
        text.erase(at, 1 + dice(8));
        break;
      case 2:
        if (at < text.size()) text[at] = kBytes[dice(kBytes.size())];
        break;
      case 3:
        text.insert(at, text.substr(dice(text.size() + 1), dice(60)));
        break;
      default:
        text.insert(at, other.substr(dice(other.size() + 1), dice(60)));
    }
  }
  return text;
}

TEST(Fuzz, DamagedStudiesNeverCrash) {
  std::vector<std::string> texts;
  std::uint64_t well_formed = 0;
  for (const char* folder : {"plans", "errors"}) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(fs::path(WFLOW_TESTDATA) / folder)) {
      if (entry.path().extension() == ".yaml") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) texts.push_back(read_file(file));
    if (well_formed == 0) well_formed = texts.size();
  }
  const char* wanted = std::getenv("WFLOW_FUZZ");
  const auto rounds =
      static_cast<std::uint64_t>(wanted == nullptr ? 1500 : text::to_integer(wanted).value_or(1500));
  ReadOptions options;
  options.directory = fs::path(WFLOW_TESTDATA) / "plans";
  std::uint64_t good = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    Dice dice(round);
    const std::string text =
        damaged(texts[dice(dice(4) == 0 ? texts.size() : well_formed)], texts[dice(texts.size())], dice);
    try {
      const auto read = read_study_text(text, options.directory / "fuzz.yaml", "fuzz.yaml", options);
      const Plan plan(read.study, "/campaign");
      EXPECT_FALSE(describe(plan).empty());
      ++good;
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ExitCode::internal) << error.what();
    }
  }
  EXPECT_GT(good, rounds / 50);
}

}  // namespace
}  // namespace wflow::specs
