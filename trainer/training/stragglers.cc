// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/stragglers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/process.h"
#include "base/random.h"
#include "base/text.h"
#include "trainer/config.h"
#include "trainer/data/staging.h"

namespace wflow::trainer {
namespace {

constexpr double kLeastSeconds =
    1;                              // of the slowest rank's work before it is judged: shorter times are noise
constexpr double kRecovered = 1.1;  // a node that was slow counts as slow above it
constexpr double kChange = 1.25;    // a factor that changes by more than this is said again

// The groups of ranks that are compared: nodes, or single ranks where there is one node.
std::vector<std::string> unit_names(std::span<const std::string> nodes) {
  std::vector<std::string> names;
  const bool several = std::ranges::any_of(nodes, [&](const std::string& node) { return node != nodes[0]; });
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    names.push_back(several ? "node " + nodes[rank] : fmt::format("rank {} of node {}", rank, nodes[rank]));
  return names;
}

SlowNode compared(std::size_t rank, std::span<const RankTime> ranks, const std::vector<std::string>& units) {
  std::vector<double> busy;
  std::vector<double> per_sample;
  std::vector<double> computing;
  std::vector<double> data_wait;
  for (std::size_t other = 0; other < ranks.size(); ++other) {
    if (units[other] == units[rank] || ranks[other].samples <= 0) continue;
    busy.push_back(ranks[other].busy());
    per_sample.push_back(ranks[other].busy() / ranks[other].samples);
    computing.push_back(ranks[other].computing);
    data_wait.push_back(ranks[other].data_wait);
  }
  const RankTime& own = ranks[rank];
  SlowNode node;
  node.name = units[rank];
  node.rank = rank;
  node.seconds = own.busy();
  node.others = median_of(busy);
  const double by_sample = median_of(per_sample);
  if (node.others <= 0 || by_sample <= 0) return node;
  node.factor = std::min(own.busy() / node.others, own.busy() / own.samples / by_sample);
  node.reads = own.data_wait - median_of(data_wait) > own.computing - median_of(computing);
  return node;
}

nlohmann::json json_of(const Spread& spread) {
  return {spread.least, spread.median, spread.most};
}
Spread spread_of(const nlohmann::json& json) {
  return {json.at(0).get<double>(), json.at(1).get<double>(), json.at(2).get<double>()};
}

}  // namespace

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

RankTime& RankTime::operator+=(const RankTime& other) {
  computing += other.computing;
  data_wait += other.data_wait;
  rank_wait += other.rank_wait;
  samples += other.samples;
  return *this;
}

std::string SlowNode::sentence() const {
  const std::string work = reads ? "waiting for data" : "computing";
  if (!several_nodes)
    return fmt::format(
        "{} takes {:.1f} times as long as the others ({:.3g} s of an epoch against {:.3g} s, {})", name,
        factor, seconds, others, work);
  return fmt::format(
      "{} takes {:.1f} times as long as the others (rank {}: {:.3g} s of an epoch against {:.3g} s, {})",
      name, factor, rank, seconds, others, work);
}

std::vector<SlowNode> compare_nodes(std::span<const RankTime> ranks, std::span<const std::string> nodes) {
  WFLOW_CHECK(ranks.size() == nodes.size());
  if (ranks.size() < 2) return {};
  const std::vector<std::string> units = unit_names(nodes);
  std::map<std::string, std::size_t> slowest;  // rank of each unit
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].samples <= 0) continue;
    const auto at = slowest.try_emplace(units[rank], rank).first;
    if (ranks[rank].busy() > ranks[at->second].busy()) at->second = rank;
  }
  std::vector<SlowNode> list;
  const std::set<std::string> distinct(nodes.begin(), nodes.end());
  for (const auto& [unit, rank] : slowest) {
    SlowNode& node = list.emplace_back(compared(rank, ranks, units));
    node.node = nodes[rank];
    node.several_nodes = distinct.size() > 1;
  }
  std::ranges::stable_sort(list, [](const SlowNode& a, const SlowNode& b) { return a.factor > b.factor; });
  return list;
}

Spread Spread::of(std::vector<double> values) {
  if (values.empty()) return {};
  const auto [least, most] = std::ranges::minmax(values);
  return {least, median_of(std::move(values)), most};
}

RankTimes RankTimes::of(std::span<const RankTime> ranks, std::span<const std::string> nodes) {
  RankTimes times;
  times.ranks = ranks.size();
  const auto spread = [&](double RankTime::*member) {
    std::vector<double> values;
    for (const RankTime& rank : ranks) values.push_back(rank.*member);
    return Spread::of(std::move(values));
  };
  times.computing = spread(&RankTime::computing);
  times.data_wait = spread(&RankTime::data_wait);
  times.rank_wait = spread(&RankTime::rank_wait);
  const std::vector<SlowNode> compared = compare_nodes(ranks, nodes);
  if (compared.empty()) return times;
  times.slowest = compared.front().name;
  times.slowest_rank = compared.front().rank;
  times.factor = compared.front().factor;
  if (times.factor >= kSlowNode) times.slow = compared.front().sentence();
  return times;
}

nlohmann::json RankTimes::to_json() const {
  nlohmann::json json = {{"ranks", ranks},
                         {"computing", json_of(computing)},
                         {"data_wait", json_of(data_wait)},
                         {"rank_wait", json_of(rank_wait)}};
  if (!slowest.empty()) json["slowest"] = {{"name", slowest}, {"rank", slowest_rank}, {"factor", factor}};
  if (!slow.empty()) json["slow"] = slow;
  return json;
}

