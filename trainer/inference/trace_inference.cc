// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/program_file.h"
#include "base/random.h"
#include "base/text.h"
#include "base/yaml.h"
#include "traces/inference.h"
#include "traces/trace_file.h"
#include "trainer/data/roles.h"
#include "trainer/inference/infer.h"
#include "trainer/inference/trace_posterior.h"
#include "trainer/predict/predict.h"
#include "trainer/training/report.h"
#include "trainer/training/row_file.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCalibrationObservations = 100;
constexpr std::size_t kResampled = 10000;       // equally weighted draws for plots and ranks
constexpr std::size_t kMostKeptStates = 20000;  // of a chain
constexpr std::size_t kMostBundle = 5000;
constexpr std::size_t kBundlesPerCore = 8;
constexpr double kAlways = 0.9999;         // presence of a draw that every trace has
constexpr double kPartialPresence = 0.05;  // of other draws in inference.json
constexpr double kShownPresence = 0.25;    // of those in the table
constexpr double kFewEffective = 100;
constexpr double kUnlikely = 0.01;  // p-value of a predictive check
const std::string kIndexFile = std::string(traces::kTraceName) + traces::kIndexEnding;

// Observations, and the known draws of those from a data set.
struct Observed {
  std::vector<std::int64_t> ids;
  std::vector<traces::Observation> values;
  std::vector<std::map<std::string, double>> truths;  // by name; none for observations from files
};

// The field with the traces in a data set.
std::optional<std::string> trace_field(const DatasetInfo& info) {
  for (const DataField& field : info.fields)
    if (holds_traces(field)) return field.name;
  return std::nullopt;
}

std::map<std::uint64_t, std::string> names_of(const traces::AddressTable& table) {
  std::map<std::uint64_t, std::string> names;
  for (const traces::Address& address : table.addresses())
    names[traces::address_hash(address.name)] = address.name;
  return names;
}

// The draws of recorded traces, by name: `rows` has [8, 1, 1, steps].
std::map<std::string, double> draws_in(const ModelArray& rows,
                                       const std::map<std::uint64_t, std::string>& names) {
  std::map<std::string, double> draws;
  const std::size_t steps = rows.values.size() / traces::kRowValues;
  const auto at = [&](std::size_t column, std::size_t step) { return rows.values[column * steps + step]; };
  for (std::size_t t = 0; t < steps && at(traces::kKind, t) != 0; ++t) {
    const auto name = names.find(traces::hash_of_halves(at(traces::kHigh, t), at(traces::kLow, t)));
    if (name != names.end()) draws[name->second] = at(traces::kValue, t);
  }
  return draws;
}

std::vector<std::map<std::string, double>> known_draws(const fs::path& data, const std::string& split,
                                                       std::size_t count) {
  const DatasetInfo info = read_dataset_info(data);
  const auto field = trace_field(info);
  if (!field || info.addresses == nullptr) return {};
  const auto rows = rows_of_dataset(data, {*field}, {}, split);
  const auto names = names_of(*info.addresses);
  std::vector<std::map<std::string, double>> all;
  for (std::size_t row = 0; row < count; ++row) all.push_back(draws_in(rows->inputs(row, 1).front(), names));
  return all;
}

std::size_t observation_count(const TraceInferOptions& options, std::size_t there) {
  const std::size_t wanted =
      options.observations > 0 ? options.observations : (options.calibrate ? kCalibrationObservations : 1);
  if (wanted > there && options.observations > 0)
    throw Error(ExitCode::usage, fmt::format("--observations {}: there are {}", wanted, there));
  return std::min(wanted, there);
}

