// SPDX-License-Identifier: Apache-2.0
// The names of a simulator's draws, each kept once for all runs of a process: a run finds a name by its hash,
// without a copy of the text.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "traces/address_table.h"
#include "traces/distribution.h"

namespace wflow::traces {

struct Name {
  std::string text;
  std::uint64_t hash = 0;        // address_hash(text)
  Kind kind = Kind::none;        // of its draws so far
  std::uint32_t categories = 0;  // categorical: the most so far
  bool proposed = true;
  std::uint64_t draws = 0;  // that stayed in a trace
  std::uint64_t run = 0;    // the last run that had a draw here
  std::uint32_t draws_of_run = 0;
  std::vector<Name*> again;  // "x#2", "x#3", ...: the names of further draws at "x" in one run
};

class NameTable {
 public:
  // The name that is the text.
  Name& find(std::string_view text);
  // The name of the next draw of run number `run` at an address: "x", "x#2", ...
  Name& next(std::string_view address, std::uint64_t run);
  std::uint64_t begin_run() { return ++runs_; }
  // Counts a trace of this type.
  void add_type(std::uint64_t type, std::uint64_t draws) { types_.add_type(type, draws); }
  void add_tag(const std::string& tag) { types_.add_tag(tag); }
  // Names with draws that stayed, and the types.
  AddressTable addresses() const;
  // Grows with each name, kind, number of categories and tag that is new.
  std::uint64_t version() const { return version_ + types_.tags().size(); }
  void changed() { ++version_; }

 private:
  void grow();

  std::deque<Name> names_;
  std::vector<Name*> slots_;  // by the hash's lower bits, each name at the next free place
  AddressTable types_;
  std::uint64_t runs_ = 0;
  std::uint64_t version_ = 0;
};

// Notes a draw's distribution. Error{data} if the name has had another kind.
void note_kind(NameTable& names, Name& name, const Distribution& prior, bool proposed);

}  // namespace wflow::traces
