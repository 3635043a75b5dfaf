// SPDX-License-Identifier: Apache-2.0
#include "cli/view/follow.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "engine/query/queries.h"

namespace wflow::cli {

namespace {

constexpr std::chrono::milliseconds kLook{100};
constexpr int kLooksAQuestion = 5;  // the coordinator has better things to do

bool can_still_print(const specs::Plan& plan, const specs::TaskId& task) {
  engine::Client client(plan);  // a new one: it keeps what it has read of a campaign at rest
  const std::string state = client.ask("explain", {{"array", task.array}, {"element", task.element}})
                                .at("state")
                                .get<std::string>();
  static const std::set<std::string> kOpen = {"blocked", "ready", "running", "delayed"};
  return client.live() && kOpen.contains(state);
}

}  // namespace

void follow_task(const specs::Plan& plan, const specs::TaskId& task, const std::function<void()>& look) {
  while (can_still_print(plan, task)) {
    for (int i = 0; i < kLooksAQuestion; ++i) {
      look();
      std::this_thread::sleep_for(kLook);
    }
  }
  look();
}

}  // namespace wflow::cli