Observed observations_of(const TraceInferOptions& options, ExportedModel& model) {
  PredictOptions predict;
  predict.model = options.training;
  predict.split = options.split;
  const fs::path data =
      options.observe.empty() ? data_of_training(options.training, options.data) : fs::path(options.observe);
  predict.data = data.string();
  const auto rows = rows_of(predict, model);
  if (rows->size() == 0)
    throw Error(ExitCode::data, fmt::format("there is no observation in {}", predict.data));
  const std::size_t count = observation_count(options, rows->size());
  Observed observed;
  for (std::size_t row = 0; row < count; ++row) {
    const std::vector<ModelArray> inputs = rows->inputs(row, 1);
    traces::Observation& one = observed.values.emplace_back();
    for (std::size_t k = 0; k < inputs.size(); ++k) one.values[model.inputs()[k]] = inputs[k].values;
    const std::vector<ModelArray> outputs = model.run(inputs);
    for (const double value : outputs.front().values) one.embedding.push_back(static_cast<float>(value));
    observed.ids.push_back(rows->id(row));
  }
  if (fs::is_directory(data)) observed.truths = known_draws(data, options.split, count);
  return observed;
}

traces::Request request_of(const TraceInferOptions& options, const Observed& observed) {
  const auto method = traces::method_called(options.method);
  if (!method) throw Error(ExitCode::usage, fmt::format("--method {}: it is is, ic or rmh", options.method));
  traces::Request request;
  request.method = *method;
  request.observations = observed.values;
  request.samples = options.traces;
  request.network = fs::absolute(fs::path(options.training) / traces::kProposalFile).string();
  if (*method == traces::Method::chains) {
    request.samples = options.chains;
    request.steps = std::max<std::size_t>(10, options.traces / options.chains);
    request.burn_in = static_cast<std::uint64_t>(options.burn_in * static_cast<double>(request.steps));
    request.thin = 1 + request.steps / kMostKeptStates;
  }
  if (*method != traces::Method::compiled)
    for (traces::Observation& one : request.observations) one.embedding.clear();
  return request;
}

std::uint64_t bundle_of(const traces::Request& request, std::size_t cores) {
  if (request.method == traces::Method::chains) return 1;
  const std::uint64_t all = request.samples * request.observations.size();
  const std::uint64_t processes = kBundlesPerCore * (cores > 0 ? cores : std::thread::hardware_concurrency());
  return std::clamp<std::uint64_t>(all / std::max<std::uint64_t>(1, processes), 1, kMostBundle);
}

fs::path library_of(const std::string& simulator) {
  const fs::path here = fs::absolute(simulator);
  if (fs::exists(here)) return here;
  const fs::path installed = installed_library(simulator);
  if (simulator.find('/') == std::string::npos && fs::exists(installed)) return installed;
  throw Error(ExitCode::usage, fmt::format("--simulator {}: there is no such file", simulator));
}

// Changes with the simulator: with its library, with its command, or with a file that the command names.
std::string identity_of(const TraceInferOptions& options) {
  std::string identity = options.command;
  if (!options.simulator.empty()) identity += hash_file(library_of(options.simulator));
  for (const std::string& word : text::split(options.command, ' ')) {
    std::error_code ignored;
    if (fs::is_regular_file(word, ignored)) identity += " " + hash_file(word);
  }
  return identity;
}

yaml::Node simulator_keys(const TraceInferOptions& options) {
  yaml::Node node = yaml::map({});
  const auto add = [&node](const char* key, const std::string& value) {
    node.entries.emplace_back(yaml::scalar(key), yaml::quoted(value));
  };
  if (!options.simulator.empty()) add("library", library_of(options.simulator).string());
  if (!options.command.empty()) {
    add("command", options.command);
    add("directory", fs::current_path().string());
  }
  return node;
}

