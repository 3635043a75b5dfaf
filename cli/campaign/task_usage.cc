// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/task_usage.h"

#include <algorithm>

namespace wflow::cli {

const engine::wire::UsedView* TaskUsages::find(specs::ArrayId array, specs::Element element) {
  if (array != array_ || element < first_ || element >= end_) load(array, element);
  const auto at = last_.find(element);
  return at == last_.end() ? nullptr : &at->second;
}

void TaskUsages::load(specs::ArrayId array, specs::Element first) {
  const engine::wire::UsageAnswer answer = client_.usage({array, first, first + together_ - 1, 0});
  array_ = array;
  first_ = first;
  end_ = answer.next.value_or(first + together_);
  last_.clear();
  for (const engine::wire::UsedView& used : answer.used) {
    const specs::Element from = std::max(used.usage.first, first_);
    const specs::Element to = std::min(used.usage.first + used.usage.count, end_);
    for (specs::Element element = from; element < to; ++element) {
      const auto [at, is_new] = last_.try_emplace(element, used);
      // Attempts begin at 0 again where a task is run anew: the later one counts.
      if (!is_new && used.usage.started_s >= at->second.usage.started_s) at->second = used;
    }
  }
}

}  // namespace wflow::cli
