// SPDX-License-Identifier: Apache-2.0
// What differs between two files of a study, key by key. Steps are told apart by their names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "specs/study/study.h"

namespace wflow::specs {

struct KeyChange {
  std::string key;                    // "study.simulate.run.cmd"
  std::optional<std::string> before;  // as YAML; nothing: it was not there
  std::optional<std::string> after;
};

std::vector<KeyChange> differences(const Study& from, const Study& to);

// Lines for a terminal: "study.train.train.epochs: 2 -> 4"; texts of several lines line by line, with - and
// +.
std::vector<std::string> lines_of(const KeyChange& change);

}  // namespace wflow::specs