// A campaign for a request, in a folder that its content names: the same request goes on with it.
class Campaign {
 public:
  Campaign(const TraceInferOptions& options, const traces::Request& request, const fs::path& folder) {
    const std::string text = traces::to_text(request);
    const std::string proposals =
        request.method == traces::Method::compiled ? hash_file(request.network) : std::string();
    const std::string key = hash_bytes(
        fmt::format("{} {} {} {} {}", text, identity_of(options), options.symbol, options.seed, proposals));
    folder_ = folder / fmt::format("inference-{}", key.substr(0, 8));
    samples_ = request.samples * request.observations.size();
    fs::create_directories(folder_);
    write_file_durably(folder_ / "request.json", text);
    const auto number = [](std::uint64_t value) { return yaml::scalar(std::to_string(value)); };
    yaml::Node plugin = simulator_keys(options);
    const yaml::Node settings =
        yaml::map({{"symbol", yaml::quoted(options.symbol)},
                   {"bundle", number(bundle_of(request, options.cores))},
                   {"seed", number(options.seed)},
                   {"check_finite", yaml::scalar("false")},
                   {"posterior", yaml::quoted((fs::absolute(folder_) / "request.json").string())}});
    plugin.entries.insert(plugin.entries.end(), settings.entries.begin(), settings.entries.end());
    const yaml::Node study = yaml::map(
        {{"description", yaml::map({{"name", yaml::scalar("traces")},
                                    {"description", yaml::quoted("written by wflow infer")}})},
         {"env", yaml::map({{"variables", yaml::map({{"OUTPUT_PATH", yaml::scalar(".")}})}})},
         {"samples", yaml::map({{"count", number(samples_)}})},
         {"study", yaml::sequence({yaml::map({{"name", yaml::scalar("runs")}, {"plugin", plugin}})})}});
    write_file_durably(folder_ / "study.yaml", yaml::emit(study));
  }

  std::uint64_t samples() const { return samples_; }

  // The folder of the finished campaign.
  fs::path run(std::size_t cores) const {
    const std::optional<fs::path> earlier = newest();
    SpawnRequest request;
    request.argv = {sibling_program("wflow")};
    if (earlier) {
      request.argv.insert(request.argv.end(), {"resume", fs::absolute(*earlier).string()});
    } else {
      request.argv.insert(request.argv.end(), {"run", "study.yaml", "--local"});
    }
    if (cores > 0) request.argv.insert(request.argv.end(), {"-j", std::to_string(cores)});
    request.directory = folder_.string();
    request.stdout_fd = 2;
    const pid_t pid = spawn(request);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    const auto campaign = newest();
    if (!campaign)
      throw Error(ExitCode::system, fmt::format("wflow run ended with exit code {} in {}",
                                                exit_status(status), folder_.string()));
    return *campaign;
  }

 private:
  std::optional<fs::path> newest() const {
    std::optional<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.is_directory() && (!found || entry.path() > *found)) found = entry.path();
    return found;
  }

  fs::path folder_;
  std::uint64_t samples_ = 0;
};

// Those of all arrays, in order of their names.
std::vector<double> observed_values(const traces::Observation& observation) {
  std::vector<double> all;
  for (const auto& [name, values] : observation.values) all.insert(all.end(), values.begin(), values.end());
  return all;
}

// The traces that the processes of a campaign have left.
class TraceReader {
 public:
  TraceReader(const traces::Request& request)
      : request_(request),
        values_(observed_values(request.observations.front()).size()),
        posteriors_(request.observations.size()) {}

  void read(const fs::path& campaign) {
    std::vector<fs::path> folders;
    for (const auto& entry : fs::recursive_directory_iterator(campaign))
      if (entry.path().filename() == kIndexFile) folders.push_back(entry.path().parent_path());
    std::ranges::sort(folders);
    for (const fs::path& folder : folders) read_folder(folder);
  }

  std::uint64_t samples() const { return samples_; }
  std::vector<TracePosterior>& posteriors() { return posteriors_; }
  const std::vector<std::string>& names() const { return order_; }  // as traces have them, then tags

 private:
  void read_folder(const fs::path& folder) {
    const traces::AddressTable table = traces::addresses_in(folder);
    std::map<std::uint64_t, std::string> names = names_of(table);
    for (const std::string& tag : table.tags()) names[traces::address_hash(tag)] = tag;
    traces::TraceFile file(folder / kIndexFile);
    for (std::size_t row = 0; row < file.samples(); ++row) {
      if (!file.has(row)) continue;  // it has failed
      add(file.rows(row), names);
      ++samples_;
    }
  }

