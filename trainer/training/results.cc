// SPDX-License-Identifier: Apache-2.0
#include "traces/proposal_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/process.h"
#include "base/program_file.h"
#include "base/resources.h"
#include "base/text.h"
#include "trainer/model/network.h"
#include "trainer/model/parts.h"
#include "trainer/training/contest.h"
#include "trainer/training/pictures.h"
#include "trainer/training/report.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

constexpr double kMostPredictionError = 20;  // percent

// With `select: best`: restores the best weights in place of the last ones. Returns the epoch of the weights.
std::int64_t select_weights(Session& session, TrainingState& state, const CheckpointDirectory& checkpoints,
                            RunReport& report) {
  const TrainingCounters& counters = state.counters;
  if (session.config.select != Select::best || session.data.validation().size() == 0) return counters.epoch;
  std::unique_ptr<CheckpointFile> file;
  if (session.leader()) file = checkpoints.best([&](const std::string& sentence) { report.warn(sentence); });
  const auto best = SharedCheckpoint::share(session.communicator, std::move(file));
  if (best == nullptr) {
    const std::string warning = fmt::format(
        "the weights of epoch {}, the best in validation, are not there ({}/checkpoints/best.wfck): "
        "test and model are of epoch {}, the last one; --fresh trains anew",
        counters.best_epoch, session.config.output, counters.epoch);
    if (session.leader()) report.warn(warning);
    return counters.epoch;
  }
  restore_network(*best, state);
  report.say(fmt::format("using the weights of epoch {}, the best in validation", counters.best_epoch));
  return counters.best_epoch;
}

// The network with the outputs that are exported, and the inputs that they need. All, if none is exported.
PartModel exported_model(const Session& session) {
  const std::vector<HeadConfig> heads = heads_of(session.config);
  std::vector<std::size_t> exported;
  for (std::size_t h = 0; h < heads.size(); ++h)
    if (heads[h].is_exported()) exported.push_back(h);
  if (exported.empty()) return {session.graph, session.units()};
  return model_of_heads(session.graph, session.units(), exported);
}

void write_onnx(const Session& session, const PartModel& model, const FlatState& state, RunReport& report) {
  const ModelGraph& graph = model.graph;
  const fs::path path = fs::path(session.config.output) / "model.onnx";
  if (fits_onnx(graph)) return export_onnx(graph, state, model.units, path);
  fs::remove(path);  // left by an earlier run
  if (graph.is_module()) {
    report.say("model.onnx is not written: what is inside a TorchScript module is not known");
    return;
  }
  report.warn(fmt::format("the network has {} parameters, and an ONNX file holds 2 GiB: model.pt is there",
                          graph.parameter_count()));
}

// model-PART.pt and model-PART.onnx of the parts that are exported.
void write_parts(const Session& session, const FlatState& state) {
  const fs::path output = session.config.output;
  const ExportedUnits units = session.units();
  for (const PartConfig& part : session.config.parts) {
    if (!part.save) continue;
    const PartModel model = part_model(session.graph, units, part.name);
    export_model(model.graph, state, model.units, output / fmt::format("model-{}.pt", part.name));
    export_onnx(model.graph, state, model.units, output / fmt::format("model-{}.onnx", part.name));
  }
}

// proposals.bin of a trace_density, for wflow infer.
void write_proposals(const Session& session, const FlatState& state) {
  const auto layer = std::ranges::find(session.graph.layers, LayerKind::trace_density, &Layer::kind);
  if (layer == session.graph.layers.end()) return;
  std::vector<float> parameters;
  for (const ParameterSpec& spec : layer->parameters) {
    const FlatEntry& entry = *state.parameters().find(spec.name);
    const auto values = state.values().subspan(static_cast<std::size_t>(entry.offset),
                                               static_cast<std::size_t>(spec.count()));
    parameters.insert(parameters.end(), values.begin(), values.end());
  }
  const traces::ProposalNetwork::Sizes sizes = {static_cast<std::size_t>(layer->input.channels),
                                                static_cast<std::size_t>(layer->groups),
                                                static_cast<std::size_t>(layer->components)};
  write_file_durably(fs::path(session.config.output) / traces::kProposalFile,
                     traces::ProposalNetwork::text(sizes, *layer->addresses, parameters));
}

