// SPDX-License-Identifier: Apache-2.0
#include "cli/view/follow.h"

#include <chrono>
#include <thread>

#include "engine/query/client.h"

namespace wflow::cli {

namespace {

constexpr std::chrono::milliseconds kOutputLook{100};
constexpr int kLooksAQuestion = 5;  // the coordinator has better things to do

bool can_still_print(const specs::Plan& plan, const specs::TaskId& task) {
  engine::Client client(plan);  // a new one: it keeps what it has read of a campaign at rest
  const engine::ElementState state = client.explain({task.array, task.element}).state;
  return client.live() && !engine::has_ended(state);
}

}  // namespace

void follow_task(const specs::Plan& plan, const specs::TaskId& task, const std::function<void()>& look) {
  while (can_still_print(plan, task)) {
    for (int i = 0; i < kLooksAQuestion; ++i) {
      look();
      std::this_thread::sleep_for(kOutputLook);
    }
  }
  look();
}

}  // namespace wflow::cli