  void add(std::span<const double> rows, const std::map<std::uint64_t, std::string>& names) {
    TracePosterior* posterior = nullptr;
    for (std::size_t i = 0; i + traces::kRowValues <= rows.size(); i += traces::kRowValues) {
      const std::span<const double> row = rows.subspan(i, traces::kRowValues);
      if (row[traces::kKind] == traces::kBeginKind) {
        posterior = &begin(row);
        continue;
      }
      if (posterior == nullptr) continue;
      if (row[traces::kKind] == traces::kReplicaKind) {
        // The last row of a trace may be only partly used.
        const std::size_t missing = posterior->count() * values_ - posterior->replicas.size();
        const std::span<const double> values =
            row.subspan(traces::kValue, std::min(missing, traces::kReplicasInRow));
        posterior->replicas.insert(posterior->replicas.end(), values.begin(), values.end());
        continue;
      }
      const auto name = names.find(traces::hash_of_halves(row[traces::kHigh], row[traces::kLow]));
      if (name == names.end()) continue;
      std::vector<double>& values = posterior->values[name->second];
      if (values.empty() && seen_.insert(name->second).second)
        (row[traces::kKind] == traces::kTagKind ? tags_ : order_).push_back(name->second);
      values.resize(posterior->count() - 1, std::numeric_limits<double>::quiet_NaN());
      values.push_back(row[traces::kValue]);
    }
  }

  TracePosterior& begin(std::span<const double> row) {
    const auto sample = static_cast<std::uint64_t>(row[traces::kParameters + 2]);
    TracePosterior& posterior = posteriors_.at(sample / request_.samples);
    const bool chains = request_.method == traces::Method::chains;
    posterior.log_weight.push_back(chains ? 0 : row[traces::kValue]);
    posterior.chain.push_back(sample % request_.samples);
    posterior.log_likelihood.push_back(row[traces::kParameters + 1]);
    posterior.log_likelihood_of_replica.push_back(row[traces::kParameters + 3]);
    return posterior;
  }

 public:
  void finish() {
    order_.insert(order_.end(), tags_.begin(), tags_.end());
    for (TracePosterior& posterior : posteriors_)
      for (auto& [name, values] : posterior.values)
        values.resize(posterior.count(), std::numeric_limits<double>::quiet_NaN());
  }

 private:
  const traces::Request& request_;
  const std::size_t values_;  // of an observation
  std::vector<TracePosterior> posteriors_;
  std::vector<std::string> order_, tags_;
  std::set<std::string> seen_;
  std::uint64_t samples_ = 0;
};

// Names that each trace of the posterior has.
std::vector<std::string> names_in_all(const TracePosterior& posterior,
                                      const std::vector<std::string>& order) {
  const std::vector<double> weights = posterior.weights();
  std::vector<std::string> names;
  for (const std::string& name : order) {
    const auto found = posterior.values.find(name);
    if (found != posterior.values.end() && presence_of(found->second, weights) > kAlways)
      names.push_back(name);
  }
  return names;
}

std::string sentence_of(const PredictiveCheck& check) {
  const std::string likely =
      fmt::format("{:.2f} of the replicas are less likely than the observation", check.p_value);
  if (check.values.empty()) return likely;
  return fmt::format("{}; {} of {} observed values are within 90 % of theirs", likely,
                     std::ranges::count_if(check.values, &PredictiveCheck::Value::within_90),
                     check.values.size());
}

nlohmann::json predictive_json(const TracePosterior& posterior, const traces::Observation& observation) {
  const PredictiveCheck check = predictive_check(posterior, observed_values(observation));
  nlohmann::json json = {
      {"p_value", check.p_value}, {"sentence", sentence_of(check)}, {"arrays", nlohmann::json::array()}};
  if (check.values.empty()) return json;
  auto value = check.values.begin();
  for (const auto& [name, values] : observation.values) {
    nlohmann::json array = {{"name", name}};
    for (std::size_t i = 0; i < values.size(); ++i, ++value) {
      array["observed"].push_back(value->observed);
      array["low"].push_back(value->low);
      array["median"].push_back(value->median);
      array["high"].push_back(value->high);
      array["below"].push_back(value->below);
    }
    json["arrays"].push_back(array);
  }
  json["values"] = check.values.size();
  json["within_90"] = std::ranges::count_if(check.values, &PredictiveCheck::Value::within_90);
  return json;
}

std::string predictive_text(const nlohmann::json& predictive) {
  const bool unlikely = predictive["p_value"].get<double>() < kUnlikely;
  return fmt::format("predictive check: {}{}\n", predictive["sentence"].get<std::string>(),
                     unlikely ? ": the simulator hardly makes such observations" : "");
}