// A collective call. Null if nothing is staged.
nlohmann::json staging_result(Session& session) {
  if (const HeldSubset* subset = session.data.subset()) {
    const HeldSubset::Report& held = subset->report();
    return {{"where", name_of(session.config.stage)},
            {"subset", subset->draw().size},
            {"subsets", subset->draw().subsets},
            {"seed", subset->draw().seed},
            {"distinct", held.all},
            {"distinct_on_a_rank", {held.least, held.most}},
            {"bytes", held.bytes},
            {"seconds", held.seconds}};
  }
  const Staging* staging = session.data.staging();
  if (staging == nullptr) return {};
  const Staging::Report& report = staging->report();
  std::uint64_t fetched = 0;
  for (const std::uint64_t bytes :
       gather_values(session.communicator, std::vector<std::uint64_t>{staging->fetched_bytes()}))
    fetched += bytes;
  return {{"where", name_of(session.config.stage)},
          {"shards", report.shards},
          {"bytes", report.bytes},
          {"seconds", report.seconds},
          {"nodes", report.groups},
          {"fetched_bytes", fetched}};
}

std::vector<std::int64_t> ids_of(const CachedSplit& split) {
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < split.size(); ++i) ids.push_back(split.source().id(i));
  return ids;
}

std::unique_ptr<PredictionFile> prediction_file(const Session& session, const Heads& heads,
                                                const CachedSplit& split, std::int64_t epoch) {
  const RunData& data = session.data;
  PredictionFileDescription description;
  for (std::size_t h = 0; h < heads.all().size(); ++h)
    description.truths.push_back(data.truths(split.source(), h));
  description.data_hash = data.info().hash;
  description.epoch = epoch;
  return std::make_unique<PredictionFile>(fs::path(session.config.output) / "predictions.h5", heads,
                                          session.units().outputs, description, ids_of(split));
}

// A collective call: what each rank has read of the shards.
nlohmann::json reading_result(const Session& session) {
  const converters::ReadCounts own = session.data.read_counts();
  const std::vector<std::uint64_t> all =
      gather_values(session.communicator, std::vector<std::uint64_t>{own.read, own.decoded});
  std::vector<std::uint64_t> read;
  std::vector<std::uint64_t> decoded;
  for (std::size_t rank = 0; 2 * rank < all.size(); ++rank) {
    read.push_back(all[2 * rank]);
    decoded.push_back(all[2 * rank + 1]);
  }
  return {{"bytes_this_segment", read}, {"decoded_bytes_this_segment", decoded}};
}

// Parts of each sample along depth, height and width; null if each rank has samples of its own.
nlohmann::json grid_result(const Session& session) {
  if (!session.sharing || session.sharing->grid.ranks() == 1) return {};
  return session.sharing->grid.parts;
}

// A number that was predicted, and the same number of the training.
struct Comparison {
  std::optional<double> predicted;
  std::optional<double> measured;
  std::optional<double> error_percent() const {
    if (!predicted || !measured || *measured <= 0) return std::nullopt;
    return 100 * (*predicted - *measured) / *measured;
  }
};

nlohmann::json to_json(const Comparison& comparison) {
  const auto number = [](const std::optional<double>& value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
  };
  return {{"predicted", number(comparison.predicted)},
          {"measured", number(comparison.measured)},
          {"error_percent", number(comparison.error_percent())}};
}

Comparison memory_comparison(const Session& session, const Performance& performance) {
  Comparison memory;
  if (session.prediction.memory_bytes)
    memory.predicted = static_cast<double>(*session.prediction.memory_bytes);
  const std::vector<std::uint64_t>& peaks = performance.peak_memory;
  if (!peaks.empty()) memory.measured = static_cast<double>(*std::ranges::max_element(peaks));
  return memory;
}

Comparison step_comparison(const Session& session, const SegmentTimes& times) {
  Comparison step = {session.prediction.step_seconds, std::nullopt};
  if (times.step > 0) step.measured = times.step;
  return step;
}

