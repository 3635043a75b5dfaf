// SPDX-License-Identifier: Apache-2.0
#include "traces/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <stdexcept>
#include <utility>

#include "traces/address_table.h"

namespace wflow::traces {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint64_t kMostCalls = 100'000'000;
constexpr std::uint64_t kMostTries = 10'000'000;
// A simulator that does not return after a mistake: its own loop may wait for a number.
constexpr std::uint64_t kMostCallsAfterMistake = 1'000'000;
// Tries for each of the two factors of a loop's correction.
constexpr int kAcceptanceTries = 10;

}  // namespace

Row row_of(std::uint64_t hash, const Distribution& prior, double value, bool proposed) {
  Row row{};
  row[kHigh] = high_half(hash);
  row[kLow] = low_half(hash);
  row[kKind] = static_cast<double>(prior.kind) + (proposed ? 0 : kNotProposed);
  row[kValue] = value;
  if (prior.kind == Kind::categorical) {
    row[kParameters] = static_cast<double>(prior.p.size());
  } else {
    for (std::size_t i = 0; i < std::min(prior.p.size(), kRowParameters); ++i)
      row[kParameters + i] = prior.p[i];
  }
  return row;
}

Run::Run(Sampler& sampler, std::span<const Observed> arrays, NameTable& names, Random& random)
    : sampler_(sampler),
      arrays_(arrays),
      names_(names),
      random_(random),
      number_(names.begin_run()),
      replica_random_(random.beside()) {
  functions_ = {this, &Run::sample, &Run::sample_until, &Run::observe, &Run::tag};
  for (const Observed& array : arrays) {
    result_.observed.emplace_back(array.values, kNan);
    scores_ = scores_ || !array.truth.empty();
  }
  if (scores_) result_.replicas = result_.observed;
  sampler_.begin();
}

RunResult Run::finish() {
  flush_replaced();
  TypeHash type;
  for (const TraceDraw& draw : result_.draws) type.add(draw.name->hash);
  result_.type = type.value();
  for (std::size_t k = 0; k < arrays_.size() && result_.mistake.empty(); ++k) {
    const auto missing =
        std::ranges::find_if(result_.observed[k], [](double x) { return !std::isfinite(x); });
    if (missing == result_.observed[k].end()) continue;
    const auto index = missing - result_.observed[k].begin();
    mistaken(std::isnan(*missing) ? fmt::format("value {} of '{}' was not observed", index, arrays_[k].name)
                                  : fmt::format("value {} of '{}' is infinite", index, arrays_[k].name));
  }
  return std::move(result_);
}

bool Run::mistaken(const std::string& sentence) {
  if (result_.mistake.empty()) result_.mistake = sentence;
  return true;
}

// The functions are called from C: no exception leaves them.
template <class Body>
double Run::guarded(Body body) {
  if (++calls_ > kMostCalls) mistaken(fmt::format("the run has made more than {} draws", kMostCalls));
  if (!result_.mistake.empty()) {
    if (++calls_after_mistake_ < kMostCallsAfterMistake) return kNan;
    std::fprintf(stderr, "the simulator did not return after its mistake: %s\n", result_.mistake.c_str());
    std::abort();
  }
  try {
    return body();
  } catch (const std::exception& error) {
    mistaken(error.what());
    return kNan;
  }
}

Distribution Run::checked(const char* address, const ::wflow_distribution* distribution) {
  if (address == nullptr || *address == '\0') throw std::invalid_argument("a draw has no address");
  if (distribution == nullptr || distribution->parameters == nullptr || distribution->kind >= kKinds)
    throw std::invalid_argument(fmt::format("'{}' has no distribution", address));
  const Distribution d = {static_cast<Kind>(distribution->kind),
                          {distribution->parameters, distribution->count}};
  const std::string problem = problem_of(d);
  if (!problem.empty()) throw std::invalid_argument(fmt::format("'{}' is {}", address, problem));
  return d;
}

void Run::keep(Name& name, const Distribution& prior, double value) {
  note_kind(names_, name, prior, true);
  const Row row = row_of(name.hash, prior, value, true);
  sampler_.add(name.hash, row);
  if (scores_) result_.log_prior += log_density(prior, value);
  result_.draws.push_back({&name, row, true});
}

