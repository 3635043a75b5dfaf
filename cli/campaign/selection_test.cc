// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/selection.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "cli/campaign/where.h"

namespace wflow::cli {
namespace {

namespace wire = engine::wire;

// Scattered failures that --where selects are one part each: five million do not fit into one message.
TEST(Selection, GoesOutInMessagesThatAreNotTooLarge) {
  wire::Selection selection;
  selection.chosen = true;
  for (specs::Element element = 0; element < 7; ++element)
    selection.parts.push_back({1, 2 * element, 2 * element});
  const auto messages = in_messages(selection, 3);
  ASSERT_EQ(messages.size(), 3U);
  std::vector<specs::Element> all;
  for (const wire::Selection& message : messages) {
    EXPECT_TRUE(message.chosen);
    EXPECT_LE(message.parts.size(), 3U);
    for (const wire::Part& part : message.parts) all.push_back(part.first);
  }
  EXPECT_EQ(all, (std::vector<specs::Element>{0, 2, 4, 6, 8, 10, 12}));
}

TEST(Selection, IsOneMessageWhereItNamesAStepOrChoseNothing) {
  wire::Selection step;
  step.step = "simulate";
  EXPECT_EQ(in_messages(step, 3).size(), 1U);
  wire::Selection nothing;
  nothing.chosen = true;
  ASSERT_EQ(in_messages(nothing, 3).size(), 1U) << "which is not all";
  EXPECT_TRUE(in_messages(nothing, 3).front().chosen);
}

using Kind = WhereField::Kind;
using Values = std::map<std::string, WhereValue>;

const std::vector<WhereField>& fields() {
  static const std::vector<WhereField> kFields = {{"step", Kind::text, {"simulate", "train"}},
                                                  {"state", Kind::text, {"done", "failed", "running"}},
                                                  {"worker", Kind::text, {}},
                                                  {"sample", Kind::number, {}},
                                                  {"exit_code", Kind::number, {}},
                                                  {"omega_m", Kind::cell, {}},
                                                  {"kind", Kind::cell, {}},
                                                  {"memory", Kind::bytes, {}},
                                                  {"time", Kind::seconds, {}}};
  return kFields;
}

Truth evaluate(std::string_view text, const Values& values) {
  return Where(text, fields()).evaluate([&](std::size_t index) {
    const auto at = values.find(fields()[index].name);
    return at == values.end() ? WhereValue() : at->second;
  });
}

std::string error_of(std::string_view text) {
  try {
    const Where where(text, fields());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "no error";
}

const Values kFailed = {{"step", "simulate"}, {"state", "failed"}, {"sample", 12.0},
                        {"exit_code", 3.0},   {"omega_m", "0.31"}, {"kind", "odd"}};

TEST(Where, Comparisons) {
  for (const char* text :
       {"omega_m > 0.3", "omega_m>=0.31", "omega_m <= .31", "sample = 12", "sample == 12", "sample != 13",
        "sample < 1e2", "exit_code > -1", "state = failed", "state = 'failed'", "state != \"done\"",
        "kind = odd", "kind = 'odd'", "sample in (1, 12)", "state in (failed, running)",
        "state not in (done, running)", "sample in [1, 12]", "exit_code < sample", "sample > omega_m"}) {
    EXPECT_EQ(evaluate(text, kFailed), Truth::yes) << text;
  }
  for (const char* text :
       {"omega_m > 0.31", "sample = 13", "state = done", "sample in (1, 2)", "kind = even"}) {
    EXPECT_EQ(evaluate(text, kFailed), Truth::no) << text;
  }
}

TEST(Where, UnitsOfTimesAndBytes) {
  const Values values = {{"memory", 2e9}, {"time", 90.0}};
  for (const char* text : {"memory > 1e9", "memory > 1GiB", "memory < 2GiB", "time > 60", "time > 1min",
                           "time <= 1.5min", "memory > 500MiB and time < 2h"}) {
    EXPECT_EQ(evaluate(text, values), Truth::yes) << text;
  }
  EXPECT_EQ(evaluate("memory > 2GiB", values), Truth::no);
  EXPECT_EQ(evaluate("time > 60", {}), Truth::unknown);
}

TEST(Where, AndBindsTighterThanOr) {
  EXPECT_EQ(evaluate("state = failed or state = done and sample = 0", kFailed), Truth::yes);
  EXPECT_EQ(evaluate("(state = failed or state = done) and sample = 0", kFailed), Truth::no);
  EXPECT_EQ(evaluate("not state = done AND not (sample = 0 OR sample = 1)", kFailed), Truth::yes);
  EXPECT_EQ(evaluate("not not sample = 12", kFailed), Truth::yes);
}

TEST(Where, WhatIsNotKnownDecidesNothing) {
  EXPECT_EQ(evaluate("worker = w1", kFailed), Truth::unknown);
  EXPECT_EQ(evaluate("not worker = w1", kFailed), Truth::unknown);
  EXPECT_EQ(evaluate("worker = w1 and state = done", kFailed), Truth::no);
  EXPECT_EQ(evaluate("worker = w1 or state = failed", kFailed), Truth::yes);
  EXPECT_EQ(evaluate("kind > 3", kFailed), Truth::unknown);
  EXPECT_EQ(evaluate("worker not in (w1, w2)", kFailed), Truth::unknown);
}

TEST(Where, Errors) {
  EXPECT_EQ(error_of("omega_n > 0.3"),
            "--where, column 1: no field 'omega_n'; did you mean 'omega_m'? there are "
            "step, state, worker, sample, exit_code, omega_m, kind, memory, time");
  EXPECT_EQ(error_of("state = faild"), "--where, column 9: no state 'faild'; did you mean 'failed'?");
  EXPECT_EQ(error_of("omega_m > "), "--where, column 11: expected a value, found the end");
  EXPECT_EQ(error_of("omega_m ~ 3"), "--where, column 9: expected one of = != < <= > >= in, found '~'");
  EXPECT_EQ(error_of("(sample = 1"), "--where, column 12: expected ')', found the end");
  EXPECT_EQ(error_of("sample = 1 sample = 2"),
            "--where, column 12: expected 'and', 'or' or the end, found 'sample'");
  EXPECT_EQ(error_of("sample = 'x'"), "--where, column 10: sample is a number, 'x' is not");
  EXPECT_EQ(error_of("state = 'done"), "--where, column 9: this text has no closing quote");
  EXPECT_EQ(error_of(""), "--where, column 1: expected a field (state, sample, ...), found the end");
  EXPECT_EQ(error_of("3 = sample"), "--where, column 1: expected a field (state, sample, ...), found '3'");
  EXPECT_EQ(error_of("zzzzzz = 1"),
            "--where, column 1: no field 'zzzzzz'; there are step, state, worker, sample, exit_code, "
            "omega_m, kind, memory, time");
  EXPECT_EQ(error_of("memory > 10min"),
            "--where, column 10: memory is a number of bytes (1e9, 2GiB), '10min' is not");
  EXPECT_NE(error_of(std::string(100000, '(')).find("too many parentheses"), std::string::npos);
}

}  // namespace
}  // namespace wflow::cli
