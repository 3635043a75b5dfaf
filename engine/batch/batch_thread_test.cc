// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/batch_thread.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <stdexcept>

namespace wflow::engine::batch {

namespace {

// Answers at once; "broken" throws.
class FakeSystem : public BatchSystem {
 public:
  explicit FakeSystem(bool broken) : broken_(broken) {}
  std::string_view name() const override { return "fake"; }
  std::string script(const JobRequest&) const override { return {}; }
  Submission submit(const JobRequest& request) override {
    if (broken_) throw std::runtime_error("no directory");
    return {"id-" + request.token, Submission::Refusal::none, {}};
  }
  JobList query(const std::string& prefix) override {
    if (broken_) throw std::runtime_error("no answer");
    JobList list;
    list.answered = true;
    list.jobs.emplace_back().token = prefix + "1";
    return list;
  }
  std::optional<std::string> cancel(const std::vector<std::string>&) override {
    if (broken_) throw std::runtime_error("no cancel");
    return std::nullopt;
  }
  std::optional<double> ends_unix_s() override { return std::nullopt; }
  std::optional<std::string> check() override { return std::nullopt; }

 private:
  bool broken_;
};

BatchThread::Factory fakes() {
  return [](std::string_view name) -> std::unique_ptr<BatchSystem> {
    if (name == "nosuch") return nullptr;
    return std::make_unique<FakeSystem>(name == "broken");
  };
}

std::vector<BatchReply> replies(BatchThread& thread, std::size_t count) {
  std::vector<BatchReply> all;
  while (all.size() < count) {
    pollfd ready{thread.descriptor(), POLLIN, 0};
    constexpr int kLong_ms = 60'000;
    if (::poll(&ready, 1, kLong_ms) != 1) break;
    for (BatchReply& reply : thread.take()) all.push_back(std::move(reply));
  }
  return all;
}

JobRequest job(const std::string& token) {
  JobRequest request;
  request.token = token;
  return request;
}

TEST(BatchThread, AnswersInOrder) {
  BatchThread thread(fakes());
  thread.call(SubmitCall{"fake", job("w1")});
  thread.call(QueryCall{"fake", "w"});
  thread.call(CancelCall{"fake", {"id-w1"}});
  const auto all = replies(thread, 3);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(std::get<SubmitReply>(all[0]).token, "w1");
  EXPECT_EQ(std::get<SubmitReply>(all[0]).submission.id, "id-w1");
  EXPECT_TRUE(std::get<QueryReply>(all[1]).list.answered);
  EXPECT_EQ(std::get<QueryReply>(all[1]).list.jobs.at(0).token, "w1");
  EXPECT_EQ(std::get<CancelReply>(all[2]).error, std::nullopt);
  EXPECT_EQ(std::get<CancelReply>(all[2]).ids, std::vector<std::string>{"id-w1"});
}

TEST(BatchThread, WhatACallThrowsIsItsAnswer) {
  BatchThread thread(fakes());
  thread.call(SubmitCall{"broken", job("w1")});
  thread.call(QueryCall{"broken", "w"});
  thread.call(CancelCall{"broken", {"1"}});
  thread.call(QueryCall{"nosuch", "w"});
  const auto all = replies(thread, 4);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(std::get<SubmitReply>(all[0]).submission.refusal, Submission::Refusal::wait);
  EXPECT_EQ(std::get<SubmitReply>(all[0]).submission.text, "no directory");
  EXPECT_FALSE(std::get<QueryReply>(all[1]).list.answered);
  EXPECT_EQ(std::get<CancelReply>(all[2]).error, "no cancel");
  EXPECT_NE(std::get<QueryReply>(all[3]).list.text.find("'nosuch'"), std::string::npos);
}

TEST(BatchThread, EndsWithCallsThatWereNotMade) {
  BatchThread thread(fakes());
  for (int i = 0; i < 1000; ++i) thread.call(QueryCall{"fake", "w"});
}

}  // namespace

}  // namespace wflow::engine::batch
