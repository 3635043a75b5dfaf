// SPDX-License-Identifier: Apache-2.0
// The records of what executions used, for rows that are visited in the order of their elements.
#pragma once

#include <map>

#include "engine/query/client.h"
#include "engine/wire/answers.h"
#include "specs/plan/template.h"

namespace wflow::cli {

// Fetches some hundred or thousand neighbours at a time, so that a listing of a million tasks takes little
// memory.
class TaskUsages {
 public:
  // `few`: for a person, who looks at a hundred rows. `client` outlives this.
  TaskUsages(engine::Client& client, bool few) : client_(client), together_(few ? kFew : kMany) {}

  // Of the last execution that has ended; null where there is no record of one. Valid until the next call.
  const engine::wire::UsedView* find(specs::ArrayId array, specs::Element element);

 private:
  static constexpr specs::Element kFew = 200, kMany = 4000;

  void load(specs::ArrayId array, specs::Element first);

  engine::Client& client_;
  specs::Element together_;
  specs::ArrayId array_ = 0;
  specs::Element first_ = 0, end_ = 0;  // of `array_`: what last_ covers
  std::map<specs::Element, engine::wire::UsedView> last_;
};

}  // namespace wflow::cli
