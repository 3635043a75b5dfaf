// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/updates.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
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
std::vector<ModelGraph::Output> outputs_of(const std::vector<std::size_t>& numbers, std::size_t heads,
                                           const ModelGraph& graph) {
  std::vector<ModelGraph::Output> outputs;
  for (const std::size_t head : numbers) {
    outputs.push_back(graph.outputs[graph.output_of_head(head, heads)]);
    for (std::size_t i = 1; head == 0 && i <= graph.outputs.size() - heads; ++i)
      outputs.push_back(graph.outputs[i]);
  }
  return outputs;
}

// The value of an input or a layer. Error{spec} if there is none.
ModelGraph::Output value_called(const std::string& name, const ModelGraph& graph) {
  std::vector<std::string> known;
  for (const NamedShape& input : graph.inputs) known.push_back(input.name);
  for (const Layer& layer : graph.layers) known.push_back(layer.name);
  const auto found = std::ranges::find(known, name);
  if (found == known.end())
    throw Error(
        ExitCode::spec,
        fmt::format("'gradient_penalty' names '{}', and the network has neither an input nor a layer of this "
                    "name{}",
                    name, text::suggestion(name, known)));
  return {name, static_cast<std::size_t>(found - known.begin())};
}

std::vector<FlatEntry> entries_of(const ModelGraph& graph, const FlatLayout& layout) {
  std::vector<FlatEntry> entries;
  for (const ParameterSpec& spec : graph.buffers()) entries.push_back(*layout.find(spec.name));
  return entries;
}

// Positions in the exchange array.
std::pair<std::int64_t, std::int64_t> learned_in_exchange(const ModelGraph& graph, const FlatState& state) {
  const auto [begin, end] = learned_range(graph, state.parameters());
  return {state.gradients_begin() + begin, state.gradients_begin() + end};
}

}  // namespace

Updates::Updates(const Session& session, const Heads& heads, FlatState& state, Network& whole)
    : whole_(whole) {
  if (session.config.alternate.empty()) {
    std::vector<std::size_t> numbers(heads.all().size());
    std::iota(numbers.begin(), numbers.end(), std::size_t{0});
    const auto [begin, end] = learned_in_exchange(session.graph, state);
    updates_.push_back({std::move(numbers), heads, &whole, {}, state.buffers().entries, 1, begin, end, {}});
    return;
  }
  for (const AlternateConfig& entry : session.config.alternate) add(session, heads, state, entry);
}

void Updates::add(const Session& session, const Heads& heads, FlatState& state,
                  const AlternateConfig& entry) {
  std::vector<std::size_t> numbers = numbers_of(entry.heads, heads);
  std::vector<ModelGraph::Output> outputs = outputs_of(numbers, heads.all().size(), session.graph);
  std::unique_ptr<UpdatePenalty> penalty;
  if (!entry.penalty.of.empty()) {
    const ModelGraph::Output from = value_called(entry.penalty.from, session.graph);
    penalty = penalty_of(session, state, entry, from.value);
    if (!penalty->input) outputs.push_back(from);
  }
  const ModelGraph graph = update_graph(session.graph, outputs, entry.learn);
  networks_.push_back(make_network(session.config.backend, session.config.precision, graph, state));
  std::vector<Heads::Head> own;
  for (const std::size_t head : numbers) own.push_back(heads.all()[head]);
  const auto [begin, end] = learned_in_exchange(graph, state);
  updates_.push_back({std::move(numbers), Heads(std::move(own)), networks_.back().get(), entry.learn,
                      entries_of(graph, state.buffers()), entry.every, begin, end, std::move(penalty)});
}

std::unique_ptr<UpdatePenalty> Updates::penalty_of(const Session& session, FlatState& state,
                                                   const AlternateConfig& entry, std::size_t from) {
  const ModelGraph graph =
      path_graph(session.graph, from, value_called(entry.penalty.of, session.graph), entry.learn);
  auto penalty = std::make_unique<UpdatePenalty>();
  penalty->config = entry.penalty;
  penalty->network = make_network(session.config.backend, session.config.precision, graph, state);
  if (from < session.graph.inputs.size()) penalty->input = from;
  penalty->values = static_cast<std::size_t>(graph.input().count());
  penalty->scores = static_cast<std::size_t>(graph.output_count());
  return penalty;
}

void Updates::values_changed() {
  whole_.values_changed();
  for (const std::unique_ptr<Network>& network : networks_) network->values_changed();
  for (const Update& update : updates_)
    if (update.penalty) update.penalty->network->values_changed();
}

std::vector<std::string> alternating_parts(const TrainConfig& config) {
  std::vector<std::string> parts;
  for (const AlternateConfig& entry : config.alternate)
    for (const std::string& part : entry.learn)
      if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
  return parts;
}

}  // namespace wflow::trainer
