// SPDX-License-Identifier: Apache-2.0
// A network whose samples several ranks share: for each value the cells of each rank, for each layer the
// cells that ranks exchange, and the places where ranks change from a part of a field to all of it. A plan,
// without communication, which split_network.h executes; `wflow-train --dry-run --grid` prints it. Bytes are
// those of one sample in float32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/layout.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

inline constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));

// split: each rank has its box; whole: each rank has all cells.
enum class Layout { split, whole };

// `box` of a value, in cells of the whole field, with all its channels.
struct Exchange {
  int from = 0;
  int to = 0;
  Box box;
  // From the box to its place in what the receiver reads: not 0 for a periodic border, whose places are
  // beyond the ends of the field.
  std::array<std::int64_t, 3> shift = {0, 0, 0};
  bool operator==(const Exchange&) const = default;
};

struct ValueSplit {
  Layout layout = Layout::whole;
  std::vector<Box> boxes;  // of each rank; all cells if whole
};

// A layer reads `reads` and computes `gives`: both split or both whole, except for a global mean or maximum,
// which reads split values and gives a whole one, and for the numbers of a film or spread layer
// (layout_read()). Whole layers compute the same numbers on all ranks, so that the gradients of their weights
// count once.
struct LayerSplit {
  Layout reads = Layout::whole;
  Layout gives = Layout::whole;
  std::string reason;  // why it is whole; empty if it is split

  // The rest is empty if the layer is whole. Vectors of boxes have one for each rank.
  std::vector<Box> needed;     // cells of the input that the rank's output reads: its own and the halo
  std::vector<Exchange> halo;  // of the input, before the forward pass
  std::vector<Box> interior;   // output cells that read no halo: computed while the halo travels
  std::vector<Box> readers;    // output cells whose gradients the gradient of the rank's input needs
  // Of the output's gradient; none if the input needs no gradient. Max pool and wrap: the gradients of the
  // halo, back to their ranks. Only the rank that has a window's output knows its largest cell, and a wrap
  // copies a cell to places that other ranks read.
  std::vector<Exchange> gradient_halo;

  // Numbers that the ranks of the sample add up, in doubles.
  std::int64_t forward_sums = 0;
  std::int64_t backward_sums = 0;
};

// True if each rank reads its part of the input and computes its part of the output.
inline bool computes_parts(const LayerSplit& split) {
  return split.reads == Layout::split && split.gives == Layout::split;
}

// The ranks change to the other layout of a value, before this layer reads it. To the whole: each rank sends
// its box to all others in the forward pass. To boxes: each rank takes its own in the forward pass, and sends
// its box of the gradient to all others in the backward pass.
struct LayoutSwitch {
  std::size_t value = 0;
  std::size_t layer = 0;
  Layout to = Layout::whole;
  std::vector<Box> boxes;          // of each rank, in the layout that is split
  std::int64_t forward_bytes = 0;  // that all ranks send together
  std::int64_t backward_bytes = 0;
};

// The layout in which a layer reads one of its inputs.
Layout layout_read(const Layer& layer, const LayerSplit& split, std::size_t input);

struct Distribution {
  SpaceGrid grid;
  std::vector<ValueSplit> values;  // of the graph
  std::vector<LayerSplit> layers;
  std::vector<LayoutSwitch> switches;
};

// Throws Error{spec} if no layer of the network can be cut into these parts.
Distribution distribute(const ModelGraph& graph, const SpaceGrid& grid);

// How the gradient of a halo travels. parts: as split_layers.h does, the gradients of the output to the ranks
// that read them. groups: a group of layers by oneDNN finds the gradients of all cells that it reads and
// sends those of the halo back. Its fields have whole blocks of channels: of 8 here, of 16 for some layers on
// some processors.
enum class HaloGradients { parts, groups };

