// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/task_event.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "base/text.h"
#include "engine/wire/samples_of_messages.h"

namespace wflow::engine::wire {
namespace {

template <class T>
std::optional<T> parsed(std::string_view line) {
  const auto event = parse_event_line(line);
  if (!event) return std::nullopt;
  if constexpr (std::is_same_v<T, SampleReport>) {
    const auto* report = std::get_if<SampleReport>(&*event);
    return report != nullptr ? std::optional(*report) : std::nullopt;
  } else {
    const auto* body = std::get_if<EventBody>(&*event);
    const auto* value = body != nullptr ? std::get_if<T>(body) : nullptr;
    return value != nullptr ? std::optional(*value) : std::nullopt;
  }
}

TEST(TaskEvent, EveryTypeReadsBackFromItsLine) {
  for (const TaskEvent& event : sample_events()) {
    const std::string line = json_of(event.body);
    const auto again = parse_event_line(line);
    ASSERT_TRUE(again) << line;
    ASSERT_TRUE(std::holds_alternative<EventBody>(*again)) << line;
    const EventBody& body = std::get<EventBody>(*again);
    EXPECT_EQ(body.index(), event.body.index()) << line;
    EXPECT_EQ(json_of(body), line);
    EXPECT_EQ(nlohmann::json::parse(line).at("type"), type_of(event.body));
    EXPECT_TRUE(is_wellformed(event));
  }
}

TEST(TaskEvent, NumbersThatJsonDoesNotHaveAreKept) {
  for (const char* value : {"null", "\"NaN\"", "\"nan\"", "NaN"}) {
    const auto metric =
        parsed<Metric>(std::string(R"({"type":"metric","name":"loss","value":)") + value + "}");
    ASSERT_TRUE(metric) << value;
    EXPECT_TRUE(std::isnan(metric->value)) << value;
  }
  for (const char* value : {"\"inf\"", "\"Infinity\"", "Infinity", "\"+inf\""}) {
    const auto metric =
        parsed<Metric>(std::string(R"({"type":"metric","name":"loss","value":)") + value + "}");
    ASSERT_TRUE(metric) << value;
    EXPECT_EQ(metric->value, HUGE_VAL) << value;
  }
  const auto metric = parsed<Metric>(R"({"type":"metric","name":"a NaN \" NaN","value":-Infinity,"step":3})");
  ASSERT_TRUE(metric);
  EXPECT_EQ(metric->value, -HUGE_VAL);
  EXPECT_EQ(metric->name, "a NaN \" NaN");
  EXPECT_EQ(metric->step, 3U);
}

TEST(TaskEvent, ValuesOfAnotherTypeMakeItAnotherEvent) {
  for (const char* line :
       {R"({"type":"metric","name":"loss","value":1,"step":1e300})", R"({"type":"metric","name":"loss"})",
        R"({"type":"metric","name":"loss","value":1,"step":-1})", R"({"type":"metric","name":7,"value":1})",
        R"({"type":"metric","name":"loss","value":true})",
        R"({"type":"metric","name":"loss","value":"much"})",
        R"({"type":"progress","done":18446744073709551615,"total":1})", R"({"type":"progress","done":1.5})",
        R"({"type":"note","text":{"a":1}})", R"({"type":["note"]})", R"({"n":1})"}) {
    const auto other = parsed<OtherEvent>(line);
    ASSERT_TRUE(other) << line;
    EXPECT_EQ(other->json, line);
  }
  EXPECT_EQ(parsed<Progress>(R"({"type":"progress","done":3.0,"total":1e3})")->total, 1000U);
}

TEST(TaskEvent, WhatIsNoObjectIsNoEvent) {
  for (const char* line : {"", "x", "[1]", "7", "{", R"({"type":"note")", R"({"a":1}{"b":2})"})
    EXPECT_FALSE(parse_event_line(line)) << line;
  EXPECT_FALSE(parse_event_line(std::string(kMaxEventLine, '[')));
  EXPECT_FALSE(parse_event_line(R"({"type":"note","text":")" + std::string(kMaxEventLine, 'x') + "\"}"));
}

