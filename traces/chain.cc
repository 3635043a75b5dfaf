// SPDX-License-Identifier: Apache-2.0
#include "traces/chain.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace wflow::traces {
namespace {

constexpr int kMostStarts = 1000;
constexpr double kPriorMoves = 0.3;  // share of the proposals that are draws from the prior
constexpr std::array<double, 3> kStepSizes = {0.05, 0.25,
                                              1.0};  // of a random walk, in deviations of the prior

double log_prior_of(const ReplaySampler::Values& values) {
  double sum = 0;
  for (const auto& [key, value] : values) sum += value.log_prior;
  return sum;
}

}  // namespace

double ReplaySampler::moved(const Site& site, double value, Random& random) {
  if (site.prior.kind == Kind::categorical || random.uniform() < kPriorMoves) {
    const double next = draw(site.prior, random);
    log_kernel_ = log_density(site.prior, value) - log_density(site.prior, next);
    return next;
  }
  const auto size = static_cast<std::size_t>(random.uniform() * kStepSizes.size());
  double step = kStepSizes[size] * deviation_of(site.prior) * random.normal();
  // To either side with the same probability, and never to the same value.
  if (site.prior.kind == Kind::poisson) step = std::copysign(std::ceil(std::abs(step)), step);
  return value + step;
}

Sampler::Choice ReplaySampler::choose(const Site& site, Random& random) {
  const Key key = {site.name.hash, site.attempt};
  const auto before = before_.find(key);
  double value = 0;
  const bool fresh = before == before_.end() || before->second.kind != site.prior.kind ||
                     std::isinf(log_density(site.prior, before->second.value));
  if (fresh) {
    value = draw(site.prior, random);
  } else if (key == chosen_) {
    value = moved(site, before->second.value, random);
    if (std::isinf(log_density(site.prior, value))) {
      impossible_ = true;
      value = before->second.value;  // the run goes on, and does not count
    }
  } else {
    value = before->second.value;
  }
  const double log_prior = log_density(site.prior, value);
  if (fresh) log_fresh_ += log_prior;
  now_[key] = {site.prior.kind, value, log_prior};
  return {value, log_prior};
}

double ReplaySampler::log_reverse_ratio() const {
  double log_stale = 0;  // the way back would draw them again
  for (const auto& [key, value] : before_) {
    const auto now = now_.find(key);
    if (now == now_.end() || (key != chosen_ && now->second.value != value.value) ||
        now->second.kind != value.kind)
      log_stale += value.log_prior;
  }
  return log_kernel_ + log_stale - log_fresh_;
}

Chain::Chain(Runner runner, Random& random) : runner_(std::move(runner)), random_(random) {
  const ReplaySampler::Values none;
  for (int start = 0; start < kMostStarts; ++start) {
    ReplaySampler sampler(none);
    state_ = run(sampler);
    if (!state_.mistake.empty() || !std::isfinite(state_.log_likelihood)) continue;
    values_ = sampler.values();
    log_joint_ = log_prior_of(values_) + state_.log_likelihood;
    return;
  }
  throw Error(ExitCode::data, fmt::format("none of {} runs from the prior can have made the observation{}",
                                          kMostStarts, first_mistake_.empty() ? "" : "; " + first_mistake_));
}

RunResult Chain::run(Sampler& sampler) {
  RunResult result = runner_(sampler, random_);
  if (!result.mistake.empty() && failed_++ == 0) first_mistake_ = result.mistake;
  return result;
}

bool Chain::step() {
  if (values_.empty()) return false;
  const auto at = static_cast<std::ptrdiff_t>(random_.uniform() * static_cast<double>(values_.size()));
  ReplaySampler sampler(values_, std::next(values_.begin(), at)->first);
  RunResult next = run(sampler);
  const double threshold = std::log(1 - random_.uniform());
  if (!next.mistake.empty() || sampler.impossible() || !std::isfinite(next.log_likelihood)) return false;
  const double log_joint = log_prior_of(sampler.values()) + next.log_likelihood;
  const double log_ratio = log_joint - log_joint_ + sampler.log_reverse_ratio() +
                           std::log(static_cast<double>(values_.size())) -
                           std::log(static_cast<double>(sampler.values().size()));
  if (threshold >= log_ratio) return false;
  values_ = sampler.values();
  log_joint_ = log_joint;
  state_ = std::move(next);
  return true;
}

}  // namespace wflow::traces
