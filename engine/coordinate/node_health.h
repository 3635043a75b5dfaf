// SPDX-License-Identifier: Apache-2.0
// Finds nodes that fail tasks which succeed on other nodes: counts alone, no clock. A node is isolated once
// so many of its executions of a step have failed in a row that chance does not explain it, at the other
// nodes' failure rate. The results of the same tasks on other nodes then show if the node or the tasks were
// the cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/intervals.h"
#include "engine/schedule/types.h"

namespace wflow::engine {

class NodeHealth {
 public:
  using Task = std::pair<ArrayId, Element>;

  // A node that gets no more tasks, and the tasks to run again elsewhere.
  struct Isolation {
    std::string host;
    std::vector<Task> failed;  // there, in a row
    std::uint64_t ended_elsewhere = 0, failed_elsewhere = 0;
    bool again = false;  // more failures on a host that is isolated already
  };
  // A host that is used again: the tasks fail on other nodes, too.
  struct Cleared {
    std::string host;
  };

  void succeeded(const std::string& host, std::size_t step, ArrayId array, Range range);
  void failed(const std::string& host, std::size_t step, Task task);

  // Both return the entries since the last call.
  std::vector<Isolation> take_isolations();
  std::vector<Cleared> take_cleared() { return std::exchange(cleared_, {}); }

 private:
  struct Counts {
    std::uint64_t ended = 0, failed = 0;
    std::set<Task> streak;  // failed in a row
  };
  struct Step {
    std::map<std::string, Counts> hosts;
    std::uint64_t ended = 0, failed = 0;
    bool exempt = false;  // the step itself causes its failures
  };
  struct IsolatedNode {
    std::string host;
    std::size_t step = 0;
    std::set<Task> open;  // tasks that have not run elsewhere yet
    int well = 0, badly = 0;
  };

  void judge(const std::string& host, std::size_t step);
  IsolatedNode* isolated_node(const std::string& host, std::size_t step);
  void follow_up(const std::string& host, ArrayId array, Range range, bool well);

  std::map<std::size_t, Step> steps_;
  std::vector<IsolatedNode> isolated_;
  std::set<std::pair<std::string, std::size_t>> to_judge_;  // hosts and steps with new failures
  std::vector<Isolation> isolations_;
  std::vector<Cleared> cleared_;
};

}  // namespace wflow::engine