nlohmann::json json_of(const TracePosterior& posterior, std::int64_t id,
                       const traces::Observation& observation, const std::vector<std::string>& order,
                       const std::map<std::string, double>& truth, traces::Method method, std::uint64_t key) {
  const std::vector<double> weights = posterior.weights();
  const std::vector<std::string> names = names_in_all(posterior, order);
  std::vector<ParameterSummary> summaries;
  for (const std::string& name : names) summaries.push_back(summary_of(posterior.values.at(name), weights));
  const PosteriorDraws draws = resampled(posterior, names, kResampled, key);
  nlohmann::json one = posterior_json(id, draws, summaries, names, {});
  one["traces"] = posterior.count();
  for (nlohmann::json& entry : one["parameters"]) {
    const std::string name = entry["name"];
    if (const auto known = truth.find(name); known != truth.end()) entry["truth"] = known->second;
    if (method != traces::Method::chains) continue;
    const double r_hat = split_r_hat(posterior.values.at(name), posterior.chain);
    if (!std::isnan(r_hat)) entry["r_hat"] = r_hat;
  }
  one["sometimes"] = nlohmann::json::array();
  for (const auto& [name, values] : posterior.values) {
    const double presence = presence_of(values, weights);
    if (presence > kAlways || presence < kPartialPresence) continue;
    const ParameterSummary summary = summary_of(values, weights);
    one["sometimes"].push_back({{"name", name},
                                {"presence", presence},
                                {"mean", summary.mean},
                                {"deviation", summary.deviation},
                                {"quantiles", summary.quantiles}});
  }
  one["predictive"] = predictive_json(posterior, observation);
  if (method == traces::Method::chains) return one;
  const Evidence evidence = evidence_of(posterior.log_weight);
  one["effective_samples"] = effective_samples(weights);
  one["log_evidence"] =
      std::isfinite(evidence.log_mean) ? nlohmann::json(evidence.log_mean) : nlohmann::json();
  one["evidence_error"] = evidence.relative_error;
  return one;
}

std::string table_of(const nlohmann::json& one) {
  std::string out = posterior_table(one);
  std::size_t hidden = 0;
  for (const nlohmann::json& entry : one["sometimes"]) {
    if (entry["presence"].get<double>() < kShownPresence) {
      ++hidden;
      continue;
    }
    const std::vector<double> q = entry["quantiles"];
    out += fmt::format("{:<20}{:>12.5g}{:>12.3g}{:>12.5g}{:>12.5g}{:>12.5g}  in {:.0f} % of the traces\n",
                       entry["name"].get<std::string>(), entry["mean"].get<double>(),
                       entry["deviation"].get<double>(), q[0], q[2], q[4],
                       100 * entry["presence"].get<double>());
  }
  if (hidden > 0) out += fmt::format("{} draws that fewer traces have are in inference.json\n", hidden);
  if (!one.contains("effective_samples")) {
    double worst = 0;
    std::string name;
    for (const nlohmann::json& entry : one["parameters"])
      if (entry.value("r_hat", 0.0) > worst) worst = entry["r_hat"], name = entry["name"];
    return out +
           fmt::format("{} states of the chains; largest R-hat {:.3f} ({}){}\n",
                       one["traces"].get<std::size_t>(), worst, name,
                       worst > 1.05 ? ": they do not agree yet, raise --traces" : "") +
           predictive_text(one["predictive"]);
  }
  const double effective = one["effective_samples"];
  out +=
      fmt::format("{} traces, {:.1f} effective; log evidence ", one["traces"].get<std::size_t>(), effective);
  out += one["log_evidence"].is_null() ? "unknown: no trace can have made the observation\n"
                                       : fmt::format("{:.3f} +- {:.3f}\n", one["log_evidence"].get<double>(),
                                                     one["evidence_error"].get<double>());
  if (effective < kFewEffective) out += "fewer than 100 effective traces: raise --traces, or train longer\n";
  return out + predictive_text(one["predictive"]);
}

