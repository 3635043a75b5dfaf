// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "trainer/model/network.h"
#include "trainer/training/common_guard.h"
#include "trainer/training/contest.h"
#include "trainer/training/evaluation.h"
#include "trainer/training/heads.h"
#include "trainer/training/pictures.h"
#include "trainer/training/recovery.h"
#include "trainer/training/report.h"
#include "trainer/training/rounds.h"
#include "trainer/training/run_report.h"
#include "trainer/training/search.h"
#include "trainer/training/training_loop.h"
#include "trainer/training/training_state.h"
#include "trainer/training/training_step.h"
#include "trainer/training/updates.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

// Every rank finds the same error.
void check_the_data(Session& session, RunReport& report) {
  RunData& data = session.data;
  const SplitSizes sizes = {data.train().size(), data.validation().size(), data.test().size()};
  try {
    for (const std::string& warning : check_data(session.config, data.info(), data.roles(), sizes))
      if (session.leader()) report.warn(warning);
  } catch (const Error& error) {
    throw CommonError(error.code(), error.what());
  }
}

void check_device(const Session& session) {
  if (session.config.shard != Shard::weights || compute_device() == "cpu") return;
  throw CommonError(ExitCode::spec,
                    "'shard: weights' is for processors: on a GPU the network has a copy of all weights; say "
                    "'shard: gradients'");
}

void warn_of_quantiles(const Session& session, RunReport& report) {
  if (!session.leader()) return;
  for (const std::string& field : session.data.normalised_otherwise()) {
    report.warn(
        fmt::format("the field {} has a quantile normalisation, which a model can't hold: it is "
                    "normalised by mean and deviation",
                    field));
  }
}

// After the networks are made: they load libtorch where they need it, and its products are the BLAS's.
void warn_of_slow_products(const Session& session, RunReport& report) {
  constexpr double kSlowGflops = 10;
  if (!session.leader()) return;
  const double gflops = measure_blas_gflops();
  if (gflops >= kSlowGflops) return;
  report.warn(fmt::format(
      "the BLAS library does {:.1f} GFLOP/s, an optimised one tens; install libopenblas0 (Debian) "
      "or see docs/train.md",
      gflops));
}

// `use`: "the search ranks by 'accuracy'", for messages.
void check_metric(Session& session, const MetricName& metric, const std::string& use) {
  const std::vector<std::string> labels = session.data.labels();
  if (!metric.target.empty() && std::ranges::find(labels, metric.target) == labels.end())
    throw CommonError(ExitCode::spec,
                      fmt::format("{}, and the targets are {}", use, text::join(labels, ", ")));
  std::int64_t classes = 0;
  std::set<std::string> kinds;
  bool is_there = false;
  const std::vector<HeadConfig> heads = heads_of(session.config);
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const TargetKind kind = kind_of(heads[h].loss.name);
    kinds.insert(name_of(kind));
    if (!metric.is_of(kind)) continue;
    is_there = true;
    classes = std::max(classes, session.data.targets()[h].classes);
  }
  if (!is_there)
    throw CommonError(
        ExitCode::spec,
        fmt::format("{}, which this training does not have: it learns {}; choose another metric", use,
                    fmt::join(kinds, " and ")));
  if (metric.of_class && static_cast<std::int64_t>(*metric.of_class) >= classes)
    throw CommonError(ExitCode::spec,
                      fmt::format("{}, and the classes have the numbers 0 to {}", use, classes - 1));
}

// Before the first epoch: not after every training of the search has run in vain.
void check_metrics(Session& session) {
  const bool validates = session.data.validation().size() > 0;
  if (!session.config.metric.is_loss() && !validates)
    throw CommonError(
        ExitCode::spec,
        fmt::format("'metric: {}' is of the validation samples, and the data set has none; leave "
                    "'metric' out, or raise the second fraction of 'split'",
                    session.config.metric.text()));
  check_metric(session, session.config.metric,
               fmt::format("epochs are compared by '{}'", session.config.metric.text()));
  if (session.config.tournament.trainers > 1) {
    if (!validates)
      throw CommonError(ExitCode::spec,
                        "a tournament ranks its models on the validation samples, and the data set has none; "
                        "raise the second fraction of 'split'");
    for (const MetricName& metric : tournament_metrics(session.config))
      check_metric(session, metric, fmt::format("the tournament judges by '{}'", metric.text()));
  }
  const SearchConfig& search = session.options.search;
  if (!search.on()) return;
  const auto metric = search_metric(search.metric);
  if (metric && !validates)
    throw CommonError(ExitCode::spec,
                      fmt::format("the search ranks by '{}', and the data set has no validation samples; say "
                                  "'metric: train_loss', or split some off",
                                  search.metric));
  if (metric) check_metric(session, *metric, fmt::format("the search ranks by '{}'", search.metric));
}

