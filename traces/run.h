// SPDX-License-Identifier: Apache-2.0
// One run of a simulator that takes its draws from wflow: names the draws, asks a sampler for their values,
// and draws or scores what the simulator observes. The functions of traces/wflow_trace.h end here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "traces/distribution.h"
#include "traces/names.h"
#include "traces/wflow_trace.h"

namespace wflow::traces {

// Where a value is drawn. Name and attempt are unique in a run.
struct Site {
  const Name& name;
  Distribution prior;
  std::uint64_t attempt = 0;  // in a loop whose every try is a draw: from 1 on
};

// Gives the values of a run's draws.
class Sampler {
 public:
  struct Choice {
    double value = 0;
    double log_density = 0;  // of the choice
  };
  virtual ~Sampler() = default;
  virtual void begin() {}
  virtual Choice choose(const Site& site, Random& random) = 0;
  // True if choices are draws from the prior: nothing is to be weighted.
  virtual bool is_prior() const { return false; }
  // A draw that stays in the trace.
  virtual void add(std::uint64_t /*hash*/, std::span<const double> /*row*/) {}
  // In a loop that repeats until it accepts: the state before it, to come back to.
  virtual void save() {}
  virtual void restore() {}
  // prior: loops draw from the distributions. proposals: loops draw from the sampler's choices, and the run
  // corrects the weight. every_try: each try is a draw of its own.
  enum class Loops { prior, proposals, every_try };
  virtual Loops loops() const { return Loops::prior; }
};

class PriorSampler final : public Sampler {
 public:
  // Without the density of the choice.
  Choice choose(const Site& site, Random& random) override { return {draw(site.prior, random), 0}; }
  bool is_prior() const override { return true; }
};

// An array that the simulator observes.
struct Observed {
  std::string name;
  std::size_t values = 0;
  std::span<const double> truth;  // the observation; empty: drawn
};

struct TraceDraw {
  Name* name = nullptr;
  Row row{};
  bool proposed = true;
};

struct RunResult {
  std::vector<TraceDraw> draws;
  std::vector<std::vector<double>> observed;  // of each array; NaN where nothing was observed
  std::map<std::string, double> tags;
  double log_prior = 0;       // of the draws; 0 in a run that draws what it observes
  double log_likelihood = 0;  // of the observed values; the same
  // Of a run that scores an observation: other values from the same distributions, as the simulator could
  // have made them.
  std::vector<std::vector<double>> replicas;
  double log_likelihood_of_replicas = 0;
  double log_ratio = 0;    // of the draws' density to that of their choice, with the loops' correction
  std::uint64_t type = 0;  // the hash of the addresses in order, 48 bits
  std::string mistake;     // empty, or a sentence
  int exit_code = 1;       // of a run with a mistake
  double log_weight() const { return log_ratio + log_likelihood; }
};

class Run {
 public:
  // `names` outlive the result.
  Run(Sampler& sampler, std::span<const Observed> arrays, NameTable& names, Random& random);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  ::wflow_trace* functions() { return &functions_; }
  // Once, after the simulator's trace() has returned.
  RunResult finish();

 private:
  static double sample(void* run, const char* address, const ::wflow_distribution* distribution,
                       std::uint32_t flags);
  static int sample_until(void* run, const char* address, const ::wflow_distribution* distributions,
                          std::uint32_t count, double* values, int (*accept)(void*, const double*),
                          void* user);
  static double observe(void* run, const char* array, std::uint64_t index,
                        const ::wflow_distribution* distribution);
  static void tag(void* run, const char* name, double value);

  using Accept = int (*)(void*, const double*);
  // A loop's draws, and the test that ends it.
  struct Loop {
    std::vector<Name*> names;
    std::vector<Distribution> priors;
    Accept accept = nullptr;
    void* user = nullptr;
  };

  template <class Body>
  double guarded(Body body);
  bool mistaken(const std::string& sentence);
  Distribution checked(const char* address, const ::wflow_distribution* distribution);
  double sample_once(Name& name, const Distribution& prior);
  double sample_replaced(Name& name, const Distribution& prior);
  void sample_loop(const Loop& loop, std::span<double> values);
  void sample_every_try(const Loop& loop, std::span<double> values);
  bool try_loop(const Loop& loop, std::span<double> values, double& log_ratio);
  double log_acceptance(const Loop& loop);
  double log_tries(const Loop& loop);
  bool accepts(const Loop& loop, std::span<const double> values);
  double observe_value(const char* array, std::uint64_t index, const Distribution& distribution);
  void keep(Name& name, const Distribution& prior, double value);
  void flush_replaced();

  Sampler& sampler_;
  std::span<const Observed> arrays_;
  NameTable& names_;
  Random& random_;
  std::uint64_t number_;   // of the run
  bool scores_ = false;    // the densities of draws and observed values are wanted
  Random replica_random_;  // so that replicas change no draw
  ::wflow_trace functions_{};
  RunResult result_;
  std::map<const Name*, std::uint64_t> attempts_;  // at a draw of the simulator's own loop, if each is a draw
  std::vector<TraceDraw> replaced_;                // of a loop of the simulator's own, which may come again
  std::size_t array_ = 0;                          // the one observed last
  std::uint64_t calls_ = 0;
  std::uint64_t calls_after_mistake_ = 0;
};

Row row_of(std::uint64_t hash, const Distribution& prior, double value, bool proposed);

}  // namespace wflow::traces
