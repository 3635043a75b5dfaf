// SPDX-License-Identifier: Apache-2.0
// The files of a simulation that a conversion reads and then deletes: how large they are.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "specs/plan/plan.h"

namespace wflow::engine {

class RawOutputs {
 public:
  // `plan` outlives it.
  explicit RawOutputs(const specs::Plan& plan);

  // Bytes of what this element of a simulation's array has left for its conversion; nothing where not all of
  // it is there. Looks at one file or a few.
  std::optional<std::uint64_t> bytes(specs::ArrayId array, specs::Element element);

 private:
  struct Place {
    specs::TaskTemplate source;
    std::vector<std::string>
        files;  // in the directory of a sample; $(MERLIN_SAMPLE_ID) stands for its number
  };
  const Place& place_of(specs::ArrayId array);

  const specs::Plan& plan_;
  std::map<specs::ArrayId, specs::ArrayId> conversions_;  // that delete, by the array whose files these are
  std::map<specs::ArrayId, Place> places_;                // of those that were looked at
};

}  // namespace wflow::engine
