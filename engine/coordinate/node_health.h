// SPDX-License-Identifier: Apache-2.0
// Which nodes fail tasks that others do not: counts alone, no clock. A node is suspected once so many of its
// executions of a step have failed in a row that, at the rate of the other nodes, this is no chance. Whether
// the same tasks end well elsewhere shows then whether the node or the tasks were at fault.
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

  struct Suspicion {
    std::string host;
    std::vector<Task> failed;       // there, in a row
    std::uint64_t ended_elsewhere = 0, failed_elsewhere = 0;
    bool again = false;  // more of a host that is suspected already
  };
  // The tasks fail on other nodes, too.
  struct Acquittal {
    std::string host;
  };

  void succeeded(const std::string& host, std::size_t step, ArrayId array, Range range);
  void failed(const std::string& host, std::size_t step, Task task);

  // Since the last call.
  std::vector<Suspicion> take_suspicions();
  std::vector<Acquittal> take_acquittals() { return std::exchange(acquittals_, {}); }

 private:
  struct Counts {
    std::uint64_t ended = 0, failed = 0;
    std::set<Task> streak;  // failed in a row
  };
  struct Step {
    std::map<std::string, Counts> hosts;
    std::uint64_t ended = 0, failed = 0;
    bool exempt = false;  // its failures are its own
  };
  struct Suspect {
    std::string host;
    std::size_t step = 0;
    std::set<Task> open;  // have not run elsewhere yet
    int well = 0, badly = 0;
  };

  void judge(const std::string& host, std::size_t step);
  Suspect* suspect_of(const std::string& host, std::size_t step);
  void follow_up(const std::string& host, ArrayId array, Range range, bool well);

  std::map<std::size_t, Step> steps_;
  std::vector<Suspect> suspects_;
  std::set<std::pair<std::string, std::size_t>> to_judge_;  // hosts and steps with new failures
  std::vector<Suspicion> suspicions_;
  std::vector<Acquittal> acquittals_;
};

}  // namespace wflow::engine
