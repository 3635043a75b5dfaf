// SPDX-License-Identifier: Apache-2.0
// The samples of a simulator that takes its random draws from wflow (traces/wflow_trace.h): records them, or
// runs it under the observation of an inference.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "plugin/library.h"
#include "traces/inference.h"
#include "traces/names.h"
#include "traces/proposal_network.h"

namespace wflow::plugin {

// Leaves, in the working directory:
//   trace.index.npy          for each sample the number of its file, its first row there, and its rows
//   trace.<first>.rows       the rows of the samples of a process, 8 float64 each (traces::Row)
//   trace_type.npy           a number for the addresses of the sample's draws, in order
//   addresses.<first>.json   the addresses that the process has seen
class TraceHost {
 public:
  struct Settings {
    std::uint64_t seed = 1;
    std::string posterior;    // the request of an inference; empty: record
    std::uint64_t first = 0;  // the process's first sample
  };
  TraceHost(const Description& plugin, const Settings& settings);

  // The .npy files that the caller writes a row a sample into: the observed arrays, then the traces' own.
  std::span<const wflow_array> arrays() const { return arrays_; }

  struct Outcome {
    int code = 0;
    std::string error;
  };
  // Runs a sample, and fills a row of each of arrays().
  Outcome run(void* state, std::uint64_t sample, const double* parameters, std::span<void* const> results);

  // Writes what the rows of arrays() refer to. To be called before these are written; `is_last`: at the end,
  // with the counts of all draws.
  void flush(bool is_last);

 private:
  Outcome record(void* state, std::uint64_t sample, const double* parameters, std::span<void* const> results);
  Outcome infer(void* state, std::uint64_t sample, const double* parameters);
  traces::RunResult run_once(void* state, std::uint64_t sample, const double* parameters,
                             traces::Sampler& sampler, traces::Random& random);
  Outcome follow_chain(const traces::Request& request, void* state, std::uint64_t sample,
                       const double* parameters, traces::Random& random);
  void count(const traces::RunResult& result);
  void read_request(const std::string& path);
  void observe(std::uint64_t sample);

  const Description& plugin_;
  Settings settings_;
  std::vector<wflow_array> arrays_;
  std::vector<traces::Observed> observed_;
  std::optional<traces::Request> request_;
  std::optional<traces::ProposalNetwork> network_;
  std::uint64_t observation_ = 0;  // of the sampler
  std::unique_ptr<traces::Sampler> sampler_;
  traces::NameTable names_;
  std::uint64_t written_version_ = 0;  // of the names
  FileDescriptor rows_;
  std::string rows_name_;
  std::vector<double> unwritten_;
  std::uint64_t rows_count_ = 0;
};

}  // namespace wflow::plugin