// For trainings that the planner has planned.
void report_prediction(const Session& session, const Comparison& memory, const Comparison& step,
                       RunReport& report) {
  if (!session.training_plan) return;
  const auto announce = [&](const Comparison& comparison, const std::string& what,
                            const auto& text_of_number) {
    const std::optional<double> error = comparison.error_percent();
    if (!error || std::abs(*error) <= kMostPredictionError) return;
    report.announce(fmt::format("the plan was wrong about {}: {} predicted, {} measured ({:+.0f} %)", what,
                                text_of_number(*comparison.predicted), text_of_number(*comparison.measured),
                                *error));
  };
  announce(memory, "the memory of a rank",
           [](double bytes) { return text::format_bytes(static_cast<std::uint64_t>(bytes)); });
  announce(step, "the time of a step", [](double seconds) { return fmt::format("{:.3g} s", seconds); });
}

nlohmann::json result_of(Session& session, const TrainingCounters& counters, const Network& network,
                         std::int64_t selected_epoch, const Evaluation& test, const Performance& performance,
                         const SegmentTimes& times) {
  const TrainConfig& config = session.config;
  const ModelGraph& graph = session.graph;
  RunData& data = session.data;
  Communicator& communicator = session.communicator;
  const EpochRow& selected = counters.history.at(static_cast<std::size_t>(selected_epoch - 1));
  return {{"wflow_format", 1},
          {"data",
           {{"directory", config.data},
            {"name", data.info().name},
            {"hash", data.info().hash},
            {"train", data.train().size()},
            {"validation", data.validation().size()},
            {"test", data.test().size()},
            {"missing", data.info().missing}}},
          {"model",
           {{"name", name_of(session.network_name)},
            {"parameters", graph.parameter_count()},
            {"training_flops_per_sample", graph.training_flops()}}},
          {"test", to_json(test)},
          {"validation", to_json(selected.validation)},
          {"train_loss", selected.train_loss},
          {"seeds", {{"seed", config.seed}, {"shuffle_labels", config.shuffle_labels}}},
          {"epochs", counters.epoch},
          {"steps", counters.step},
          {"best_epoch", counters.best_epoch},
          {"selected_epoch", selected_epoch},
          {"stopped_early", counters.stopped_early},
          {"begun_from", counters.begun_from},
          {"segments", counters.segments},
          {"rollbacks", counters.rollbacks},
          {"ranks", communicator.size()},
          {"grid", grid_result(session)},
          {"threads", config.threads},
          {"host", host_name()},
          {"device", compute_device()},
          {"precision", name_of(config.precision)},
          {"kernels", network.describe()},
          {"versions",
           {{"wflow", kVersion},
            {"libtorch", torch_version()},
            {"onednn", onednn_version()},
            {"mpi", communicator.library()}}},
          {"performance", to_json(performance)},
          {"seconds",
           {{"training", counters.seconds},
            {"this_segment", seconds_since(times.begin)},
            {"validation_this_segment", times.validation},
            {"waited_for_data_this_segment", times.data_wait},
            {"waited_for_checkpoints_this_segment", times.checkpoint_wait},
            {"waited_for_ranks_this_segment", session.waited_seconds()},
            {"reductions_this_segment", communicator.reduction_seconds()}}},
          {"summed_values_this_segment", communicator.summed_values()}};
}

// Class weights that follow from the data: of the only head, or by the heads' names.
void add_class_weights(const Heads& heads, nlohmann::json& result) {
  for (const Heads::Head& head : heads.all()) {
    const TargetShape& shape = head.objective.shape();
    if (shape.class_counts.empty()) continue;
    nlohmann::json& classes = head.name.empty() ? result["classes"] : result["classes"][head.name];
    classes = {{"training_cells", shape.class_counts}, {"weights", head.objective.config().class_weights}};
  }
}

// True if predictions.csv has every prediction: no head learns a field.
bool learns_numbers(const Session& session) {
  const std::vector<DataRoles::Head>& heads = session.data.roles().heads;
  return std::none_of(heads.begin(), heads.end(),
                      [](const DataRoles::Head& head) { return head.learns_fields(); });
}

nlohmann::json groups_result(const LocalGroup& local, const OuterRecord& record, double seconds) {
  return {{"groups", local.count},
          {"ranks_each", local.ranks->size()},
          {"outer_steps", record.steps},
          {"left_out", record.left_out},
          {"seconds_in_outer_steps_this_segment", seconds}};
}