RankTimes RankTimes::from_json(const nlohmann::json& json) {
  RankTimes times;
  times.ranks = json.at("ranks").get<std::size_t>();
  times.computing = spread_of(json.at("computing"));
  times.data_wait = spread_of(json.at("data_wait"));
  times.rank_wait = spread_of(json.at("rank_wait"));
  times.slow = json.value("slow", "");
  if (!json.contains("slowest")) return times;
  times.slowest = json.at("slowest").at("name").get<std::string>();
  times.slowest_rank = json.at("slowest").at("rank").get<std::size_t>();
  times.factor = json.at("slowest").at("factor").get<double>();
  return times;
}

std::string SlowNodeNews::News::sentence() const {
  return recovered ? fmt::format("{} is as fast as the others again", node.name) : node.sentence();
}

std::vector<SlowNodeNews::News> SlowNodeNews::add(std::span<const RankTime> ranks) {
  sums_.resize(ranks.size());
  ++epochs_;
  std::vector<double> busy;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    sums_[rank] += ranks[rank];
    busy.push_back(sums_[rank].busy());
  }
  if (busy.empty() || std::ranges::max(busy) < kLeastSeconds) return {};
  std::vector<News> news;
  const auto epochs = static_cast<double>(std::exchange(epochs_, 0));
  for (SlowNode& node : compare_nodes(std::exchange(sums_, {}), nodes_)) {
    node.seconds /= epochs;
    node.others /= epochs;
    const auto said = said_.find(node.name);
    if (said == said_.end()) {
      if (node.factor >= kSlowNode) news.push_back({node});
    } else if (node.factor < kRecovered) {
      news.push_back({node, true});
    } else if (node.factor > said->second * kChange || node.factor < said->second / kChange) {
      news.push_back({node});
    }
  }
  for (const News& item : news) {
    said_.erase(item.node.name);
    if (!item.recovered) said_.emplace(item.node.name, item.node.factor);
  }
  return news;
}

std::vector<std::string> node_names(Communicator& communicator) {
  const std::vector<std::string> hosts = communicator.all_gather(host_name());
  const std::vector<std::size_t> groups = groups_of(hosts, ranks_per_group());
  std::map<std::string, std::set<std::size_t>> of_host;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) of_host[hosts[rank]].insert(groups[rank]);
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::set<std::size_t>& parts = of_host[hosts[rank]];
    names.push_back(parts.size() == 1 ? hosts[rank]
                                      : fmt::format("{}/{}", hosts[rank],
                                                    std::distance(parts.begin(), parts.find(groups[rank]))));
  }
  return names;
}

StragglerWatch::StragglerWatch(Communicator& communicator)
    : communicator_(communicator), nodes_(node_names(communicator)), finder_(nodes_), total_(nodes_.size()) {}

RankTimes StragglerWatch::add(const RankTime& own) {
  const std::vector<double> all = gather_values(
      communicator_, std::vector<double>{own.computing, own.data_wait, own.rank_wait, own.samples});
  std::vector<RankTime> ranks(nodes_.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank] = {all[4 * rank], all[4 * rank + 1], all[4 * rank + 2], all[4 * rank + 3]};
    total_[rank] += ranks[rank];
  }
  ++epochs_;
  std::ranges::move(finder_.add(ranks), std::back_inserter(news_));
  return RankTimes::of(ranks, nodes_);
}

RankTimes StragglerWatch::mean() const {
  if (epochs_ == 0) return {};
  const auto epochs = static_cast<double>(epochs_);
  std::vector<RankTime> ranks;
  for (const RankTime& sum : total_)
    ranks.push_back(
        {sum.computing / epochs, sum.data_wait / epochs, sum.rank_wait / epochs, sum.samples / epochs});
  return RankTimes::of(ranks, nodes_);
}

SlowRank read_slow_rank(const std::string& text) {
  SlowRank slow;
  bool valid = true;
  for (const std::string& part : text::split(text, ',')) {
    const std::size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
    const auto rank = text::to_integer(value);
    const auto seconds = text::to_real(value);
    if (key == "rank" && rank && *rank >= 0 && *rank < 1 << 20) {
      slow.rank = static_cast<int>(*rank);
    } else if (key == "host" && !value.empty()) {
      slow.host = value;
    } else if (key == "seconds" && seconds && *seconds > 0 && *seconds < 3600) {
      slow.seconds = *seconds;
    } else if (key == "share" && seconds && *seconds > 0 && *seconds <= 1) {
      slow.share = *seconds;
    } else {
      valid = false;
    }
  }
  if (!valid || slow.seconds <= 0)
    throw Error(
        ExitCode::usage,
        fmt::format("--inject-slow-rank {}: write seconds=S, with rank=N or host=NAME, and with share=P "
                    "for a part of the steps",
                    text));
  return slow;
}

bool SlowRank::sleeps(int at_rank, const std::string& at_host, std::int64_t step) const {
  if ((rank >= 0 && rank != at_rank) || (!host.empty() && host != at_host)) return false;
  return unit_real(hash64(static_cast<std::uint64_t>(at_rank), static_cast<std::uint64_t>(step))) < share;
}

}  // namespace wflow::trainer
