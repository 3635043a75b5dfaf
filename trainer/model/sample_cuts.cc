// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/sample_cuts.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "trainer/model/split_network.h"
#include "trainer/parallel/exact_sums.h"

namespace wflow::trainer {
namespace {

// The largest input, whose axes are cut; nothing if no input is a field.
std::optional<TensorShape> largest_field(const ModelGraph& graph) {
  std::optional<TensorShape> largest;
  for (const NamedShape& input : graph.inputs) {
    if (input.shape.voxels() == 1) continue;
    if (!largest || input.shape.voxels() > largest->voxels()) largest = input.shape;
  }
  return largest;
}

bool can_be_cut(const ModelGraph& graph, const SpaceGrid& grid) {
  try {
    distribute(graph, grid);
    return true;
  } catch (const Error&) {
    return false;
  }
}

SpaceGrid usual_cuts(const ModelGraph& graph) {
  SpaceGrid grid;
  const std::optional<TensorShape> field = largest_field(graph);
  if (!field || graph.is_module()) return grid;
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < field->extent.size(); ++axis)
    if (field->extent[axis] > 1) axes.push_back(axis);
  for (const std::size_t axis : axes) grid.parts[axis] = 2;
  grid.parts[axes.front()] = axes.size() == 1 ? 8 : 4;
  while (grid.ranks() > 1 && !can_be_cut(graph, grid)) {
    // The last of the axes that are cut most.
    const auto most = std::max_element(grid.parts.rbegin(), grid.parts.rend());
    *most /= 2;
  }
  return grid;
}

// Cells `box` of samples of which there are the cells `frame`.
std::vector<float> cells_of(std::span<const float> values, const TensorShape& shape, const Box& frame,
                            const Box& box) {
  const auto extent = frame.extent();
  const auto& [depth, height, width] = box.axes;
  const std::int64_t first = width.begin - frame.axes[2].begin;
  std::vector<float> cells;
  cells.reserve(static_cast<std::size_t>(shape.channels * box.cells()));
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    for (std::int64_t d = depth.begin; d < depth.end; ++d) {
      for (std::int64_t h = height.begin; h < height.end; ++h) {
        const std::int64_t plane = channel * extent[0] + d - frame.axes[0].begin;
        const std::int64_t line = (plane * extent[1] + h - frame.axes[1].begin) * extent[2] + first;
        const auto begin = values.begin() + line;
        cells.insert(cells.end(), begin, begin + width.count());
      }
    }
  }
  return cells;
}

// One sample at a time, by all of this rank's parts.
class OneSample {
 public:
  virtual ~OneSample() = default;
  virtual void predict(Network::Inputs inputs, std::span<float> outputs) = 0;
  virtual void forward(Network::Inputs inputs, const StepKey& key, std::span<float> outputs) = 0;
  virtual void backward(std::span<const float> output_gradients, ExactSums& sums) = 0;
  virtual void values_changed() = 0;
  virtual std::vector<std::string> describe() const = 0;
  // Values of an input of one sample that a rank passes.
  virtual std::int64_t input_count(std::size_t input) const = 0;
};

// Adds the gradients of a state.
void add_gradients(FlatState& state, ExactSums& sums) {
  sums.add(static_cast<std::size_t>(state.gradients_begin()), state.gradients());
}

class WholeSample final : public OneSample {
 public:
  WholeSample(const ModelGraph& graph, FlatState& state, std::unique_ptr<Network> inner)
      : graph_(graph), state_(state), inner_(std::move(inner)) {}

  void predict(Network::Inputs inputs, std::span<float> outputs) override {
    inner_->predict(inputs, 1, outputs);
  }
  void forward(Network::Inputs inputs, const StepKey& key, std::span<float> outputs) override {
    inner_->forward(inputs, 1, key, outputs);
  }
  void backward(std::span<const float> output_gradients, ExactSums& sums) override {
    inner_->backward(output_gradients, [](std::int64_t) {});
    add_gradients(state_, sums);
  }
  void values_changed() override { inner_->values_changed(); }
  std::vector<std::string> describe() const override { return inner_->describe(); }
  std::int64_t input_count(std::size_t input) const override { return graph_.inputs[input].shape.count(); }

 private:
  ModelGraph graph_;
  FlatState& state_;
  std::unique_ptr<Network> inner_;
};