// The boxes that a layer exchanges, with so many floats a cell.
struct HaloMessages {
  std::vector<Exchange> exchanges;
  std::int64_t channels = 0;
  std::int64_t bytes() const;
};
struct LayerMessages {
  HaloMessages forward;
  HaloMessages backward;
};
std::vector<LayerMessages> messages_of(const ModelGraph& graph, const Distribution& distribution,
                                       HaloGradients gradients);

// The cost of one sample for a rank.
struct RankLoad {
  std::int64_t activation_bytes = 0;  // step_bytes()
  std::int64_t sent_forward = 0;      // bytes, halos and switches
  std::int64_t sent_backward = 0;
};
RankLoad load_of(const ModelGraph& graph, const Distribution& distribution, int rank,
                 HaloGradients gradients = HaloGradients::groups);

// The same messages in the other direction: gradients of a halo, to the ranks that own its cells.
std::vector<Exchange> sent_back(const std::vector<Exchange>& exchanges);

// All bytes of these exchanges of a value with `channels` channels.
std::int64_t bytes_of(const std::vector<Exchange>& exchanges, std::int64_t channels);

// "1.3 MiB", or "-" for none.
std::string bytes_text(std::int64_t bytes);

// A table for output: layout, cells, halos and bytes of each layer, and the memory of the rank that needs
// most.
std::string describe(const ModelGraph& graph, const Distribution& distribution,
                     HaloGradients gradients = HaloGradients::groups);

// The cells of the input that a layer which can be split reads along an axis.
AxisReads axis_reads(const Layer& layer, std::size_t axis);

// The cells of a value that a rank passes to or gets from the network: its box of an input or output that is
// split, else all of it. As a field [samples, C, d, h, w], or [samples, C] for numbers.
const Box& local_box(const Distribution& distribution, std::size_t value, int rank);
// Values of one sample in all outputs together, on this rank.
std::int64_t local_output_count(const ModelGraph& graph, const Distribution& distribution, int rank);

// Groups of layers that one pass computes (onednn_block.h): a convolution with the norm, activation and pool
// after it. Needs no library.

// Number of layers, from the first on, that one block can replace; 0: the first is not a convolution, plain
// or transposed.
std::size_t onednn_block_length(std::span<const Layer> layers);
// The same for layers of fields that are in blocks already; 0: they begin with no norm, activation or pool.
std::size_t blocked_tail_length(std::span<const Layer> layers);

// oneDNN computes a convolution whose channels fill this part of its blocks; hand-written kernels the others,
// where each rank has whole samples.
inline constexpr double kLeastUsefulPart = 0.6;

// True for layers without depth: oneDNN gets their fields as images, which is the same memory, and has more
// kernels for them.
bool is_flat(const Layer& layer);
// The padding of a "same" convolution of 3^3 or 1 x 3 x 3 cells.
std::array<std::int64_t, 3> border_of(const Layer& layer);
// True for the hand-written weight gradient of a first layer: few channels, 3^3 or 1 x 3 x 3 cells.
bool has_own_weight_gradient(const Layer& layer);

// The layers from `first` on, each the only reader of the one before, that a rank can compute of its own
// cells once it has those that the first one reads.
std::span<const Layer> own_chain(const ModelGraph& graph, const GraphUses& uses,
                                 const Distribution& distribution, std::size_t first);

// The memory that a training step takes, counted from the graph before anything is allocated. Needs no
// library.

// Bytes for each sample that a rank computes at once: the outputs that the backward pass reads, with their
// halos, the gradients that exist at the same time, and what the kernels need besides. Without the samples
// themselves, and without the state. Null: each rank has whole samples.
//
// Counts as the kernels of this program keep arrays (groups of layers by oneDNN in blocks of 16 channels); a
// back end that computes layer by layer keeps up to three times as much.
// `copies_fields`: to compute the weight gradient of a convolution on a volume, the kernels copy its input
// and the gradient of its output to the plain layout. oneDNN does so with AVX2, where it has no blocked
// kernel.
std::int64_t step_bytes(const ModelGraph& graph, const Distribution* distribution, int rank,
                        bool copies_fields = false);

}  // namespace wflow::trainer