// replicas/NAME: [observations, traces, values of the array].
void write_replicas(RowFile& file, const Observed& observed, const std::vector<TracePosterior>& posteriors,
                    std::size_t most) {
  const std::size_t values = observed_values(observed.values.front()).size();
  if (posteriors.front().replicas.size() != values * posteriors.front().count()) return;
  file.use_group("replicas");
  std::size_t first = 0;
  for (const auto& [name, array] : observed.values.front().values) {
    const auto shape =
        std::vector<std::int64_t>{static_cast<std::int64_t>(most), static_cast<std::int64_t>(array.size())};
    const std::size_t dataset = file.add(name.c_str(), shape, true);
    for (std::size_t k = 0; k < posteriors.size(); ++k) {
      std::vector<double> rows(most * array.size(), std::numeric_limits<double>::quiet_NaN());
      for (std::size_t i = 0; i < posteriors[k].count(); ++i)
        std::copy_n(posteriors[k].replicas.begin() + static_cast<std::ptrdiff_t>(i * values + first),
                    array.size(), rows.begin() + static_cast<std::ptrdiff_t>(i * array.size()));
      file.write(dataset, k, rows);
    }
    first += array.size();
  }
}

void write_draws(const fs::path& path, const TraceInferOptions& options, const Observed& observed,
                 const std::vector<TracePosterior>& posteriors, const std::vector<std::string>& order) {
  std::size_t most = 1;
  for (const TracePosterior& posterior : posteriors) most = std::max(most, posterior.count());
  RowFile file(path, observed.ids);
  file.number("wflow_format", kInferenceFormat);
  file.text("producer", {fmt::format("wflow {}", kVersion)});
  file.text("method", {options.method});
  file.text("parameters", order);
  const auto columns = std::vector<std::int64_t>{static_cast<std::int64_t>(most)};
  const auto write = [&](const std::string& name, const auto& values_of) {
    const std::size_t dataset = file.add(name.c_str(), columns, true);
    for (std::size_t k = 0; k < posteriors.size(); ++k) {
      std::vector<double> values = values_of(posteriors[k]);
      values.resize(most, std::numeric_limits<double>::quiet_NaN());
      file.write(dataset, k, values);
    }
  };
  write("log_weight", [](const TracePosterior& posterior) { return posterior.log_weight; });
  file.use_group("draws");
  for (const std::string& name : order) {
    std::string dataset = name;  // HDF5 takes a slash for a group
    std::ranges::replace(dataset, '/', '|');
    write(dataset, [&](const TracePosterior& posterior) {
      const auto found = posterior.values.find(name);
      return found == posterior.values.end() ? std::vector<double>() : found->second;
    });
  }
  write_replicas(file, observed, posteriors, most);
  file.publish();
}

nlohmann::json calibrated(const Observed& observed, const std::vector<TracePosterior>& posteriors,
                          const std::vector<std::string>& order, std::uint64_t seed) {
  std::vector<std::string> names;  // of draws that all have, as the truths do
  for (const std::string& name : order) {
    bool everywhere = true;
    for (std::size_t k = 0; k < posteriors.size() && everywhere; ++k) {
      const auto found = posteriors[k].values.find(name);
      everywhere = observed.truths[k].contains(name) && found != posteriors[k].values.end() &&
                   presence_of(found->second, posteriors[k].weights()) > kAlways;
    }
    if (everywhere) names.push_back(name);
  }
  Calibration calibration(names.size());
  for (std::size_t k = 0; k < posteriors.size() && !names.empty(); ++k) {
    std::vector<double> truth;
    for (const std::string& name : names) truth.push_back(observed.truths[k].at(name));
    calibration.add(resampled(posteriors[k], names, kResampled, hash64(seed, k)), truth, 0);
  }
  return names.empty() ? nlohmann::json() : calibration_json(calibration, names, false);
}