class SampleInParts final : public OneSample {
 public:
  SampleInParts(const ModelGraph& graph, FlatState& state, const Distribution& distribution,
                SampleParts& parts, KernelChoice kernels)
      : graph_(graph), parts_(parts), members_(parts.own().size()) {
    for (std::size_t input = 0; input < graph_.inputs.size(); ++input)
      frames_.push_back(box_of_parts(distribution, input, parts_.own()));
    for (std::size_t i = 0; i < members_.size(); ++i) {
      members_[i].state = std::make_unique<FlatState>(FlatState::with_values_of(state));
      for (std::size_t input = 0; input < graph_.inputs.size(); ++input)
        members_[i].boxes.push_back(local_box(distribution, input, parts_.own()[i]));
      members_[i].inputs.resize(graph_.inputs.size());
      members_[i].outputs.resize(static_cast<std::size_t>(graph_.output_count()));
    }
    parts_.run([&](std::size_t i) {
      // A setting of the calling thread. More threads would change the order of sums.
      at::set_num_threads(1);
      members_[i].network =
          make_sharing_network(graph_, *members_[i].state, distribution, parts_.group(i), kernels);
    });
  }

  ~SampleInParts() override {
    try {
      parts_.run([&](std::size_t i) { members_[i].network.reset(); });
    } catch (const std::exception&) {
      // The destructors of networks do not throw.
    }
  }

  void predict(Network::Inputs inputs, std::span<float> outputs) override {
    run(inputs, outputs,
        [](Member& member, Network::Inputs own) { member.network->predict(own, 1, member.outputs); });
  }
  void forward(Network::Inputs inputs, const StepKey& key, std::span<float> outputs) override {
    run(inputs, outputs, [&key](Member& member, Network::Inputs own) {
      member.network->forward(own, 1, key, member.outputs);
    });
  }
  void backward(std::span<const float> output_gradients, ExactSums& sums) override {
    parts_.run([&](std::size_t i) { members_[i].network->backward(output_gradients, [](std::int64_t) {}); });
    for (Member& member : members_) add_gradients(*member.state, sums);
  }
  void values_changed() override {
    for (Member& member : members_) member.network->values_changed();
  }
  std::vector<std::string> describe() const override { return members_.front().network->describe(); }
  std::int64_t input_count(std::size_t input) const override {
    return graph_.inputs[input].shape.channels * frames_[input].cells();
  }

 private:
  struct Member {
    std::unique_ptr<FlatState> state;
    std::unique_ptr<Network> network;
    std::vector<Box> boxes;                  // of the inputs
    std::vector<std::vector<float>> inputs;  // the backward pass may read them, too
    std::vector<float> outputs;
  };

  template <class Call>
  void run(Network::Inputs inputs, std::span<float> outputs, const Call& call) {
    parts_.run([&](std::size_t i) {
      Member& member = members_[i];
      std::vector<std::span<const float>> spans;
      for (std::size_t input = 0; input < inputs.size(); ++input) {
        member.inputs[input] =
            cells_of(inputs[input], graph_.inputs[input].shape, frames_[input], member.boxes[input]);
        spans.emplace_back(member.inputs[input]);
      }
      call(member, spans);
    });
    std::ranges::copy(members_.front().outputs, outputs.begin());
  }

  ModelGraph graph_;
  SampleParts& parts_;
  std::vector<Box> frames_;  // of the inputs that this rank passes
  std::vector<Member> members_;
};

class ExactNetwork final : public Network {
 public:
  ExactNetwork(const ModelGraph& graph, const FlatState& state, std::unique_ptr<OneSample> inner)
      : graph_(graph), inner_(std::move(inner)), sums_(state.exchange_count()) {}

  using Network::forward;
  using Network::predict;

  void predict(Inputs inputs, std::int64_t samples, std::span<float> outputs) override {
    std::vector<float> of_sample(static_cast<std::size_t>(graph_.output_count()));
    for (std::int64_t n = 0; n < samples; ++n) {
      inner_->predict(inputs_of(inputs, n), of_sample);
      copy_outputs(of_sample, n, samples, outputs);
    }
  }

  void forward(Inputs inputs, std::int64_t samples, const StepKey& key, std::span<float> outputs) override {
    WFLOW_CHECK(samples == 1);  // it keeps what backward() needs of one
    inner_->forward(inputs, key, outputs);
  }

  void backward(std::span<const float> output_gradients, const Ready& /*ready*/) override {
    inner_->backward(output_gradients, sums_);
  }

