// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/common_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/process.h"
#include "trainer/training/checkpoint.h"

namespace wflow::trainer {
namespace {

constexpr const char* kAlarmElsewhere = "the gradient of another rank is wrong";

}  // namespace

bool CommonGuard::is_sound(std::int64_t step, double loss, double largest_gradient, bool alarm_sent,
                           std::size_t which) {
  Guard& guard = guards_.at(which);
  reason_ = guard.look_at_loss(step, loss);
  may_come_again_ = true;
  if (reason_.empty() && alarm_sent) {
    may_come_again_ = !own_alarm_.empty();
    reason_ = may_come_again_ ? own_alarm_ : kAlarmElsewhere;
  }
  own_alarm_ = guard.look_at_gradient(step, largest_gradient);
  if (reason_.empty() && summing_.size() == 1) reason_ = own_alarm_;
  const std::string note = guard.take_note();
  const std::string warning = guard.take_warning();
  if (communicator_.rank() == 0 && !note.empty()) report_.announce(note);
  if (communicator_.rank() > 0 && summing_.rank() == 0 && !note.empty()) report_.warn(note);
  if (summing_.rank() == 0 && !warning.empty()) report_.warn(warning);
  return reason_.empty();
}

bool CommonGuard::ranks_agree(std::int64_t step, const std::function<std::string()>& hash) {
  if (!config_.on || !compares_ranks()) return true;
  const std::string sound = own_alarm_.empty() ? "+" : "-";
  const std::vector<std::string> answers = communicator_.all_gather(hash() + sound + host_name());
  std::vector<std::string> hashes;
  for (const std::string& answer : answers) hashes.push_back(answer.substr(0, kHashLength));
  const std::vector<int> others = disagreeing(hashes);
  const bool all_sound =
      std::ranges::all_of(answers, [](const std::string& answer) { return answer[kHashLength] == '+'; });
  if (others.empty() && all_sound) {
    agreed_step_ = step;
    return true;
  }
  may_come_again_ = others.empty() && !own_alarm_.empty();
  if (others.empty()) {
    reason_ = own_alarm_.empty() ? kAlarmElsewhere : own_alarm_;
    return false;
  }
  std::string names;
  for (const int rank : others) {
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", rank,
                         answers[static_cast<std::size_t>(rank)].substr(kHashLength + 1));
  }
  reason_ =
      fmt::format("the weights of rank{} {} differ from the others'", others.size() == 1 ? "" : "s", names);
  return false;
}

}  // namespace wflow::trainer