double Run::sample(void* run, const char* address, const ::wflow_distribution* distribution,
                   std::uint32_t flags) {
  Run& self = *static_cast<Run*>(run);
  return self.guarded([&] {
    const Distribution prior = self.checked(address, distribution);
    if ((flags & WFLOW_REPLACE) != 0) return self.sample_replaced(self.names_.find(address), prior);
    self.flush_replaced();
    return self.sample_once(self.names_.next(address, self.number_), prior);
  });
}

double Run::sample_once(Name& name, const Distribution& prior) {
  const Sampler::Choice choice = sampler_.choose({name, prior}, random_);
  if (!sampler_.is_prior()) result_.log_ratio += log_density(prior, choice.value) - choice.log_density;
  keep(name, prior, choice.value);
  return choice.value;
}

// The draws of the earlier turn of the simulator's loop, from this address on, do not count.
double Run::sample_replaced(Name& name, const Distribution& prior) {
  const auto earlier = std::ranges::find(replaced_, &name, &TraceDraw::name);
  replaced_.erase(earlier, replaced_.end());
  note_kind(names_, name, prior, false);
  const double value = sampler_.loops() == Sampler::Loops::every_try
                           ? sampler_.choose({name, prior, ++attempts_[&name]}, random_).value
                           : draw(prior, random_);
  replaced_.push_back({&name, row_of(name.hash, prior, value, false), false});
  return value;
}

void Run::flush_replaced() {
  for (TraceDraw& draw : replaced_) {
    sampler_.add(draw.name->hash, draw.row);
    const double kind = draw.row[kKind] - kNotProposed;
    if (kind != static_cast<double>(Kind::categorical)) result_.log_prior += features_of(draw.row).log_prior;
    result_.draws.push_back(draw);
  }
  replaced_.clear();
}

int Run::sample_until(void* run, const char* address, const ::wflow_distribution* distributions,
                      std::uint32_t count, double* values, Accept accept, void* user) {
  Run& self = *static_cast<Run*>(run);
  const std::span<double> to(values, count);
  std::ranges::fill(to, kNan);
  const double done = self.guarded([&] {
    if (accept == nullptr || count == 0) throw std::invalid_argument("a loop has no draws, or no test");
    self.flush_replaced();
    Loop loop = {{}, {}, accept, user};
    for (std::uint32_t i = 0; i < count; ++i) {
      loop.priors.push_back(self.checked(address, &distributions[i]));
      loop.names.push_back(count == 1 ? &self.names_.next(address, self.number_)
                                      : &self.names_.next(fmt::format("{}[{}]", address, i), self.number_));
    }
    if (self.sampler_.loops() == Sampler::Loops::every_try) {
      self.sample_every_try(loop, to);
    } else {
      self.sample_loop(loop, to);
    }
    return 0.0;
  });
  return std::isnan(done) ? 1 : 0;
}

bool Run::accepts(const Loop& loop, std::span<const double> values) {
  return loop.accept(loop.user, values.data()) != 0;
}

// One try of the sampler's choices. `log_ratio`: of the draws' density to that of the choices.
bool Run::try_loop(const Loop& loop, std::span<double> values, double& log_ratio) {
  sampler_.restore();
  log_ratio = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Name& name = *loop.names[i];
    const Sampler::Choice choice = sampler_.choose({name, loop.priors[i]}, random_);
    values[i] = choice.value;
    if (sampler_.is_prior()) continue;
    log_ratio += log_density(loop.priors[i], choice.value) - choice.log_density;
    if (i + 1 < values.size()) sampler_.add(name.hash, row_of(name.hash, loop.priors[i], choice.value, true));
  }
  return accepts(loop, values);
}

// The logarithm of the share of the choices that the loop accepts, an unbiased estimate of the share.
double Run::log_acceptance(const Loop& loop) {
  std::vector<double> values(loop.priors.size());
  double ratio = 0;
  int accepted = 0;
  for (int i = 0; i < kAcceptanceTries; ++i) accepted += try_loop(loop, values, ratio) ? 1 : 0;
  return std::log(static_cast<double>(accepted) / kAcceptanceTries);
}