// The reason of a failed run: the last line of a process that could not begin, or of a sample.
std::string first_failure(const fs::path& campaign) {
  for (const auto& entry : fs::recursive_directory_iterator(campaign)) {
    if (entry.path().filename() != "runs.err" || fs::file_size(entry.path()) == 0) continue;
    const std::string output = read_file(entry.path());
    const std::string_view lines = std::string_view(output).substr(0, output.find_last_not_of('\n') + 1);
    return std::string(lines.substr(lines.rfind('\n') + 1));
  }
  SpawnRequest request;
  request.argv = {sibling_program("wflow"), "status", campaign.string(), "--json"};
  const nlohmann::json status = nlohmann::json::parse(run_command(request).out, nullptr, false);
  const nlohmann::json failures =
      status.is_object() ? status.value("failures", nlohmann::json()) : nlohmann::json();
  if (!failures.is_array() || failures.empty()) return "none has ended";
  const std::string detail = failures.front().value("detail", "");
  return detail.empty() ? failures.front().value("reason", "") : detail;
}

void check_training(const TraceInferOptions& options) {
  if (!fs::exists(fs::path(options.training) / traces::kProposalFile))
    throw Error(
        ExitCode::data,
        fmt::format("the training {} has not learnt from traces: it needs 'model: {{name: inference}}' "
                    "(docs/traces.md)",
                    options.training));
}

}  // namespace

void infer_traces(const TraceInferOptions& options) {
  const nlohmann::json result = finished_result(options.training);
  check_training(options);
  const auto opened = open_exported_model(fs::path(options.training) / "model.pt");
  ExportedModel& model = *opened;
  const Observed observed = observations_of(options, model);
  if (options.calibrate && observed.truths.empty())
    throw Error(
        ExitCode::usage,
        "--calibrate compares with known draws, which these observations do not have: give the folder of a "
        "data set with traces, or leave --observe out");
  const traces::Request request = request_of(options, observed);
  const fs::path folder = options.output.empty() ? options.training : options.output;
  fs::create_directories(folder);
  const Campaign campaign(options, request, folder);
  TraceReader reader(request);
  const fs::path runs = campaign.run(options.cores);
  reader.read(runs);
  reader.finish();
  const std::vector<TracePosterior>& posteriors = reader.posteriors();
  for (std::size_t k = 0; k < posteriors.size(); ++k)
    if (posteriors[k].count() == 0)
      throw Error(ExitCode::data, fmt::format("no run for observation {} has succeeded ({}): wflow status {}",
                                              observed.ids[k], first_failure(runs), runs.string()));
  nlohmann::json found = nlohmann::json::array();
  for (std::size_t k = 0; k < std::min(posteriors.size(), kJsonObservations); ++k)
    found.push_back(json_of(posteriors[k], observed.ids[k], observed.values[k], reader.names(),
                            observed.truths.empty() ? std::map<std::string, double>() : observed.truths[k],
                            request.method, hash64(options.seed, k)));
  nlohmann::json all = {{"wflow_format", kInferenceFormat},
                        {"producer", fmt::format("wflow {}", kVersion)},
                        {"model_checksum", model_checksum(result)},
                        {"method", options.method},
                        {"parameters", reader.names()},
                        {"traces", options.traces},
                        {"seed", options.seed},
                        {"observations", posteriors.size()},
                        {"posteriors", found}};
  if (options.calibrate) all["calibration"] = calibrated(observed, posteriors, reader.names(), options.seed);
  write_draws(folder / "posterior.h5", options, observed, posteriors, reader.names());
  write_file_durably(folder / "inference.json", all.dump(1) + "\n");
  std::string out;
  const std::size_t shown = options.calibrate ? 1 : std::min(kTableObservations, posteriors.size());
  for (std::size_t k = 0; k < shown; ++k) out += table_of(found[k]);
  const auto poor = std::ranges::count_if(posteriors, [](const TracePosterior& posterior) {
    return effective_samples(posterior.weights()) < kFewEffective;
  });
  if (poor > 0 && posteriors.size() > shown)
    out += fmt::format(
        "{} of {} observations have fewer than 100 effective traces: their posteriors are too narrow\n", poor,
        posteriors.size());
  if (reader.samples() < campaign.samples())
    out += fmt::format("{} of {} runs are missing: wflow status {}\n", campaign.samples() - reader.samples(),
                       campaign.samples(), runs.string());
  if (options.calibrate && !all["calibration"].is_null()) out += calibration_table(all["calibration"]);
  out += fmt::format("written: {}\n", (folder / "posterior.h5").string());
  std::fputs(visible(out).c_str(), stdout);
}

}  // namespace wflow::trainer