// The entry of a trainer of a tournament.
nlohmann::json trainer_result(const Contest& contest, const TournamentRecord& record) {
  nlohmann::json bouts = nlohmann::json::array();
  for (const Bout& bout : record.bouts) bouts.push_back(to_json(bout));
  nlohmann::json result = {{"trainer", contest.trainer() + 1},
                           {"trainers", contest.trainers()},
                           {"rounds", bouts},
                           {"seconds_in_rounds_this_segment", contest.seconds()},
                           {"seconds_waited_this_segment", contest.waited()}};
  record.factors.write(result);
  return result;
}

Contest::End end_of_trainer(const Session& session, const EpochRow& exported, nlohmann::json result,
                            std::string table) {
  Contest::End end = {session.config, std::move(result), std::move(table), {}};
  for (const MetricName& metric : tournament_metrics(session.config))
    end.values.push_back(value_of(exported, metric));
  return end;
}

}  // namespace

void write_results(Session& session, const Heads& heads, TrainingState& state, const Network& network,
                   Evaluator& evaluator, const CheckpointDirectory& checkpoints, RunReport& report,
                   const SegmentTimes& times) {
  const TrainingCounters& counters = state.counters;
  const fs::path output = session.config.output;
  const std::int64_t epoch = select_weights(session, state, checkpoints, report);
  evaluator.use_evaluation_weights();
  CachedSplit& split = session.data.test();
  std::unique_ptr<PredictionFile> file;
  if (session.leader()) file = prediction_file(session, heads, split, epoch);
  const Evaluator::Records records = evaluator.predict_into(file.get(), split);
  const std::vector<Picture> inputs = session.leader() ? input_pictures(session) : std::vector<Picture>();
  const nlohmann::json staging = staging_result(session);
  Performance performance = performance_of(counters.history, session.graph.training_flops());
  performance.peak_memory = gather_values(
      session.communicator, std::vector<std::uint64_t>{static_cast<std::uint64_t>(peak_memory())});
  const nlohmann::json reading = reading_result(session);
  if (state.shares_weights()) state.shared->collect_on_first();
  if (!session.leader()) return;
  file->publish();
  const Evaluation test = evaluator.evaluation_of(records);
  write_pictures(session, inputs);
  write_file_durably(output / "predictions.csv", file->table());
  report.write_metrics(counters);
  write_file_durably(output / "train.yaml", yaml::emit(to_yaml(session.config)));
  const PartModel exported = exported_model(session);
  export_model(exported.graph, state.flat, exported.units, output / "model.pt");
  write_onnx(session, exported, state.flat, report);
  write_parts(session, state.flat);
  write_proposals(session, state.flat);
  performance.peak_memory.front() = static_cast<std::uint64_t>(peak_memory());  // a user's module is copied
  nlohmann::json result = result_of(session, counters, network, epoch, test, performance, times);
  add_class_weights(heads, result);
  if (!staging.is_null()) result["staging"] = staging;
  if (times.ranks.ranks > 1) result["ranks_this_segment"] = times.ranks.to_json();
  if (session.local) result["groups"] = groups_result(*session.local, counters.outer, times.outer_steps);
  const Comparison memory = memory_comparison(session, performance);
  const Comparison step = step_comparison(session, times);
  if (session.training_plan) result["plan"] = to_json(*session.training_plan);
  result["prediction"] = {{"memory_bytes", to_json(memory)}, {"step_seconds", to_json(step)}};
  report_prediction(session, memory, step, report);
  result["reading"] = reading;
  if (session.config.noise_scale_every > 0) result["noise_scale"] = noise_result(counters.history);
  if (Contest* contest = session.options.contest) {
    result["tournament"] = trainer_result(*contest, counters.tournament);
    contest->end = end_of_trainer(session, counters.history.at(static_cast<std::size_t>(epoch - 1)), result,
                                  split.size() > 0 ? test_lines(test) : "");
  }
  write_result(output, std::move(result));
  if (split.size() > 0 && session.options.contest == nullptr) report.say("\n" + test_lines(test));
  report.say(performance_line(performance));
  report.say(
      fmt::format("results in {}: model.pt, {}predictions.h5, predictions.csv, metrics.csv, result.json",
                  output.string(), fs::exists(output / "model.onnx") ? "model.onnx, " : ""));
  report.results(test, counters, output / "model.pt",
                 output / (learns_numbers(session) ? "predictions.csv" : "predictions.h5"));
}

}  // namespace wflow::trainer