void report_subset(const Session& session, RunReport& report) {
  if (session.data.subset() == nullptr) return;
  const HeldSubset::Report& held = session.data.subset()->report();
  const SubsetDraw& draw = session.data.subset()->draw();
  report.announce(fmt::format(
      "each of {} ranks trains on {} draws from {} samples (seed {}): {} distinct ones in all, {} to "
      "{} on a rank, {} in {:.2f} s ({})",
      draw.subsets, draw.size, draw.samples, draw.seed, held.all, held.least, held.most,
      text::format_bytes(held.bytes), held.seconds, name_of(session.config.stage)));
}

void report_staging(const Session& session, RunReport& report) {
  if (session.data.staging() == nullptr) return;
  const Staging::Report& staged = session.data.staging()->report();
  report.announce(fmt::format("staged {} shards, {}, in {:.2f} s on {} node{} ({})", staged.shards,
                              text::format_bytes(staged.bytes), staged.seconds, staged.groups,
                              staged.groups == 1 ? "" : "s", name_of(session.config.stage)));
}

void report_sharing(const Session& session, RunReport& report) {
  if (!session.sharing) return;
  if (session.sharing->parts)
    report.announce(
        fmt::format("each sample is computed in {} parts (depth x height x width), with the same "
                    "bits on any number of ranks",
                    text_of(session.sharing->distribution.grid)));
  const SpaceGrid& grid = session.sharing->grid;
  if (grid.ranks() == 1) return;
  report.announce(fmt::format("{} ranks share each sample, in {} parts (depth x height x width); {} group{}",
                              grid.ranks(), text_of(grid), session.plan.order.ranks,
                              session.plan.order.ranks == 1 ? "" : "s"));
}

void report_groups(const Session& session, RunReport& report) {
  if (!session.local) return;
  const GroupsConfig& groups = session.config.groups;
  report.announce(fmt::format(
      "{} group{} of {} rank{} each; outer step after {} steps of an epoch and at its end, rate {:g}, "
      "momentum {:g}",
      session.local->count, session.local->count == 1 ? "" : "s", session.local->ranks->size(),
      session.local->ranks->size() == 1 ? "" : "s", groups.steps, groups.outer.rate, groups.outer.momentum));
}

// result.json compares the plan with the training.
void report_plan(const Session& session, RunReport& report) {
  if (!session.training_plan) return;
  std::string lines = describe(*session.training_plan);
  lines.pop_back();  // the end of the last line
  report.say(lines);
  for (const std::string& remark : session.training_plan->remarks) report.say(remark);
}

void report_class_weights(const Objective& objective, RunReport& report) {
  const TargetShape& shape = objective.shape();
  if (shape.class_counts.empty()) return;
  double all = 0;
  for (const std::uint64_t count : shape.class_counts) all += static_cast<double>(count);
  std::vector<std::string> classes;
  for (std::size_t k = 0; k < std::min(shape.class_counts.size(), kMostDetailedClasses); ++k)
    classes.push_back(fmt::format("{} {:.3g} ({:.3g} %)", k, objective.config().class_weights[k],
                                  100 * static_cast<double>(shape.class_counts[k]) / all));
  report.say(fmt::format("class weights of {} (share of the training cells): {}", shape.labels.front(),
                         text::join(classes, ", ")));
}

EarlyStop early_stop_of(const TrainConfig& config) {
  return {config.early_stop_epochs, config.min_improvement, config.metric};
}

// With `decay: plateau`, lowers the rate of the epochs to come where the validation has stopped improving.
void follow_plateaus(const TrainConfig& config, TrainingCounters& counters, RunReport& report) {
  if (config.schedule.decay != Decay::plateau) return;
  const std::int64_t before = counters.plateaus;
  counters.plateaus =
      plateaus_in(counters.history, {config.schedule.plateau_epochs, config.min_improvement, config.metric});
  if (counters.plateaus == before) return;
  report.announce(fmt::format("no better validation in {} epochs: the learning rate falls after epoch {}",
                              config.schedule.plateau_epochs, counters.epoch));
}

