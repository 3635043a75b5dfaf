// SPDX-License-Identifier: Apache-2.0
#include "base/events.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

namespace wflow {
namespace {

TEST(EventWriter, AppendsOneJsonLineAnEvent) {
  const std::string path = ::testing::TempDir() + "/events.jsonl";
  std::filesystem::remove(path);
  EventWriter writer(path);
  writer.progress(3, 10, "samples");
  writer.metric("validation_loss", 0.5, 2, 40);
  EventWriter(path).note("two\nlines");
  EventWriter(path).artifact("model", "runs/../model.pt");
  const std::string text = read_file(path);
  std::vector<nlohmann::json> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(nlohmann::json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["done"], 3);
  EXPECT_EQ(lines[1]["name"], "validation_loss");
  EXPECT_EQ(lines[2]["text"], "two\nlines");
  EXPECT_EQ(lines[3]["path"], (std::filesystem::current_path() / "model.pt").string());
}

TEST(EventWriter, WithoutAFileDoesNothing) {
  EventWriter writer("");
  writer.progress(1, 2, "epochs");
}

}  // namespace
}  // namespace wflow
