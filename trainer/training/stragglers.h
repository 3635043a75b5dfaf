// SPDX-License-Identifier: Apache-2.0
// Which node the others wait for. In a synchronous training every step takes as long as that of the slowest
// rank, which itself waits least: each rank measures its own work, and the ranks compare it once an epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

// The mean of the two in the middle of an even number of values; 0 of none.
double median_of(std::vector<double> values);

// Seconds of one rank's steps.
struct RankTime {
  double computing = 0;  // without the waits
  double data_wait = 0;  // for samples: work of this node, too
  double rank_wait = 0;  // for sums and halos of other ranks
  double samples = 0;
  double busy() const { return computing + data_wait; }
  RankTime& operator+=(const RankTime& other);
};

struct SlowNode {
  std::string name;  // "node n3"; with a single node "rank 5 of node n3"
  std::string node;  // "n3"
  std::size_t rank = 0;
  double factor = 1;   // its time over that of the others
  double seconds = 0;  // of this rank
  double others = 0;   // the median of the ranks on other nodes
  bool reads = false;  // it waits for data longer than the others, rather than computing longer
  bool several_nodes = false;
  std::string sentence() const;
};

// The slowest rank of each node against the median rank of the other nodes, the slowest node first; with a
// single node, each rank against the other ranks. Where ranks have parts of different sizes, both their times
// and their times per sample must be longer. Empty for a single rank.
std::vector<SlowNode> compare_nodes(std::span<const RankTime> ranks, std::span<const std::string> nodes);

// The least, the median and the largest value over the ranks.
struct Spread {
  double least = 0;
  double median = 0;
  double most = 0;
  static Spread of(std::vector<double> values);
};
// The times of all ranks in an epoch.
struct RankTimes {
  std::size_t ranks = 0;  // 0: not measured
  Spread computing;
  Spread data_wait;
  Spread rank_wait;
  std::string slowest;  // SlowNode::name
  std::size_t slowest_rank = 0;
  double factor = 1;
  std::string slow;  // SlowNode::sentence(), if the slowest node counts as slow

  static RankTimes of(std::span<const RankTime> ranks, std::span<const std::string> nodes);
  nlohmann::json to_json() const;
  static RankTimes from_json(const nlohmann::json& json);
};

// Says each slow node once, and again where its factor has changed. The same calls give the same results on
// every rank.
class SlowNodeNews {
 public:
  struct News {
    SlowNode node;
    bool recovered = false;  // it was slow, and is as fast as the others
    std::string sentence() const;
  };
  explicit SlowNodeNews(std::vector<std::string> nodes) : nodes_(std::move(nodes)) {}
  // The times of all ranks in an epoch. Judges as soon as a second has come together.
  std::vector<News> add(std::span<const RankTime> ranks);

 private:
  std::vector<std::string> nodes_;
  std::vector<RankTime> sums_;
  std::int64_t epochs_ = 0;
  std::map<std::string, double> said_;  // names and factors
};

// A collective call: the host of each rank. $WFLOW_RANKS_PER_GROUP cuts a host into groups that act as nodes.
std::vector<std::string> node_names(Communicator& communicator);

class StragglerWatch {
 public:
  // Collective calls.
  explicit StragglerWatch(Communicator& communicator);
  // The times of this rank in an epoch.
  RankTimes add(const RankTime& own);

  // Returns the news since the last call.
  std::vector<SlowNodeNews::News> take_news() { return std::exchange(news_, {}); }
  // Seconds of an epoch: the mean over those of this run of the program.
  RankTimes mean() const;

 private:
  Communicator& communicator_;
  const std::vector<std::string> nodes_;
  SlowNodeNews finder_;
  std::vector<RankTime> total_;
  std::int64_t epochs_ = 0;
  std::vector<SlowNodeNews::News> news_;
};

// --inject-slow-rank: a deliberate delay, to test the above. "rank=1,seconds=0.05" or "host=n3,seconds=0.05":
// the rank, or the ranks of the host, sleep so long in each step; "seconds=0.2,share=0.02": every rank does
// in 2 % of its steps, which are a function of rank and step.
struct SlowRank {
  int rank = -1;     // -1: all ranks of the host
  std::string host;  // empty: of all hosts
  double seconds = 0;
  double share = 1;  // of the steps

  bool sleeps(int at_rank, const std::string& at_host, std::int64_t step) const;
};
// Error{usage} for any other text.
SlowRank read_slow_rank(const std::string& text);

}  // namespace wflow::trainer