// samples/picture-0012.png: what the head `picture` has made after epoch 12.
void write_mosaic(const Session& session, const Made& made, std::int64_t epoch) {
  if (!is_picture(made.shape) || made.values.empty()) return;
  const fs::path folder = fs::path(session.config.output) / "samples";
  fs::create_directories(folder);
  write_file_durably(folder / fmt::format("{}-{:04}.png", made.head, epoch), mosaic_png(made));
}

void pass_epoch(TrainingCounters& counters, const EpochRow& row) {
  counters.history.push_back(row);
  ++counters.epoch;
  counters.step_of_epoch = 0;
  counters.epoch_loss = 0;
  counters.epoch_samples = 0;
  counters.epoch_seconds = 0;
  counters.epoch_noise = {};
}

// An epoch that a trainer of a tournament waits through, because its model has diverged.
EpochRow epoch_of_waiting(const Session& session, const TrainingCounters& counters) {
  EpochRow row;
  row.epoch = counters.epoch + 1;
  row.step = session.plan.first_step(row.epoch);
  row.train_loss = std::numeric_limits<double>::quiet_NaN();
  row.validation.loss = row.train_loss;
  row.batch = static_cast<std::int64_t>(session.plan.order_in(counters.epoch).batch);
  return row;
}

// Validates, moves the counters on to the next epoch, writes checkpoints and reports.
void finish_epoch(Session& session, TrainingCounters& counters, Evaluator& evaluator, Recovery& recovery,
                  RunReport& report, EpochRow row) {
  const TrainConfig& config = session.config;
  if (session.data.validation().size() > 0) row.validation = evaluator.validate();
  for (const Made& made : evaluator.made()) write_mosaic(session, made, row.epoch);
  const double value = value_of(row, config.metric);
  const bool best =
      counters.best_epoch == 0 || is_better(value, counters.best_value, config.metric.larger_is_better());
  if (best) {
    counters.best_value = value;
    counters.best_epoch = row.epoch;
  }
  pass_epoch(counters, row);
  Progress progress(early_stop_of(config));
  for (const EpochRow& epoch : counters.history) progress.add(value_of(epoch, config.metric));
  counters.stopped_early = progress.has_stopped() || !goal_met(config, row).empty();
  follow_plateaus(config, counters, report);
  if (best && config.select == Select::best) recovery.write_best();
  const bool last = counters.epoch == session.plan.end_epoch || counters.stopped_early;
  const std::int64_t every = config.checkpoint.every_epochs;
  if (last || (every > 0 && counters.epoch % every == 0)) recovery.write();
  report.epoch_finished(counters);
}

// Runs of the loop, with steps back of the guard between them.
struct Attempts {
  TrainingLoop& loop;
  Recovery& recovery;
  CommonGuard& guard;
  Updates& updates;
  Rounds* rounds;  // nullptr: no other trainers, and an error of the model ends the training

  TrainingLoop::End go_on(TrainingLoop::End before) {
    try {
      if (before == TrainingLoop::End::unsound) {
        recovery.go_back(guard);
        updates.values_changed();
      }
      return loop.run();
    } catch (const NotFinite& error) {
      if (rounds == nullptr) throw;
      rounds->lose(error.what());
    } catch (const GuardGaveUp& error) {
      if (rounds == nullptr) throw;
      rounds->lose(error.what());
    }
    return TrainingLoop::End::lost;
  }
};

// A stage leaves its checkpoint, and says if the simulations can end.
void end_stage(Session& session, const TrainingCounters& counters, RunReport& report) {
  const TrainConfig& config = session.config;
  if (session.leader()) report.write_metrics(counters);
  const std::string goal = counters.history.empty() ? "" : goal_met(config, counters.history.back());
  if (!goal.empty()) {
    const std::size_t samples = session.data.validation().size();
    if (session.leader()) write_goal(config, counters.history.back(), samples);
    report.ask_for_no_more(fmt::format("{}, over {} samples", goal, samples));
  }
  report.say(fmt::format("stage {} of {} ends at {} epochs over {} training samples", config.follow.stage,
                         config.follow.stages, counters.epoch, session.data.train().size()));
}

