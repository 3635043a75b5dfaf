// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/run_report.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "trainer/training/contest.h"
#include "trainer/training/report.h"

namespace wflow::trainer {
namespace {

constexpr double kProgressEverySeconds = 0.5;

std::optional<std::int64_t> known_flops(const ModelGraph& graph) {
  if (graph.is_module()) return std::nullopt;
  return graph.training_flops();
}

std::string trainer_words(const Contest* contest) {
  if (contest == nullptr || contest->trainers() == 1) return {};
  return fmt::format("trainer {}/{} ", contest->trainer() + 1, contest->trainers());
}

// The events of a tournament are those of its first trainer.
bool sends_events(const Session& session) {
  const Contest* contest = session.options.contest;
  return session.leader() && (contest == nullptr || contest->in_task() || contest->trainer() == 0);
}

}  // namespace

RunReport::RunReport(const Session& session)
    : leader_(session.leader()),
      trainer_(trainer_words(session.options.contest)),
      is_alone_(session.options.members == 1 && session.options.contest == nullptr),
      output_(session.config.output),
      labels_(session.data.labels()),
      member_(session.options.member),
      members_(session.options.members),
      epochs_(session.config.epochs),
      total_steps_(session.plan.total_steps()),
      batch_grows_(!session.config.schedule.batch_epochs.empty()),
      stops_early_(session.config.early_stop_epochs > 0),
      training_flops_(known_flops(session.graph)),
      metrics_written_(session.options.metrics_written),
      events_(sends_events(session) ? EventWriter::from_environment() : EventWriter("")),
      tensorboard_(output_ / "tensorboard") {}

void RunReport::say(const std::string& line) const {
  if (!leader_) return;
  std::fputs((trainer_ + line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void RunReport::note(const std::string& sentence) {
  events_.note(members_ == 1 ? trainer_ + sentence
                             : fmt::format("member {} of {}: {}", member_ + 1, members_, sentence));
}

void RunReport::warn(const std::string& sentence) {
  std::fprintf(stderr, "wflow-train: warning: %s%s\n", trainer_.c_str(), sentence.c_str());
  note(sentence);
}

void RunReport::progress(std::int64_t step) {
  if (!leader_ || (seconds_since(last_progress_) < kProgressEverySeconds && step < total_steps_)) return;
  last_progress_ = Clock::now();
  events_.progress(step_of_all(step), static_cast<std::uint64_t>(members_ * total_steps_), "steps");
}

void RunReport::repeat(const std::vector<EpochRow>& history) {
  for (const EpochRow& row : history) epoch_events(row);
}

void RunReport::begin_tensorboard(const std::vector<EpochRow>& history) {
  if (leader_) tensorboard_.begin(history);
}

void RunReport::epoch_finished(const TrainingCounters& counters) {
  if (!leader_) return;
  const EpochRow& row = counters.history.back();
  say((members_ == 1 ? "" : fmt::format("member {}/{} ", member_ + 1, members_)) + epoch_line(row, epochs_));
  if (counters.stopped_early && stops_early_)
    say(fmt::format("no better validation since epoch {}: stopped early", counters.best_epoch));
  epoch_events(row);
  tensorboard_.add(row);
  write_metrics(counters);
}

void RunReport::slow_node(const SlowNodeNews::News& news, const TrainingCounters& counters) {
  announce(news.sentence());
  metric("slow_node/" + (news.node.several_nodes ? news.node.node : news.node.name), news.node.factor,
         counters.epoch, counters.step);
}

void RunReport::ask_to_exclude(const SlowNode& node) {
  events_.emit({{"type", "exclude_node"}, {"node", node.node}, {"reason", node.sentence()}});
}

void RunReport::ask_for_no_more(const std::string& reason) {
  say(reason);
  events_.emit({{"type", "enough_samples"}, {"reason", reason}});
}

void RunReport::write_metrics(const TrainingCounters& counters) const {
  write_file_durably(output_ / "metrics.csv", metrics_csv(labels_, counters.history));
  write_file_durably(output_ / "metrics.jsonl", metrics_jsonl(counters.history, counters.tournament.bouts));
  if (metrics_written_) metrics_written_();
}

void RunReport::checkpoint_written(const CheckpointDirectory::Written& written, std::int64_t epoch,
                                   std::int64_t step) {
  events_.checkpoint(written.path.string(), written.hash, epoch_of_all(epoch), step_of_all(step));
}

void RunReport::results(const Evaluation& test, const TrainingCounters& counters,
                        const std::filesystem::path& model, const std::filesystem::path& predictions) {
  if (!is_alone_) return;
  for (const TargetErrors& t : test.targets) {
    if (t.ratio()) metric("test_mae_ratio/" + t.label, *t.ratio(), counters.epoch, counters.step);
    for (const NamedMetric& one : main_metrics_of(t))
      if (one.value)
        metric(fmt::format("test_{}/{}", one.name, t.label), *one.value, counters.epoch, counters.step);
  }
  events_.artifact("model", model.string());
  events_.artifact("predictions", predictions.string());
}

void RunReport::metric(const std::string& name, double value, std::int64_t epoch, std::int64_t step) {
  events_.metric(name, value, epoch_of_all(epoch), step_of_all(step));
}

void RunReport::epoch_events(const EpochRow& row) {
  const std::int64_t epoch = row.epoch;
  const std::int64_t at = row.step;
  metric("train_loss", row.train_loss, epoch, at);
  if (!row.validation.targets.empty()) metric("validation_loss", row.validation.loss, epoch, at);
  for (const Evaluation::Head& head : row.validation.heads)
    metric("validation_loss/" + head.name, head.loss, epoch, at);
  for (const TargetErrors& t : row.validation.targets) {
    if (t.ratio()) metric("validation_mae_ratio/" + t.label, *t.ratio(), epoch, at);
    for (const NamedMetric& one : main_metrics_of(t))
      if (one.value) metric(fmt::format("validation_{}/{}", one.name, t.label), *one.value, epoch, at);
  }
  metric("learning_rate", row.learning_rate, epoch, at);
  if (batch_grows_) metric("batch", static_cast<double>(row.batch), epoch, at);
  if (const std::optional<double> scale = row.noise.scale()) metric("noise_scale", *scale, epoch, at);
  metric("samples_per_second", row.samples_per_second, epoch, at);
  if (training_flops_) {
    const double flops = static_cast<double>(*training_flops_) * row.samples_per_second;  // over all ranks
    metric("gflops", flops * 1e-9, epoch, at);
  }
  metric("data_wait", row.data_wait, epoch, at);
  metric("exposed_communication", row.exposed_communication, epoch, at);
}

}  // namespace wflow::trainer