// The logarithm of the mean number of tries with draws from the distributions: an unbiased estimate of one
// over the probability that the loop accepts.
double Run::log_tries(const Loop& loop) {
  std::vector<double> values(loop.priors.size());
  std::uint64_t tries = 0;
  for (int i = 0; i < kAcceptanceTries; ++i) {
    do {
      if (++tries > kMostTries)
        throw std::runtime_error(fmt::format("the loop at '{}' accepts less than one of {} tries",
                                             loop.names.front()->text, kMostTries));
      for (std::size_t k = 0; k < values.size(); ++k) values[k] = draw(loop.priors[k], random_);
    } while (!accepts(loop, values));
  }
  return std::log(static_cast<double>(tries) / kAcceptanceTries);
}

// With proposals: amortised rejection sampling (Naderiparizi et al. 2019, arXiv:1910.09056, algorithm 2). The
// accepted draw has the density q / Q instead of p / P, where Q and P are the probabilities of acceptance;
// both are estimated without bias.
void Run::sample_loop(const Loop& loop, std::span<double> values) {
  const bool steered = sampler_.loops() == Sampler::Loops::proposals;
  sampler_.save();
  double correction = 0;
  if (steered) {
    correction = log_acceptance(loop);
    correction += log_tries(loop);
  }
  double ratio = 0;
  std::uint64_t tries = 0;
  do {
    if (++tries > kMostTries)
      throw std::runtime_error(
          fmt::format("the loop at '{}' accepted none of {} tries", loop.names.front()->text, kMostTries));
  } while (!try_loop(loop, values, ratio));
  if (steered) result_.log_ratio += ratio + correction;
  sampler_.restore();
  for (std::size_t i = 0; i < values.size(); ++i) keep(*loop.names[i], loop.priors[i], values[i]);
}

void Run::sample_every_try(const Loop& loop, std::span<double> values) {
  for (std::uint64_t tries = 1;; ++tries) {
    if (tries > kMostTries)
      throw std::runtime_error(
          fmt::format("the loop at '{}' accepted none of {} tries", loop.names.front()->text, kMostTries));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = sampler_.choose({*loop.names[i], loop.priors[i], tries}, random_).value;
    if (accepts(loop, values)) break;
  }
  for (std::size_t i = 0; i < values.size(); ++i) keep(*loop.names[i], loop.priors[i], values[i]);
}

double Run::observe(void* run, const char* array, std::uint64_t index,
                    const ::wflow_distribution* distribution) {
  Run& self = *static_cast<Run*>(run);
  return self.guarded([&] { return self.observe_value(array, index, self.checked(array, distribution)); });
}

double Run::observe_value(const char* array, std::uint64_t index, const Distribution& distribution) {
  if (array_ >= arrays_.size() || arrays_[array_].name != array) {
    const auto found = std::ranges::find(arrays_, std::string_view(array), &Observed::name);
    if (found == arrays_.end())
      throw std::invalid_argument(fmt::format("'{}' is observed, and the plugin has no such array", array));
    array_ = static_cast<std::size_t>(found - arrays_.begin());
  }
  const Observed& known = arrays_[array_];
  if (index >= known.values)
    throw std::invalid_argument(
        fmt::format("value {} of '{}' is observed, which has {}", index, array, known.values));
  double& value = result_.observed[array_][index];
  if (!std::isnan(value))
    throw std::invalid_argument(fmt::format("value {} of '{}' is observed twice", index, array));
  value = known.truth.empty() ? draw(distribution, random_) : known.truth[index];
  if (scores_) {
    result_.log_likelihood += log_density(distribution, value);
    const double replica = draw(distribution, replica_random_);
    result_.log_likelihood_of_replicas += log_density(distribution, replica);
    result_.replicas[array_][index] = replica;
  }
  return value;
}

void Run::tag(void* run, const char* name, double value) {
  Run& self = *static_cast<Run*>(run);
  self.guarded([&] {
    if (name == nullptr || *name == '\0') throw std::invalid_argument("a tag has no name");
    if (!std::isfinite(value)) throw std::invalid_argument(fmt::format("the tag '{}' is {:g}", name, value));
    self.result_.tags[name] = value;
    return 0.0;
  });
}

}  // namespace wflow::traces
