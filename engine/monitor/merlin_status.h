// SPDX-License-Identifier: Apache-2.0
// MERLIN_STATUS.json, which Merlin leaves in the directory of every step and combination, for users and their
// programs. A view, written when an array has ended and before what depends on it begins: wflow never reads
// it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/store/store.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

// Limits the elements of an array in the file, which Merlin's tools read as a whole.
inline constexpr std::uint64_t kMostStatusElements = 100'000;

struct StatusParameter {
  std::string name, value;
  bool text = false;  // in quotes in the study: no number, whatever it looks like
};

// The content of one array's file.
struct ArrayStatus {
  std::string file;  // absolute
  std::string key;   // "<step>" or "<step>_<labels>"
  std::string path;  // the array's directory, relative to the campaign's
  std::vector<StatusParameter> cmd_parameters, restart_parameters;
  std::uint64_t samples = 1;  // in the study: they decide the depth of its tree
  bool sample_dependent = false;
  std::uint32_t level_max_dirs = 25;
  double mean_s = 0;  // mean of done elements: there is no time for each element
  std::vector<std::pair<Range, ElementState>> states;
  std::vector<store::ExecutionRecord> failures;  // in order of elements
};

std::string merlin_status_text(const ArrayStatus& status);

// The files that Merlin leaves in the directory of each task of `merlin run --local`: the path, and a text
// with the task's part alone.
std::vector<std::pair<std::string, std::string>> leaf_status_texts(const ArrayStatus& status);

class MerlinStatus {
 public:
  explicit MerlinStatus(const specs::Plan& plan);
  // Before the first lease: the files of arrays that have ended are due if open arrays may read them and they
  // are gone, for example because a coordinator was killed before it wrote them.
  void find_missing(const Scheduler& scheduler);
  // The commit under way records this end, which `scheduler` knows.
  void changed(const RecordEnd& end, const Scheduler& scheduler);
  // The content of some files that are due, which the caller writes; empty after the last. `store` must be
  // the caller's.
  std::vector<ArrayStatus> take_due(const Scheduler& scheduler, store::Store& store);
  // The coordinator ends: the files of arrays that have not ended are due, too.
  void end(const Scheduler& scheduler);
  // Writes files whole or not at all, on any thread. One that cannot be written costs a view and no result.
  void write(const std::vector<ArrayStatus>& arrays) const;

 private:
  void add_whole(ArrayId array, const Scheduler& scheduler);
  ArrayStatus gather(ArrayId array, const IntervalSet& parts, const Scheduler& scheduler,
                     store::Store& store) const;

  const specs::Plan& plan_;
  bool wanted_;  // the study is Merlin's
  bool leaves_;  // a file for each task
  // The files to write: of whole arrays, or of these elements of an array.
  std::map<ArrayId, IntervalSet> due_;
  std::set<ArrayId> open_;  // some of their elements have ended
};

}  // namespace wflow::engine
