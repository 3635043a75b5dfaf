// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/event_tail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/wire/temporary_campaign.h"

namespace wflow::workers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string line_of(char letter, std::size_t count) {
  std::string text(count + 1, letter);
  text.back() = '\n';
  return text;
}

class EventTailTest : public ::testing::Test {
 protected:
  void append(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }
  std::vector<std::string> read(bool at_end = false) { return read_events(path_, tail_, at_end); }

  engine::wire::TemporaryCampaign directory_;
  std::string path_ = (directory_.path() / "slot-0.events").string();
  EventTail tail_;
};

TEST_F(EventTailTest, GivesWholeLinesOnce) {
  EXPECT_THAT(read(), IsEmpty());
  append("one\ntwo\nthr");
  EXPECT_THAT(read(), ElementsAre("one", "two"));
  EXPECT_THAT(read(), IsEmpty());
  append("ee\n\nfour\n");
  EXPECT_THAT(read(), ElementsAre("three", "four"));
}

TEST_F(EventTailTest, GivesTheLastLineAtTheEnd) {
  append("one\ntwo");
  EXPECT_THAT(read(), ElementsAre("one"));
  EXPECT_THAT(read(true), ElementsAre("two"));
  EXPECT_THAT(read(true), IsEmpty());
  EXPECT_EQ(tail_.offset, 7U);
}

TEST_F(EventTailTest, LeavesOutLinesThatAreTooLong) {
  append("before\n" + std::string(kMaxEventLine + 1, 'x'));
  EXPECT_THAT(read(), ElementsAre("before"));
  append(std::string(10, 'x'));
  EXPECT_THAT(read(), IsEmpty());
  append("\nafter\n");
  EXPECT_THAT(read(), ElementsAre("after"));
  append(line_of('y', kMaxEventLine));
  EXPECT_EQ(read().at(0).size(), kMaxEventLine);
  append(line_of('z', 3 << 20) + "end\n");
  EXPECT_THAT(read(true), ElementsAre("end"));
}

TEST_F(EventTailTest, ParsesEventsAndCountsWhatIsNone) {
  append(R"({"type":"note","text":"a"})"
         "\nno event\n"
         R"({"type":"sample_done","sample":1})"
         "\n{\"n\":1}\n");
  append(line_of('x', kMaxEventLine + 1));
  const auto bodies = read_event_bodies(path_, tail_, false);
  ASSERT_EQ(bodies.size(), 2U);
  EXPECT_EQ(std::get<engine::wire::Note>(bodies[0]).text, "a");
  EXPECT_EQ(std::get<engine::wire::OtherEvent>(bodies[1]).json, "{\"n\":1}");
  EXPECT_EQ(tail_.dropped, 2U);
}

TEST_F(EventTailTest, ReadsFilesLargerThanItsBuffer) {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += std::to_string(i) + "\n";
  append(text);
  EXPECT_EQ(read(true).size(), 300'000U);
}

}  // namespace
}  // namespace wflow::workers
