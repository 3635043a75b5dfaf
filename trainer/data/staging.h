// SPDX-License-Identifier: Apache-2.0
// Copies the shards of a data set to the nodes of a job: one rank reads each shard once, into memory or a
// file of its node. The ranks of that node read the copy; the others request ranges from its owner over MPI.
//
// Copies have no name: kernel memory (memfd) or a file without a directory entry. Other ranks of the node
// open them through /proc. The end of the processes frees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "converters/shards/shard_file.h"
#include "converters/shards/shard_reader.h"
#include "trainer/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/sample_source.h"
#include "trainer/data/stage_space.h"
#include "trainer/parallel/communicator.h"
#include "trainer/parallel/fetch_service.h"

namespace wflow::trainer {

// The group of each rank: the ranks of one host, cut into parts of `ranks_per_group` if that is above 0.
std::vector<std::size_t> groups_of(std::span<const std::string> hosts, std::size_t ranks_per_group);
// $WFLOW_RANKS_PER_GROUP, to try several nodes on one machine; 0: the hosts are the nodes.
std::size_t ranks_per_group();

// The rank that stages each shard: the rank with the fewest bytes so far in the group with the fewest.
std::vector<std::size_t> owners_of(std::span<const std::uint64_t> shard_bytes,
                                   std::span<const std::size_t> groups);

class Staging {
 public:
  // A collective call: all shards of the data set are staged when it returns. CommonError if a node has
  // too little space, if a shard can't be read, or if it was rewritten so that only HDF5 can read it.
  Staging(const TrainConfig& config, Communicator& communicator);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  // Opens a split from the copies; to be called once.
  Dataset open_dataset();

  struct Report {
    std::uint64_t shards = 0;  // in the whole job
    std::uint64_t bytes = 0;
    std::uint64_t own_bytes = 0;  // staged by this rank
    std::size_t groups = 0;       // nodes
    double seconds = 0;
  };
  const Report& report() const { return report_; }
  // Bytes that this rank has read from other nodes over MPI.
  std::uint64_t fetched_bytes() const;

 private:
  struct Copy;
  struct Files;
  void plan();
  void check_room();
  void reserve();
  void copy();
  void share();
  converters::SplitReader open(std::string_view split);
  std::unique_ptr<converters::ShardBytes> bytes_of(const Copy& copy) const;
  std::filesystem::path source(const Copy& copy) const;
  bool is_own(const Copy& copy) const;
  std::string description_of(const Copy& copy) const;

  const TrainConfig& config_;
  const converters::Manifest manifest_;
  Communicator& communicator_;
  const StageSpace space_;
  std::vector<Copy> copies_;  // one per shard of the job
  std::vector<std::size_t> groups_;
  std::vector<std::string> hosts_;
  std::shared_ptr<Files> files_;  // for the shards that this rank has staged
  std::unique_ptr<FetchService> service_;
  Report report_;
};

// The drawn samples of a rank (`stage: {subset: N}`), decoded and transformed, kept from the start of the
// training to its end: no training sample is read or sent afterwards (Kurth et al. 2018, "Exascale deep
// learning for climate analytics", section V-A). As there, each drawn sample is read once in the whole job,
// and sent to the ranks that have drawn it.

class HeldSubset {
 public:
  // A collective call: `split` has the samples of this rank when it returns, and must end first. CommonError
  // if a node has too little space.
  HeldSubset(const TrainConfig& config, CachedSplit& split, Communicator& communicator);
  HeldSubset(const HeldSubset&) = delete;
  HeldSubset& operator=(const HeldSubset&) = delete;
  ~HeldSubset();

  const SubsetDraw& draw() const { return draw_; }
  struct Report {
    std::size_t least = 0;    // distinct samples of the rank that has the fewest
    std::size_t most = 0;     // and of the one that has the most
    std::size_t all = 0;      // of all ranks together
    std::uint64_t bytes = 0;  // on all ranks
    double seconds = 0;
  };
  const Report& report() const { return report_; }

 private:
  void reserve(const TrainConfig& config, std::size_t values, Communicator& communicator);
  void fill(const CachedSplit& split, Communicator& communicator, int threads);

  const SubsetDraw draw_;
  std::vector<std::vector<std::size_t>> wanted_;  // by each rank, ascending; only while the samples are read
  FileDescriptor file_;
  std::span<float> values_;
  Report report_;
};

}  // namespace wflow::trainer
