// SPDX-License-Identifier: Apache-2.0
// Calls of batch schedulers beside the coordinator's loop: each may take half a minute. One at a time, in
// order; the calls of a campaign are few.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/loop_inputs.h"
#include "engine/batch/batch_system.h"

namespace wflow::engine::batch {

struct SubmitCall {
  std::string scheduler;
  JobRequest job;
};
struct CancelCall {
  std::string scheduler;
  std::vector<std::string> ids;
};
struct QueryCall {
  std::string scheduler, prefix;
  std::string directory = {};  // with the jobs' output, which may explain their end; empty: do not read it
};
using BatchCall = std::variant<SubmitCall, CancelCall, QueryCall>;

struct SubmitReply {
  std::string token;
  Submission submission;
};
struct CancelReply {
  std::string scheduler;
  std::vector<std::string> ids;
  std::optional<std::string> error;
};
struct QueryReply {
  std::string scheduler;
  JobList list;
};
using BatchReply = std::variant<SubmitReply, CancelReply, QueryReply>;

// The line in a job's output that reports a kill for memory by the scheduler; empty if there is none.
std::string memory_kill_of(std::string_view output);

class BatchThread {
 public:
  using Factory = std::function<std::unique_ptr<BatchSystem>(std::string_view scheduler)>;
  explicit BatchThread(Factory make = make_batch_system) : make_(std::move(make)) {}
  // The end waits for the call that is under way; those behind it are not made.
  BatchThread(const BatchThread&) = delete;
  BatchThread& operator=(const BatchThread&) = delete;

  void call(BatchCall call);
  // Readable when a call has been answered.
  int descriptor() const { return thread_.descriptor(); }
  std::vector<BatchReply> take();

 private:
  BatchReply answer(const SubmitCall& call);
  BatchReply answer(const CancelCall& call);
  BatchReply answer(const QueryCall& call);
  void look_at_output(JobList& list, const std::string& directory);
  BatchSystem& system(const std::string& scheduler);

  Factory make_;
  std::map<std::string, std::unique_ptr<BatchSystem>> systems_;  // the thread's own
  std::set<std::string> looked_at_;                              // tokens and starts; the thread's own
  std::vector<BatchReply> replies_;                              // the loop's own
  SideThread thread_{"calls the scheduler", SideThread::AtEnd::drop};
};

}  // namespace wflow::engine::batch
