// SPDX-License-Identifier: Apache-2.0
// A request for runs of a simulator under an observation, from `wflow infer` to the processes of a campaign;
// and the rows that they leave for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "traces/proposal_network.h"
#include "traces/run.h"

namespace wflow::traces {

inline constexpr int kRequestFormat = 2;

// importance: draws from the prior, weighted by the likelihood (is). compiled: draws from the network's
// proposals (ic). chains: random-walk Metropolis-Hastings (rmh).
enum class Method : std::uint8_t { importance, compiled, chains };
const char* name_of(Method method);
std::optional<Method> method_called(const std::string& name);

struct Observation {
  std::map<std::string, std::vector<double>> values;  // of each array
  std::vector<float> embedding;                       // compiled: as the network sees it
};

struct Request {
  Method method = Method::importance;
  std::vector<Observation> observations;
  std::uint64_t samples = 1;  // of each observation: runs, or chains; those of the first come first
  std::string network;        // compiled: the path of proposals.bin
  std::uint64_t steps = 0;    // chains: runs of a chain after its first
  std::uint64_t burn_in = 0;  // chains: runs before the first state that counts
  std::uint64_t thin = 1;     // chains: steps between two states that are kept
};

std::string to_text(const Request& request);
// Error{data} with `name` if the text is no request.
Request parse_request(const std::string& text, const std::string& name);

// Rows of an inference: for each trace one that begins it, its draws, one for each tag, and its replicas.
// They have the columns of RowColumn, and these kinds.
// value: log weight; then log prior, log likelihood, sample, log likelihood of the replicas
inline constexpr double kBeginKind = 1000;
inline constexpr double kTagKind = 1001;  // value: the tag's; its name is an address
// kReplicasInRow values from `value` on: of all arrays, in order of their names. Only if there are no more
// than kMostReplicas: then an observation of thousands of values does not make the rows many times as long.
inline constexpr double kReplicaKind = 1002;
inline constexpr std::size_t kReplicasInRow = 1 + kRowParameters;
inline constexpr std::size_t kMostReplicas = 1000;
// `arrays`: those that the simulator observes.
void append_rows(const RunResult& result, std::span<const Observed> arrays, std::uint64_t sample,
                 std::vector<double>& rows);

}  // namespace wflow::traces