TEST(TaskEvent, DeepNestingIsKeptAsText) {
  const std::string line =
      R"({"type":"mine","x":)" + std::string(20'000, '[') + std::string(20'000, ']') + "}";
  const auto other = parsed<OtherEvent>(line);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->json, line);
  EXPECT_EQ(other->type, "mine");
}

TEST(TaskEvent, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(parsed<Note>("{\"type\":\"note\",\"text\":\"gr\xfc\xdf\"}")->text, "gr\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(parsed<Note>(R"({"type":"note","text":"a\u0000\u001b[31mb"})")->text, "a?b");
  EXPECT_EQ(parsed<OtherEvent>("{\"type\":\"t\xff\"}")->type, "t\xef\xbf\xbd");
}

TEST(TaskEvent, LongTextsAreCutAtACharacter) {
  std::string text(kMaxEventText - 1, 'x');
  text += "\xc3\xbc and more";
  EXPECT_EQ(parsed<Note>(R"({"type":"note","text":")" + text + "\"}")->text,
            std::string(kMaxEventText - 1, 'x'));
}

TEST(TaskEvent, SampleReportsAreNoEvents) {
  const auto failed = parsed<SampleReport>(
      R"({"type": "sample_failed", "sample": 117, "error": "no root", "exit_code": 104})");
  ASSERT_TRUE(failed);
  EXPECT_FALSE(failed->done);
  EXPECT_EQ(failed->first, 117U);
  EXPECT_EQ(failed->count, 1U);
  EXPECT_EQ(failed->error, "no root");
  EXPECT_EQ(failed->exit_code, 104);
  const auto done = parsed<SampleReport>(R"({"type": "sample_done", "first": 120, "count": 10})");
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->done);
  EXPECT_EQ(done->count, 10U);
  EXPECT_EQ(parsed<SampleReport>(R"({"type":"sample_failed","sample":1,"exit_code":1e99})")->exit_code, 1);
  EXPECT_EQ(parsed<SampleReport>(R"({"type":"sample_failed","sample":1,"exit_code":0})")->exit_code, 1);
  EXPECT_FALSE(parse_event_line(R"({"type":"sample_done","sample":-1})"));
  EXPECT_FALSE(parse_event_line(R"({"type":"sample_done","sample":1e30})"));
}

// Whatever a task writes: no exception, no undefined behaviour, and what comes out can be written as JSON.
TEST(TaskEvent, SurvivesRandomMutation) {
  std::uint64_t counter = 0;
  const auto random = [&](std::uint64_t below) { return hash64(7, counter++) % below; };
  const auto events = sample_events();
  for (int round = 0; round < 20'000; ++round) {
    std::string line = json_of(events[random(events.size())].body);
    for (std::uint64_t change = 0, changes = 1 + random(4); change < changes; ++change)
      line[random(line.size())] = static_cast<char>(random(256));
    const auto event = parse_event_line(line);
    if (!event || !std::holds_alternative<EventBody>(*event)) continue;
    const EventBody& body = std::get<EventBody>(*event);
    EXPECT_TRUE(is_wellformed({0, 0, 0, 1, body})) << line;
    EXPECT_TRUE(is_utf8(json_of(body))) << line;
  }
}

TEST(TaskEvent, AForeignPeersTextsAreLookedAt) {
  EXPECT_FALSE(is_wellformed({0, 0, 0, 1, Note{"\xff"}}));
  EXPECT_FALSE(is_wellformed({0, 0, 0, 1, Note{std::string(kMaxEventText + 1, 'x')}}));
  EXPECT_FALSE(is_wellformed({0, 0, 0, std::nan(""), Note{"x"}}));
  EXPECT_TRUE(is_wellformed({0, 0, 0, 1, Metric{"x", 1, 1, std::nan("")}}));
}

}  // namespace
}  // namespace wflow::engine::wire
