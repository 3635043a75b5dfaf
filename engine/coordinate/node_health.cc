// SPDX-License-Identifier: Apache-2.0
#include "engine/coordinate/node_health.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace wflow::engine {

namespace {

constexpr std::size_t kLeastInARow = 5;
constexpr std::uint64_t kLeastElsewhere = 5;  // tasks that succeeded on other nodes
constexpr double kChance = 1e-6;
constexpr std::size_t kLongestStreak = 10'000;
constexpr int kRefuted = 3;  // tasks of an isolated node with the same result elsewhere

}  // namespace

void NodeHealth::succeeded(const std::string& host, std::size_t number, ArrayId array, Range range) {
  Step& step = steps_[number];
  Counts& counts = step.hosts[host];
  counts.ended += range.size();
  step.ended += range.size();
  counts.streak.clear();
  follow_up(host, array, range, true);
}

void NodeHealth::failed(const std::string& host, std::size_t number, Task task) {
  Step& step = steps_[number];
  Counts& counts = step.hosts[host];
  ++counts.ended;
  ++counts.failed;
  ++step.ended;
  ++step.failed;
  if (counts.streak.size() < kLongestStreak) counts.streak.insert(task);
  follow_up(host, task.first, {task.second, task.second}, false);
  to_judge_.emplace(host, number);
}

std::vector<NodeHealth::Isolation> NodeHealth::take_isolations() {
  for (const auto& [host, step] : std::exchange(to_judge_, {})) judge(host, step);
  return std::exchange(isolations_, {});
}

NodeHealth::IsolatedNode* NodeHealth::isolated_node(const std::string& host, std::size_t step) {
  const auto at = std::find_if(isolated_.begin(), isolated_.end(), [&](const IsolatedNode& node) {
    return node.host == host && node.step == step;
  });
  return at == isolated_.end() ? nullptr : &*at;
}

void NodeHealth::judge(const std::string& host, std::size_t number) {
  Step& step = steps_[number];
  Counts& counts = step.hosts[host];
  const std::uint64_t ended = step.ended - counts.ended;
  const std::uint64_t failed = step.failed - counts.failed;
  IsolatedNode* known = isolated_node(host, number);
  if (known == nullptr) {
    if (step.exempt || counts.streak.size() < kLeastInARow || ended - failed < kLeastElsewhere) return;
    // Laplace's estimate of the rate, so that a few successes elsewhere are no proof.
    const double rate = static_cast<double>(failed + 1) / static_cast<double>(ended + 2);
    if (static_cast<double>(counts.streak.size()) * std::log(rate) > std::log(kChance)) return;
  }
  isolations_.push_back(
      {host, {counts.streak.begin(), counts.streak.end()}, ended, failed, known != nullptr});
  if (known == nullptr) known = &isolated_.emplace_back(IsolatedNode{host, number, {}, 0, 0});
  known->open.merge(counts.streak);
  step.ended -= counts.ended;
  step.failed -= counts.failed;
  step.hosts.erase(host);  // a later worker on it starts with fresh counts
}

void NodeHealth::follow_up(const std::string& host, ArrayId array, Range range, bool well) {
  for (IsolatedNode& node : isolated_) {
    if (node.host == host) continue;
    const auto first = node.open.lower_bound({array, range.first});
    const auto last = node.open.upper_bound({array, range.last});
    (well ? node.well : node.badly) += static_cast<int>(std::distance(first, last));
    node.open.erase(first, last);
  }
  std::erase_if(isolated_, [&](const IsolatedNode& node) {
    const bool refuted = node.badly >= kRefuted && node.badly > node.well;
    if (refuted) {
      steps_[node.step].exempt = true;
      cleared_.push_back({node.host});
    }
    return refuted || node.well >= kRefuted;
  });
}

}  // namespace wflow::engine
