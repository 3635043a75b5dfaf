// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/sample_cuts.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace wflow::trainer {
namespace {

// Calls `copy(position in the whole field, position in the box, cells)` for each line of a box of fields.
template <class Copy>
void for_each_line(const TensorShape& shape, const Box& box, std::int64_t samples, Copy copy) {
  const auto& [depth, height, width] = box.axes;
  std::int64_t in_box = 0;
  for (std::int64_t plane = 0; plane < samples * shape.channels; ++plane) {
    for (std::int64_t d = depth.begin; d < depth.end; ++d) {
      for (std::int64_t h = height.begin; h < height.end; ++h) {
        const std::int64_t line = ((plane * shape.extent[0] + d) * shape.extent[1] + h) * shape.extent[2];
        copy(line + width.begin, in_box, width.count());
        in_box += width.count();
      }
    }
  }
}

void cut(std::span<const float> whole, const TensorShape& shape, const Box& box, std::int64_t samples,
         std::vector<float>& to) {
  for_each_line(shape, box, samples, [&](std::int64_t from, std::int64_t, std::int64_t cells) {
    const auto begin = whole.begin() + from;
    to.insert(to.end(), begin, begin + cells);
  });
}

void paste(std::span<const float> part, const TensorShape& shape, const Box& box, std::int64_t samples,
           std::span<float> whole) {
  for_each_line(shape, box, samples, [&](std::int64_t to, std::int64_t from, std::int64_t cells) {
    std::copy_n(part.begin() + from, cells, whole.begin() + to);
  });
}

class SharingNetwork final : public Network {
 public:
  SharingNetwork(const ModelGraph& graph, FlatState& state, const Distribution& distribution,
                 RankGroup& group, KernelChoice kernels)
      : graph_(graph),
        distribution_(distribution),
        group_(group),
        split_(make_split_network(graph, state, distribution, group, kernels)) {}

  using Network::forward;
  using Network::predict;

  void predict(Inputs inputs, std::int64_t samples, std::span<float> outputs) override {
    make_room(samples);
    split_->predict(inputs, samples, own_outputs_);
    gather(samples, outputs);
  }

  void forward(Inputs inputs, std::int64_t samples, const StepKey& key, std::span<float> outputs) override {
    make_room(samples);
    split_->forward(inputs, samples, key, own_outputs_);
    gather(samples, outputs);
  }

  void backward(std::span<const float> output_gradients, const Ready& ready) override {
    const std::int64_t samples = static_cast<std::int64_t>(output_gradients.size()) / graph_.output_count();
    own_gradients_.clear();
    for (const ModelGraph::Output& output : graph_.outputs) {
      const TensorShape& shape = graph_.shape_of(output.value);
      const auto count = static_cast<std::size_t>(samples * shape.count());
      cut(output_gradients.first(count), shape, box(output.value, group_.rank()), samples, own_gradients_);
      output_gradients = output_gradients.subspan(count);
    }
    split_->backward(own_gradients_, ready);
  }

  void input_gradient(std::span<float> gradient) const override { split_->input_gradient(gradient); }
  void sit_out(Pass pass) override { split_->sit_out(pass); }
  void values_changed() override { split_->values_changed(); }
  std::vector<std::string> describe() const override { return split_->describe(); }

 private:
  const Box& box(std::size_t value, int rank) const { return local_box(distribution_, value, rank); }

  void make_room(std::int64_t samples) {
    own_outputs_.resize(
        static_cast<std::size_t>(samples * local_output_count(graph_, distribution_, group_.rank())));
  }

  // Each rank sends its cells of the split outputs to all others.
  void gather(std::int64_t samples, std::span<float> outputs) {
    std::span<const float> own = own_outputs_;
    for (const ModelGraph::Output& output : graph_.outputs) {
      const TensorShape& shape = graph_.shape_of(output.value);
      const std::span<float> whole = outputs.first(static_cast<std::size_t>(samples * shape.count()));
      outputs = outputs.subspan(whole.size());
      const auto count =
          static_cast<std::size_t>(samples * shape.channels * box(output.value, group_.rank()).cells());
      gather_output(output.value, samples, own.first(count), whole);
      own = own.subspan(count);
    }
  }

  void gather_output(std::size_t value, std::int64_t samples, std::span<const float> own,
                     std::span<float> whole) {
    const TensorShape& shape = graph_.shape_of(value);
    paste(own, shape, box(value, group_.rank()), samples, whole);
    if (distribution_.values[value].layout == Layout::whole) return;
    std::vector<std::vector<float>> others(static_cast<std::size_t>(group_.size()));
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (rank == group_.rank()) continue;
      std::vector<float>& part = others[static_cast<std::size_t>(rank)];
      part.resize(static_cast<std::size_t>(samples * shape.channels * box(value, rank).cells()));
      outgoing.push_back({rank, std::as_bytes(own)});
      incoming.push_back({rank, std::as_writable_bytes(std::span(part))});
    }
    group_.exchange(std::move(outgoing), std::move(incoming));
    for (int rank = 0; rank < group_.size(); ++rank)
      if (rank != group_.rank())
        paste(others[static_cast<std::size_t>(rank)], shape, box(value, rank), samples, whole);
  }

  ModelGraph graph_;
  Distribution distribution_;
  RankGroup& group_;
  std::unique_ptr<Network> split_;
  std::vector<float> own_outputs_;
  std::vector<float> own_gradients_;  // of the outputs
};

}  // namespace

std::unique_ptr<Network> make_sharing_network(const ModelGraph& graph, FlatState& state,
                                              const Distribution& distribution, RankGroup& group,
                                              KernelChoice kernels) {
  return std::make_unique<SharingNetwork>(graph, state, distribution, group, kernels);
}

}  // namespace wflow::trainer