Outcome run(Session& session) {
  const TrainConfig& config = session.config;
  const SearchConfig& search = session.options.search;
  const Clock::time_point begin = Clock::now();
  check_device(session);
  const Heads heads = network_heads(config, session.data.targets(), session.graph, session.modules);
  TrainingState state(session.graph, config.optimizer, config.ema, &session.summing(), config.parts,
                      alternating_parts(config), config.shard);
  if (config.groups.on() && config.groups.outer.momentum > 0)
    state.outer_momentum.assign(state.flat.values().size(), 0.0F);
  TrainingCounters& counters = state.counters;
  RunReport report(session);
  check_the_data(session, report);
  state.fill_initial_values(session.graph, initial_key(config));
  warn_of_quantiles(session, report);
  check_metrics(session);
  report_staging(session, report);
  report_subset(session, report);
  report_plan(session, report);
  report_sharing(session, report);
  report_groups(session, report);
  for (const Heads::Head& head : heads.all()) report_class_weights(head.objective, report);

  const CheckpointDirectory checkpoints(fs::path(config.output) / "checkpoints", config.checkpoint.keep_last);
  start_training(session, state, checkpoints, report);
  // After the start: a back end on a GPU copies the values when it is made.
  const std::unique_ptr<Network> network = session.network(state.flat);
  Updates updates(session, heads, state.flat, *network);
  warn_of_slow_products(session, report);
  CommonGuard guard(config.guard, session.communicator, session.summing(), report, updates.all().size());
  guard.begin_at(counters.step);
  Recovery recovery(session, state, checkpoints, report, begin);
  if (session.options.contest != nullptr && session.options.contest->is_beginning()) {
    recovery.write();
    recovery.finish();
    report.announce("the trainers have this normalisation in common");
    return Outcome::finished;
  }
  PassBuffers buffers;
  Evaluator evaluator(session, heads, state, *network, buffers);
  const auto stop_wanted = [&] {
    const bool out_of_time =
        session.leader() && config.max_seconds > 0 && seconds_since(begin) >= config.max_seconds;
    return out_of_time || (session.options.stop_asked && session.options.stop_asked());
  };
  TrainingStep step(session, heads, state, updates, buffers, guard, report, stop_wanted);
  LoopHooks hooks;
  hooks.step_done = [&] { report.progress(counters.step); };
  hooks.step_sound = [&] {
    if (recovery.is_due()) recovery.write();
  };
  hooks.epoch_done = [&](EpochRow row) {
    finish_epoch(session, counters, evaluator, recovery, report, std::move(row));
  };
  std::optional<Rounds> rounds;
  if (session.options.contest != nullptr)
    rounds.emplace(*session.options.contest, session, state, updates, evaluator, guard, report);
  if (rounds) {
    hooks.round_is_due = [&] { return rounds->is_due(); };
    hooks.hold_round = [&] {
      // Before a trainer goes on to the next round, all have their checkpoints of this one.
      recovery.wait();
      const AfterRound after = rounds->hold();
      if (after != AfterRound::stop) recovery.write();
      return after;
    };
  }
  hooks.node_slow = [&](const SlowNodeNews::News& news) {
    report.slow_node(news, counters);
    const bool goes_on = counters.epoch < session.plan.end_epoch && !counters.stopped_early;
    const bool excludes = config.exclude_slow > 0 && news.node.factor >= config.exclude_slow;
    if (!goes_on || !excludes || news.recovered || !news.node.several_nodes) return;
    const std::int64_t every = config.checkpoint.every_epochs;
    if (every == 0 || counters.epoch % every != 0) recovery.write();
    report.ask_to_exclude(news.node);
  };
  std::optional<LocalSteps> local;
  if (session.local) local.emplace(session, state, updates, guard, report);
  TrainingLoop loop(session, heads.terms(), state, step, guard, local ? &*local : nullptr, hooks);

  using End = TrainingLoop::End;
  const auto wait_for_round = [&] {
    return rounds->skip_to_next([&] { pass_epoch(counters, epoch_of_waiting(session, counters)); });
  };
  const bool has_partners = rounds && session.options.contest->trainers() > 1;
  Attempts attempts = {loop, recovery, guard, updates, has_partners ? &*rounds : nullptr};
  End end = counters.tournament.diverged ? End::lost : attempts.go_on(End::complete);
  while (end == End::unsound || (end == End::lost && wait_for_round())) end = attempts.go_on(end);
  if (session.options.contest != nullptr) session.options.contest->bouts = counters.tournament.bouts;
  if (end == End::lost) {
    recovery.finish();
    report.announce("has diverged after the last round: this trainer has no model");
    return Outcome::finished;
  }
  if (end == End::interrupted) {
    recovery.write();
    recovery.finish();
    if (rounds && rounds->part_ended()) {
      report.announce(fmt::format("the next task holds round {}, at step {}", counters.tournament.rounds + 1,
                                  counters.step));
      return Outcome::finished;
    }
    report.announce(fmt::format("stopped at epoch {}, step {}; the same command continues", counters.epoch,
                                counters.step));
    return Outcome::interrupted;
  }
  recovery.finish();
  if (search.on() && !search.is_last_rung()) {
    // A kill may have come between the last checkpoint and the metrics.
    if (session.leader()) report.write_metrics(counters);
    report.say(fmt::format("the search's rung {} ends at {} epochs", search.rung, session.plan.end_epoch));
    return Outcome::finished;
  }
  if (config.follow.is_stage()) {
    end_stage(session, counters, report);
    return Outcome::finished;
  }
  const SegmentTimes times = {begin,
                              evaluator.seconds(),
                              loop.data_wait_seconds(),
                              recovery.seconds(),
                              local ? local->seconds() : 0,
                              loop.step_seconds(),
                              loop.rank_times()};
  write_results(session, heads, state, *network, evaluator, checkpoints, report, times);
  if (search.on() && session.leader()) write_search(search, early_stop_of(config));
  return Outcome::finished;
}