  void input_gradient(std::span<float> /*gradient*/) const override { WFLOW_CHECK(false); }
  ExactSums* exact_sums() override { return &sums_; }
  void values_changed() override { inner_->values_changed(); }
  std::vector<std::string> describe() const override { return inner_->describe(); }

 private:
  std::vector<std::span<const float>> inputs_of(Inputs inputs, std::int64_t sample) const {
    std::vector<std::span<const float>> own;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto count = static_cast<std::size_t>(inner_->input_count(i));
      own.push_back(inputs[i].subspan(static_cast<std::size_t>(sample) * count, count));
    }
    return own;
  }

  // All samples of the first output come before those of the second.
  void copy_outputs(std::span<const float> of_sample, std::int64_t n, std::int64_t samples,
                    std::span<float> outputs) const {
    for (const ModelGraph::Output& output : graph_.outputs) {
      const auto count = static_cast<std::size_t>(graph_.shape_of(output.value).count());
      std::copy_n(of_sample.begin(), count, outputs.begin() + n * static_cast<std::ptrdiff_t>(count));
      of_sample = of_sample.subspan(count);
      outputs = outputs.subspan(static_cast<std::size_t>(samples) * count);
    }
  }

  ModelGraph graph_;
  std::unique_ptr<OneSample> inner_;
  ExactSums sums_;
};

}  // namespace

SpaceGrid sample_cuts(const ModelGraph& graph, const std::vector<std::int64_t>& asked) {
  if (asked.empty()) return usual_cuts(graph);
  SpaceGrid grid;
  for (std::size_t axis = 0; axis < grid.parts.size(); ++axis)
    grid.parts[axis] = static_cast<int>(asked[axis]);
  if (grid.ranks() > SampleParts::kMost)
    throw Error(ExitCode::spec, fmt::format("'deterministic' cuts a sample into at most {} parts, not {}",
                                            SampleParts::kMost, text_of(grid)));
  if (grid.ranks() > 1) distribute(graph, grid);
  return grid;
}

std::vector<int> ranks_of_parts(const SpaceGrid& parts, const SpaceGrid& ranks) {
  for (std::size_t axis = 0; axis < parts.parts.size(); ++axis) {
    if (parts.parts[axis] % ranks.parts[axis] == 0) continue;
    throw Error(ExitCode::spec,
                fmt::format("'deterministic: grid' computes each sample in {} parts, which 'grid' ({}) must "
                            "divide along each axis: choose another grid, or name finer parts, such as "
                            "'deterministic: {{parts: [{}]}}', for all trainings that are to be equal",
                            text_of(parts), text_of(ranks), fmt::join(ranks.parts, ", ")));
  }
  std::vector<int> owners;
  for (int part = 0; part < parts.ranks(); ++part) {
    std::array<int, 3> place = parts.place_of(part);
    for (std::size_t axis = 0; axis < place.size(); ++axis)
      place[axis] = place[axis] * ranks.parts[axis] / parts.parts[axis];
    owners.push_back(ranks.rank_of(place));
  }
  return owners;
}

Box box_of_parts(const Distribution& distribution, std::size_t input, std::span<const int> parts) {
  Box box = local_box(distribution, input, parts.front());
  for (const int part : parts) {
    const Box& own = local_box(distribution, input, part);
    for (std::size_t axis = 0; axis < own.axes.size(); ++axis)
      box.axes[axis] = hull(box.axes[axis], own.axes[axis]);
  }
  return box;
}

void check_exact(const ModelGraph& graph) {
  if (graph.buffers().empty()) return;
  throw Error(
      ExitCode::spec,
      "'deterministic: grid' computes each sample by itself, and the network has batch norms (or "
      "other statistics of a batch), whose samples depend on the number of ranks: use 'norm: group' or "
      "'norm: none'");
}

std::unique_ptr<Network> make_exact_network(const ModelGraph& graph, FlatState& state,
                                            std::unique_ptr<Network> inner) {
  return std::make_unique<ExactNetwork>(graph, state,
                                        std::make_unique<WholeSample>(graph, state, std::move(inner)));
}

std::unique_ptr<Network> make_exact_network(const ModelGraph& graph, FlatState& state,
                                            const Distribution& distribution, SampleParts& parts,
                                            KernelChoice kernels) {
  return std::make_unique<ExactNetwork>(
      graph, state, std::make_unique<SampleInParts>(graph, state, distribution, parts, kernels));
}

}  // namespace wflow::trainer
