// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/updates.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "trainer/model/parts.h"

namespace wflow::trainer {
namespace {

std::vector<std::size_t> numbers_of(const std::vector<std::string>& names, const Heads& heads) {
  std::vector<std::size_t> numbers;
  for (std::size_t h = 0; h < heads.all().size(); ++h)
    if (std::ranges::find(names, heads.all()[h].name) != names.end()) numbers.push_back(h);
  return numbers;
}

// The graph's outputs that belong to some of its heads: two of a latent vector belong to the first one.
std::vector<std::size_t> outputs_of(const std::vector<std::size_t>& numbers, std::size_t heads,
                                    const ModelGraph& graph) {
  std::vector<std::size_t> outputs;
  for (const std::size_t head : numbers) {
    outputs.push_back(graph.output_of_head(head, heads));
    for (std::size_t i = 1; head == 0 && i <= graph.outputs.size() - heads; ++i) outputs.push_back(i);
  }
  return outputs;
}

std::vector<FlatEntry> entries_of(const ModelGraph& graph, const FlatLayout& layout) {
  std::vector<FlatEntry> entries;
  for (const ParameterSpec& spec : graph.buffers()) entries.push_back(*layout.find(spec.name));
  return entries;
}

}  // namespace

Updates::Updates(const Session& session, const Heads& heads, FlatState& state, Network& whole)
    : whole_(whole) {
  if (session.config.alternate.empty()) {
    std::vector<std::size_t> numbers(heads.all().size());
    std::iota(numbers.begin(), numbers.end(), std::size_t{0});
    updates_.push_back({std::move(numbers), heads, &whole, {}, state.buffers().entries, 1});
    return;
  }
  for (const AlternateConfig& entry : session.config.alternate) add(session, heads, state, entry);
}

void Updates::add(const Session& session, const Heads& heads, FlatState& state,
                  const AlternateConfig& entry) {
  std::vector<std::size_t> numbers = numbers_of(entry.heads, heads);
  const ModelGraph graph =
      update_graph(session.graph, outputs_of(numbers, heads.all().size(), session.graph), entry.learn);
  networks_.push_back(make_network(session.config.backend, session.config.precision, graph, state));
  std::vector<Heads::Head> own;
  for (const std::size_t head : numbers) own.push_back(heads.all()[head]);
  updates_.push_back({std::move(numbers), Heads(std::move(own)), networks_.back().get(), entry.learn,
                      entries_of(graph, state.buffers()), entry.every});
}

void Updates::values_changed() {
  whole_.values_changed();
  for (const std::unique_ptr<Network>& network : networks_) network->values_changed();
}

std::vector<std::string> alternating_parts(const TrainConfig& config) {
  std::vector<std::string> parts;
  for (const AlternateConfig& entry : config.alternate)
    for (const std::string& part : entry.learn)
      if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
  return parts;
}

}  // namespace wflow::trainer