// True for a training that the search has stopped: it reports that and has nothing more to do.
bool is_stopped_by_search(const SearchConfig& search, EarlyStop early_stop, Communicator& communicator) {
  if (search.rung < 2) return false;
  std::string stopped;  // set by rank 0: the files may not be visible to the others yet
  if (communicator.rank() == 0) {
    const auto own = static_cast<std::size_t>(search.training);
    const auto rung = static_cast<std::size_t>(search.rung);
    const auto standings =
        search_standings(search, rung - 1, read_search_curves(search, rung - 1, early_stop));
    const std::size_t most = trainings_in_rung(search, standings.size(), rung);
    const SearchStanding& first = standings.front();
    if (!std::isfinite(first.value))
      throw Error(
          ExitCode::data,
          fmt::format("no training of the search in {} has come to {} epochs with a {}",
                      search.folders.at(first.rung - 1), search.rungs[first.rung - 1], search.metric));
    const auto at = std::ranges::find(standings, own, &SearchStanding::training);
    const bool goes_on =
        at - standings.begin() < static_cast<std::ptrdiff_t>(most) && std::isfinite(at->value);
    EventWriter events = EventWriter::from_environment();
    const std::string standing = describe(search, *at);
    const std::string line = (goes_on ? "the search goes on: " : "stopped by the search: ") + standing;
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    events.metric(kSearchStoppedMetric, goes_on ? 0 : static_cast<double>(at->place), 0, 0);
    if (!goes_on) {
      stopped = line;
      if (at->rung + 1 == rung) events.note(line);  // once, not in every rung that follows
    }
  }
  communicator.broadcast(stopped);
  return !stopped.empty();
}

}  // namespace

Outcome train(const TrainConfig& config, Communicator& communicator, const RunOptions& options) {
  const SearchConfig& search = options.search;
  if (is_stopped_by_search(search, early_stop_of(config), communicator)) return Outcome::finished;
  try {
    const Followed stage = followed(config, communicator);
    if (!stage.done.empty()) {
      if (communicator.rank() == 0) std::printf("%s\n", stage.done.c_str());
      return Outcome::finished;
    }
    Session session(planned(stage.config, communicator), communicator, options);
    return run(session);
  } catch (const NotFinite& error) {
    if (!search.on() || search.is_last_rung()) throw;
    if (communicator.rank() == 0) {
      std::printf("%s\n", error.what());
      EventWriter::from_environment().note(fmt::format("out of the search: {}", error.what()));
    }
    return Outcome::finished;
  }
}

}  // namespace wflow::trainer
