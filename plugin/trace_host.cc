// SPDX-License-Identifier: Apache-2.0
#include "plugin/trace_host.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "traces/chain.h"
#include "traces/trace_file.h"

namespace wflow::plugin {
namespace {

constexpr std::size_t kTraceErrorBytes = 1024;
constexpr wflow_array kIndex = {"trace.index", WFLOW_FLOAT64, 1, {traces::kIndexValues}};
constexpr wflow_array kType = {"trace_type", WFLOW_FLOAT64, 0, {0}};
// Types are 24 bits in the file, so that a network may read them as float32.
constexpr int kTypeShift = 24;

void store(const wflow_array& array, std::span<const double> values, void* to) {
  if (array.type == WFLOW_FLOAT64) {
    std::memcpy(to, values.data(), values.size_bytes());
    return;
  }
  auto* floats = static_cast<float*>(to);
  for (std::size_t i = 0; i < values.size(); ++i) floats[i] = static_cast<float>(values[i]);
}

}  // namespace

TraceHost::TraceHost(const Description& plugin, const Settings& settings)
    : plugin_(plugin),
      settings_(settings),
      rows_name_(traces::rows_file(traces::kTraceName, settings.first)) {
  for (const wflow_array& array : arrays_of(plugin)) observed_.push_back({array.name, values_of(array), {}});
  if (settings_.posterior.empty()) {
    arrays_.assign(arrays_of(plugin).begin(), arrays_of(plugin).end());
    sampler_ = std::make_unique<traces::PriorSampler>();
  } else {
    read_request(settings_.posterior);
  }
  arrays_.push_back(kIndex);
  if (!request_) arrays_.push_back(kType);
  rows_ = open_file(rows_name_, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

void TraceHost::read_request(const std::string& path) {
  request_ = traces::parse_request(read_file(path), path);
  if (request_->method == traces::Method::compiled)
    network_ = traces::ProposalNetwork::parse(read_file(request_->network), request_->network);
}

// Samples of one observation follow each other.
void TraceHost::observe(std::uint64_t sample) {
  const std::uint64_t number = sample / request_->samples;
  if (sampler_ != nullptr && number == observation_) return;
  if (number >= request_->observations.size())
    throw Error(ExitCode::data,
                fmt::format("the request has {} observations of {} samples, and none for sample {}",
                            request_->observations.size(), request_->samples, sample));
  observation_ = number;
  const traces::Observation& observation = request_->observations[number];
  for (traces::Observed& array : observed_) {
    const auto found = observation.values.find(array.name);
    if (found == observation.values.end())
      throw Error(ExitCode::data,
                  fmt::format("the observation has no '{}', which the simulator observes", array.name));
    if (found->second.size() != array.values)
      throw Error(ExitCode::data,
                  fmt::format("'{}' has {} values in the observation, and the simulator observes {}",
                              array.name, found->second.size(), array.values));
    array.truth = found->second;
  }
  if (network_) {
    sampler_ = std::make_unique<traces::ProposalSampler>(*network_, observation.embedding);
  } else {
    sampler_ = std::make_unique<traces::PriorSampler>();
  }
}

traces::RunResult TraceHost::run_once(void* state, std::uint64_t sample, const double* parameters,
                                      traces::Sampler& sampler, traces::Random& random) {
  traces::Run run(sampler, observed_, names_, random);
  char error[kTraceErrorBytes] = "";
  const int code = plugin_.trace(state, sample, parameters, run.functions(), error, sizeof error);
  error[kTraceErrorBytes - 1] = '\0';
  traces::RunResult result = run.finish();
  if (code != 0) {
    result.mistake = *error == '\0' ? "no reason given" : error;
    result.exit_code = code;
  }
  if (result.mistake.empty()) count(result);
  return result;
}

void TraceHost::count(const traces::RunResult& result) {
  for (const traces::TraceDraw& draw : result.draws) ++draw.name->draws;
  names_.add_type(result.type, result.draws.size());
  for (const auto& [name, value] : result.tags) names_.add_tag(name);
}

TraceHost::Outcome TraceHost::run(void* state, std::uint64_t sample, const double* parameters,
                                  std::span<void* const> results) {
  const std::uint64_t first_row = rows_count_;
  const std::size_t unwritten = unwritten_.size();
  Outcome outcome;
  try {
    outcome = request_ ? infer(state, sample, parameters) : record(state, sample, parameters, results);
  } catch (const Error& error) {
    outcome = {1, error.what()};
  }
  if (outcome.code != 0) {
    unwritten_.resize(unwritten);
    return outcome;
  }
  rows_count_ += (unwritten_.size() - unwritten) / traces::kRowValues;
  const double index[traces::kIndexValues] = {static_cast<double>(settings_.first),
                                              static_cast<double>(first_row),
                                              static_cast<double>(rows_count_ - first_row)};
  std::memcpy(results[request_ ? 0 : observed_.size()], index, sizeof index);
  return outcome;
}

TraceHost::Outcome TraceHost::record(void* state, std::uint64_t sample, const double* parameters,
                                     std::span<void* const> results) {
  traces::Random random(hash64(settings_.seed, sample));
  const traces::RunResult result = run_once(state, sample, parameters, *sampler_, random);
  if (!result.mistake.empty()) return {result.exit_code, result.mistake};
  if (result.draws.empty()) return {1, "the simulator has drawn nothing from wflow"};
  for (const traces::TraceDraw& draw : result.draws)
    unwritten_.insert(unwritten_.end(), draw.row.begin(), draw.row.end());
  for (std::size_t k = 0; k < observed_.size(); ++k) store(arrays_[k], result.observed[k], results[k]);
  const auto type = static_cast<double>(result.type >> kTypeShift);
  std::memcpy(results[observed_.size() + 1], &type, sizeof type);
  return {};
}

TraceHost::Outcome TraceHost::infer(void* state, std::uint64_t sample, const double* parameters) {
  observe(sample);
  traces::Random random(hash64(settings_.seed, sample));
  if (request_->method == traces::Method::chains)
    return follow_chain(*request_, state, sample, parameters, random);
  const traces::RunResult result = run_once(state, sample, parameters, *sampler_, random);
  if (!result.mistake.empty()) return {result.exit_code, result.mistake};
  traces::append_rows(result, observed_, sample, unwritten_);
  return {};
}

TraceHost::Outcome TraceHost::follow_chain(const traces::Request& request, void* state, std::uint64_t sample,
                                           const double* parameters, traces::Random& random) {
  traces::Chain chain(
      [&](traces::Sampler& sampler, traces::Random& numbers) {
        return run_once(state, sample, parameters, sampler, numbers);
      },
      random);
  for (std::uint64_t step = 1; step <= request.steps; ++step) {
    chain.step();
    if (step <= request.burn_in || step % request.thin != 0) continue;
    traces::append_rows(chain.state(), observed_, sample, unwritten_);
  }
  if (chain.failed() > 0)
    fmt::print(stderr,
               "sample {}: {} of {} runs of the chain have failed and count as impossible; the first: {}\n",
               sample, chain.failed(), request.steps + 1, chain.first_mistake());
  return {};
}

void TraceHost::flush(bool is_last) {
  if (unwritten_.empty() && !is_last) return;
  write_all(rows_.get(),
            {reinterpret_cast<const char*>(unwritten_.data()), unwritten_.size() * sizeof(double)},
            rows_name_);
  unwritten_.clear();
  if (names_.version() == written_version_ && !is_last) return;
  written_version_ = names_.version();
  write_file_durably(traces::address_file(settings_.first), names_.addresses().to_json().dump(1) + "\n");
}

}  // namespace wflow::plugin
