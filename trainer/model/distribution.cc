// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/distribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kNarrowBlock = 8;   // the least channels of a block
constexpr double kMostImbalance = 1.0625;  // of the largest part, as a multiple of an even one

// How ranks that have parts of a layer's input compute it.
enum class Splitting {
  boxes,    // each its box of the output, with a halo of the input
  cells,    // the same cell by cell; cheap, so that each rank computes all cells if it has the whole input
  combine,  // each its part of a sum or maximum over all cells; all then have the result
  whole     // not at all: each needs the whole input
};

struct SplitRule {
  Splitting splitting = Splitting::boxes;
  const char* reason = "";  // for whole
};

SplitRule rule_of(LayerKind kind) {
  switch (kind) {
    case LayerKind::convolution:
    case LayerKind::transposed_convolution:
    case LayerKind::average_pool:
    case LayerKind::max_pool:
    case LayerKind::upsample:
    case LayerKind::resize:
    case LayerKind::pixel_shuffle:
    case LayerKind::slice:
    case LayerKind::wrap:
      return {};
    // These layers compute a cell from the same cell alone. The ranks add up the statistics of norms; a layer
    // norm and a softmax work on the channels of one cell; dropout, positions and coordinates use the cell's
    // index in the whole field.
    case LayerKind::batch_norm:
    case LayerKind::group_norm:
    case LayerKind::instance_norm:
    case LayerKind::layer_norm:
    case LayerKind::leaky_relu:
    case LayerKind::relu:
    case LayerKind::elu:
    case LayerKind::gelu:
    case LayerKind::silu:
    case LayerKind::sigmoid:
    case LayerKind::tanh:
    case LayerKind::softplus:
    case LayerKind::tanh_scale:
    case LayerKind::dropout:
    case LayerKind::gather:
    case LayerKind::embedding:
    case LayerKind::softmax:
    case LayerKind::add:
    case LayerKind::subtract:
    case LayerKind::mix:
    case LayerKind::stop:
    case LayerKind::concatenate:
    case LayerKind::sample:
    case LayerKind::positions:
    case LayerKind::coordinates:
    case LayerKind::film:
    case LayerKind::spread:
      return {Splitting::cells};
    case LayerKind::global_mean:
    case LayerKind::global_max:
      return {Splitting::combine};
    case LayerKind::linear:
      return {Splitting::whole, "every unit reads all values"};
    case LayerKind::flatten:
    case LayerKind::reshape:
      return {Splitting::whole, "it moves values to other places"};
    case LayerKind::lstm:
    case LayerKind::gru:
      return {Splitting::whole, "each step reads the state of the step before"};
    case LayerKind::conv_lstm:
      return {Splitting::whole, "each step reads the state that neighbouring cells had one step before"};
    case LayerKind::attention:
      return {Splitting::whole, "every cell reads all cells"};
    case LayerKind::spectral_convolution:
      return {Splitting::whole, "its Fourier transform reads all cells"};
    case LayerKind::trace_density:
      return {Splitting::whole, "each draw reads the state of the draw before"};
    case LayerKind::module:
      return {Splitting::whole, "the layers of a TorchScript module are not known"};
    case LayerKind::apply:
    case LayerKind::count:
      break;
  }
  WFLOW_CHECK(false);
}

// True for the numbers that a film or spread layer reads beside a field.
bool reads_numbers(const Layer& layer, std::size_t input) {
  return (layer.kind == LayerKind::film && input == 1) || (layer.kind == LayerKind::spread && input == 0);
}

// The inputs that a layer reads in parts, if it is split.
std::vector<std::size_t> inputs_in_parts(const Layer& layer) {
  std::vector<std::size_t> fields;
  for (std::size_t k = 0; k < layer.inputs.size(); ++k)
    if (!reads_numbers(layer, k)) fields.push_back(layer.inputs[k]);
  return fields;
}

// The shape of what it reads in parts.
TensorShape shape_in_parts(const Layer& layer) {
  return layer.kind == LayerKind::spread ? layer.output : layer.input;
}

bool has_cells_for_all(const TensorShape& shape, const SpaceGrid& grid) {
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (shape.extent[axis] < grid.parts[axis]) return false;
  return true;
}

// The first value that a layer reads or gives with too few cells for the grid; its shape, or null.
const TensorShape* too_small(const ModelGraph& graph, const Layer& layer, bool output_too,
                             const SpaceGrid& grid) {
  for (const std::size_t input : inputs_in_parts(layer))
    if (!has_cells_for_all(graph.shape_of(input), grid)) return &graph.shape_of(input);
  return output_too && !has_cells_for_all(layer.output, grid) ? &layer.output : nullptr;
}

// True if earlier layers give all inputs, and give them whole.
bool reads_whole_values(const ModelGraph& graph, const Layer& layer, const std::vector<LayerSplit>& earlier) {
  const std::size_t inputs = graph.inputs.size();
  return std::ranges::all_of(inputs_in_parts(layer), [&](std::size_t value) {
    return value >= inputs && earlier[value - inputs].gives == Layout::whole;
  });
}

// Layouts alone; the boxes depend on the cuts, which depend on what is split.
LayerSplit layouts_of(const ModelGraph& graph, const Layer& layer, const std::vector<LayerSplit>& earlier,
                      const SpaceGrid& grid) {
  const SplitRule rule = rule_of(layer.kind);
  LayerSplit split;
  if (rule.splitting == Splitting::whole) {
    split.reason = rule.reason;
    return split;
  }
  const bool boxes = rule.splitting != Splitting::combine;
  if (const TensorShape* shape = too_small(graph, layer, boxes, grid)) {
    split.reason = shape->voxels() == 1
                       ? "it has numbers, no field"
                       : fmt::format("{} has fewer cells than the grid has parts", text_of(*shape));
    return split;
  }
  if (rule.splitting != Splitting::boxes && reads_whole_values(graph, layer, earlier)) {
    split.reason = "every rank has its whole input";
    return split;
  }
  split.reads = Layout::split;
  split.gives = boxes ? Layout::split : Layout::whole;
  return split;
}

// The cuts of an axis for each number of cells that a split value has along it. Values of one size have the
// same cuts, so that sums and shortcuts of them need no exchange.
class AxisCuts {
 public:
  AxisCuts(const ModelGraph& graph, const std::vector<LayerSplit>& layers, std::size_t axis, int parts) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (layers[i].reads == Layout::whole) continue;
      const Layer& layer = graph.layers[i];
      cuts_[shape_in_parts(layer).extent[axis]];
      if (layers[i].gives == Layout::whole) continue;
      cuts_[layer.output.extent[axis]];
      const AxisReads reads = axis_reads(layer, axis);
      if (reads.inputs() != reads.outputs()) steps_.push_back(reads);
    }
    // The coarsest first. The finer ones follow it, so that pools and strides begin at cuts.
    for (auto& [cells, partition] : cuts_) partition = choose(cells, parts);
  }

  const Partition& of(std::int64_t cells) const { return cuts_.at(cells); }

 private:
  Partition choose(std::int64_t cells, int parts) const {
    Partition even = Partition::even(cells, parts);
    for (const AxisReads& step : steps_) {
      if (std::max(step.inputs(), step.outputs()) != cells) continue;
      const Partition followed(step.finer_cuts(of(std::min(step.inputs(), step.outputs())).cuts()));
      // Faces cost little. Parts of different sizes cost more, since all ranks wait for the largest.
      if (followed.least() >= 1 &&
          kMostImbalance * static_cast<double>(even.most()) >= static_cast<double>(followed.most()))
        return followed;
    }
    return even;
  }

  std::map<std::int64_t, Partition> cuts_;
  std::vector<AxisReads> steps_;  // layers that change the number of cells
};

using Cuts = std::array<AxisCuts, 3>;

std::array<const Partition*, 3> partitions_of(const Cuts& cuts, const TensorShape& shape) {
  return {&cuts[0].of(shape.extent[0]), &cuts[1].of(shape.extent[1]), &cuts[2].of(shape.extent[2])};
}

std::vector<Box> boxes_of(const Cuts& cuts, const TensorShape& shape, const SpaceGrid& grid) {
  const auto partitions = partitions_of(cuts, shape);
  std::vector<Box> boxes(static_cast<std::size_t>(grid.ranks()));
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const std::array<int, 3> place = grid.place_of(rank);
    for (std::size_t axis = 0; axis < 3; ++axis)
      boxes[static_cast<std::size_t>(rank)].axes[axis] = partitions[axis]->part(place[axis]);
  }
  return boxes;
}

// The exchanges that bring each rank the cells `wanted` of a value with these cuts, in order of receiver and
// sender.
std::vector<Exchange> exchanges_for(const std::vector<Box>& wanted, const std::vector<Box>& own,
                                    const std::array<const Partition*, 3>& partitions,
                                    const SpaceGrid& grid) {
  std::vector<Exchange> exchanges;
  for (int to = 0; to < grid.ranks(); ++to) {
    const Box& box = wanted[static_cast<std::size_t>(to)];
    if (box.empty()) continue;
    Box places;  // of the ranks that have some of it
    for (std::size_t axis = 0; axis < 3; ++axis)
      places.axes[axis] = partitions[axis]->parts_with(box.axes[axis]);
    const auto& [depth, height, width] = places.axes;
    for (std::int64_t d = depth.begin; d < depth.end; ++d) {
      for (std::int64_t h = height.begin; h < height.end; ++h) {
        for (std::int64_t w = width.begin; w < width.end; ++w) {
          const int from = grid.rank_of({static_cast<int>(d), static_cast<int>(h), static_cast<int>(w)});
          if (from != to)
            exchanges.push_back({from, to, intersection(box, own[static_cast<std::size_t>(from)])});
        }
      }
    }
  }
  return exchanges;
}

// Two ranks find their messages by the order alone.
void in_order(std::vector<Exchange>& exchanges) {
  std::ranges::stable_sort(exchanges, {}, [](const Exchange& e) { return std::pair(e.to, e.from); });
}

// The exchanges for a layer that reads around the ends of the axes: for each of the field's places beside
// itself, those of the cells that are wanted there. A rank has its own cells at all places.
std::vector<Exchange> exchanges_around(const std::vector<Box>& wanted, const std::vector<Box>& own,
                                       const TensorShape& shape,
                                       const std::array<const Partition*, 3>& partitions,
                                       const SpaceGrid& grid) {
  std::vector<Exchange> all;
  for (int place = 0; place < 27; ++place) {
    const std::array<std::int64_t, 3> turns = {place / 9 - 1, place / 3 % 3 - 1, place % 3 - 1};
    std::array<std::int64_t, 3> there{};
    std::array<std::int64_t, 3> back{};
    for (std::size_t axis = 0; axis < 3; ++axis) {
      there[axis] = turns[axis] * shape.extent[axis];
      back[axis] = -there[axis];
    }
    std::vector<Box> here;
    for (const Box& box : wanted) here.push_back(intersection(moved(box, back), Box::of(shape.extent)));
    for (Exchange& exchange : exchanges_for(here, own, partitions, grid)) {
      exchange.shift = there;
      all.push_back(exchange);
    }
  }
  in_order(all);
  return all;
}

void count_sums(const Layer& layer, LayerSplit& split) {
  switch (layer.kind) {
    case LayerKind::batch_norm:
      split.forward_sums = split.backward_sums = 2 * layer.input.channels;
      break;
    case LayerKind::group_norm:
    case LayerKind::instance_norm:
      split.forward_sums = split.backward_sums = 2 * layer.groups;
      break;
    case LayerKind::global_mean:
      split.forward_sums = layer.input.channels;
      break;
    case LayerKind::global_max:  // backward: how many cells have the maximum
      split.forward_sums = split.backward_sums = layer.input.channels;
      break;
    case LayerKind::film:
      split.backward_sums = 2 * layer.input.channels;
      break;
    case LayerKind::spread:
      split.backward_sums = layer.output.channels;
      break;
    default:
      break;
  }
}

struct Planned {
  const ModelGraph& graph;
  const Cuts& cuts;
  std::vector<bool> wants_gradient;
  Distribution distribution;
};

void plan_boxes(Planned& planned, std::size_t index) {
  const Layer& layer = planned.graph.layers[index];
  LayerSplit& split = planned.distribution.layers[index];
  const SpaceGrid& grid = planned.distribution.grid;
  const std::vector<Box> inputs = boxes_of(planned.cuts, shape_in_parts(layer), grid);
  const std::vector<Box> outputs = boxes_of(planned.cuts, layer.output, grid);
  split.needed = split.readers = inputs;
  split.interior = outputs;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const AxisReads reads = axis_reads(layer, axis);
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      const Range in = inputs[rank].axes[axis];
      const Range out = outputs[rank].axes[axis];
      split.needed[rank].axes[axis] = reads.needed(out);
      split.interior[rank].axes[axis] = reads.inside(out, in);
      split.readers[rank].axes[axis] = reads.readers(in);
    }
  }
  const bool whole = planned.distribution.values[layer.inputs.front()].layout == Layout::whole;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    // Windows that end in the padding may need no halo at all.
    if (whole || intersection(split.needed[rank], inputs[rank]) == split.needed[rank])
      split.interior[rank] = outputs[rank];
  }
  const auto halo = [&] {
    const auto partitions = partitions_of(planned.cuts, layer.input);
    return layer.kind == LayerKind::wrap
               ? exchanges_around(split.needed, inputs, layer.input, partitions, grid)
               : exchanges_for(split.needed, inputs, partitions, grid);
  };
  if (!whole) split.halo = halo();
  if (!planned.wants_gradient[layer.inputs.front()]) return;
  if (layer.kind == LayerKind::max_pool || layer.kind == LayerKind::wrap) {
    split.gradient_halo = sent_back(halo());
    return;
  }
  split.gradient_halo =
      exchanges_for(split.readers, outputs, partitions_of(planned.cuts, layer.output), grid);
}

void plan_values(Planned& planned) {
  Distribution& distribution = planned.distribution;
  const std::size_t inputs = planned.graph.inputs.size();
  distribution.values.resize(inputs + planned.graph.layers.size());
  for (std::size_t i = 0; i < distribution.layers.size(); ++i) {
    distribution.values[inputs + i].layout = distribution.layers[i].gives;
    if (distribution.layers[i].reads == Layout::whole) continue;
    // An input that some layer reads in parts is read in parts.
    for (const std::size_t value : inputs_in_parts(planned.graph.layers[i]))
      if (value < inputs) distribution.values[value].layout = Layout::split;
  }
  for (std::size_t value = 0; value < distribution.values.size(); ++value) {
    ValueSplit& split = distribution.values[value];
    const TensorShape& shape = planned.graph.shape_of(value);
    split.boxes =
        split.layout == Layout::split
            ? boxes_of(planned.cuts, shape, distribution.grid)
            : std::vector<Box>(static_cast<std::size_t>(distribution.grid.ranks()), Box::of(shape.extent));
  }
}

void plan_switches(Planned& planned) {
  Distribution& distribution = planned.distribution;
  if (distribution.grid.ranks() == 1) return;  // its box is the whole
  for (std::size_t i = 0; i < distribution.layers.size(); ++i) {
    const Layer& layer = planned.graph.layers[i];
    for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
      const std::size_t value = layer.inputs[k];
      const Layout wanted = layout_read(layer, distribution.layers[i], k);
      if (distribution.values[value].layout == wanted) continue;
      const bool done = std::any_of(distribution.switches.begin(), distribution.switches.end(),
                                    [&](const LayoutSwitch& earlier) { return earlier.value == value; });
      if (done) continue;
      const std::int64_t bytes =
          (distribution.grid.ranks() - 1) * planned.graph.shape_of(value).count() * kFloatBytes;
      LayoutSwitch change = {value, i, wanted,
                             boxes_of(planned.cuts, planned.graph.shape_of(value), distribution.grid)};
      if (wanted == Layout::whole) change.forward_bytes = bytes;
      if (wanted == Layout::split && planned.wants_gradient[value]) change.backward_bytes = bytes;
      distribution.switches.push_back(change);
    }
  }
}

[[noreturn]] void refuse_grid(const ModelGraph& graph, const SpaceGrid& grid) {
  if (graph.is_module()) {
    throw Error(
        ExitCode::spec,
        "the network is a TorchScript module, whose layers are not known, so ranks can't share a sample: "
        "leave the grid out, or write the network as a list of layers");
  }
  TensorShape largest = graph.input();
  for (std::size_t value = 0; value < graph.inputs.size() + graph.layers.size(); ++value)
    if (graph.shape_of(value).voxels() > largest.voxels()) largest = graph.shape_of(value);
  throw Error(ExitCode::spec,
              fmt::format("no layer of the network can be cut into {} parts; its largest value is {} "
                          "(channels x depth x height x width): choose a grid with fewer parts along "
                          "short axes",
                          text_of(grid), text_of(largest)));
}

std::int64_t cells_sent(const std::vector<Exchange>& exchanges, int rank) {
  std::int64_t cells = 0;
  for (const Exchange& exchange : exchanges) cells += exchange.from == rank ? exchange.box.cells() : 0;
  return cells;
}

// The box with the most cells.
const Box& largest_of(const std::vector<Box>& boxes) {
  return *std::max_element(boxes.begin(), boxes.end(),
                           [](const Box& a, const Box& b) { return a.cells() < b.cells(); });
}

std::string box_text(const Layer& layer, const Box& box) {
  return text_of(TensorShape{layer.output.channels, box.extent()});
}

std::string layer_lines(const ModelGraph& graph, const Distribution& distribution, HaloGradients gradients) {
  const std::vector<LayerMessages> messages = messages_of(graph, distribution, gradients);
  std::string lines = fmt::format("  {:<16} {:<22} {:<22} {:>12} {:>14} {:>12}\n", "layer", "kind",
                                  "of a rank", "halo", "gradient halo", "sums");
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    const Layer& layer = graph.layers[i];
    const LayerSplit& split = distribution.layers[i];
    const std::size_t value = graph.inputs.size() + i;
    const std::int64_t sums = split.forward_sums + split.backward_sums;
    const std::string cells =
        split.gives == Layout::whole ? "all" : box_text(layer, largest_of(distribution.values[value].boxes));
    lines += fmt::format("  {:<16} {:<22} {:<22} {:>12} {:>14} {:>12}\n", layer.name, name_of(layer.kind),
                         cells, bytes_text(messages[i].forward.bytes()),
                         bytes_text(messages[i].backward.bytes()), sums == 0 ? "-" : std::to_string(sums));
  }
  return lines;
}

// True for the first layer of a group that oneDNN computes from parts (split_blocks.h).
bool is_group(const ModelGraph& graph, const GraphUses& uses, const Distribution& distribution,
              std::size_t first) {
  if (!computes_parts(distribution.layers[first])) return false;
  const std::size_t input = graph.layers[first].inputs.front();
  const std::vector<Box>& needed = distribution.layers[first].needed;
  return distribution.values[input].layout == Layout::split &&
         std::none_of(needed.begin(), needed.end(), [](const Box& box) { return box.empty(); }) &&
         onednn_block_length(own_chain(graph, uses, distribution, first)) > 0;
}

std::string switch_lines(const ModelGraph& graph, const Distribution& distribution) {
  std::string lines;
  for (const LayoutSwitch& change : distribution.switches) {
    const std::string& name = graph.layers[change.layer].name;
    if (change.to == Layout::split) {
      lines += fmt::format(
          "cut             before '{}', which each rank computes for its cells: {} sent backward\n", name,
          bytes_text(change.backward_bytes));
      continue;
    }
    lines += fmt::format("gathered        before '{}', which every rank computes: {}; {} sent forward\n",
                         name, distribution.layers[change.layer].reason, bytes_text(change.forward_bytes));
  }
  return lines;
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
  return bytes == 0 ? "-" : text::format_bytes(static_cast<std::uint64_t>(bytes));
}

Layout layout_read(const Layer& layer, const LayerSplit& split, std::size_t input) {
  return reads_numbers(layer, input) ? Layout::whole : split.reads;
}

AxisReads axis_reads(const Layer& layer, std::size_t axis) {
  const std::int64_t inputs = shape_in_parts(layer).extent[axis];
  const std::int64_t outputs = layer.output.extent[axis];
  switch (layer.kind) {
    case LayerKind::convolution:
    case LayerKind::average_pool:
    case LayerKind::max_pool:
      return AxisReads::windows(
          {layer.kernel[axis], layer.stride[axis], layer.dilation[axis], layer.pad_low[axis]}, inputs,
          outputs);
    case LayerKind::transposed_convolution:
      return AxisReads::spread(layer.kernel[axis], layer.stride[axis], inputs, outputs, layer.pad_low[axis]);
    case LayerKind::upsample:
    case LayerKind::pixel_shuffle:
      return AxisReads::spread(layer.kernel[axis], layer.kernel[axis], inputs, outputs);
    case LayerKind::resize:
      return AxisReads::linear(inputs, outputs);
    case LayerKind::wrap:
      return AxisReads::wrapped(layer.pad_low[axis], inputs, outputs);
    case LayerKind::slice:
      return AxisReads::windows({1, 1, 1, layer.axis == axis + 1 ? -layer.first : 0}, inputs, outputs);
    default:
      WFLOW_CHECK(rule_of(layer.kind).splitting == Splitting::cells);
      return AxisReads::windows({}, inputs, outputs);
  }
}

Distribution distribute(const ModelGraph& graph, const SpaceGrid& grid) {
  std::vector<LayerSplit> layers;
  for (const Layer& layer : graph.layers) layers.push_back(layouts_of(graph, layer, layers, grid));
  if (std::none_of(layers.begin(), layers.end(),
                   [](const LayerSplit& l) { return l.reads == Layout::split; }))
    refuse_grid(graph, grid);
  const Cuts cuts = {AxisCuts(graph, layers, 0, grid.parts[0]), AxisCuts(graph, layers, 1, grid.parts[1]),
                     AxisCuts(graph, layers, 2, grid.parts[2])};
  Planned planned = {graph, cuts, uses_of(graph).learned, {grid, {}, std::move(layers), {}}};
  plan_values(planned);
  plan_switches(planned);
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    LayerSplit& split = planned.distribution.layers[i];
    if (split.gives == Layout::split) plan_boxes(planned, i);
    if (split.reads == Layout::split) count_sums(graph.layers[i], split);
  }
  return std::move(planned.distribution);
}

std::vector<Exchange> sent_back(const std::vector<Exchange>& exchanges) {
  std::vector<Exchange> back;
  for (const auto& [from, to, box, shift] : exchanges)
    back.push_back({to, from, moved(box, shift), {-shift[0], -shift[1], -shift[2]}});
  in_order(back);
  return back;
}

std::int64_t bytes_of(const std::vector<Exchange>& exchanges, std::int64_t channels) {
  std::int64_t cells = 0;
  for (const Exchange& exchange : exchanges) cells += exchange.box.cells();
  return cells * channels * kFloatBytes;
}

std::int64_t HaloMessages::bytes() const {
  return bytes_of(exchanges, channels);
}

std::vector<LayerMessages> messages_of(const ModelGraph& graph, const Distribution& distribution,
                                       HaloGradients gradients) {
  std::vector<LayerMessages> all;
  const GraphUses uses = uses_of(graph);
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    const Layer& layer = graph.layers[i];
    const LayerSplit& split = distribution.layers[i];
    all.push_back({{split.halo, layer.input.channels}, {split.gradient_halo, layer.output.channels}});
    if (gradients == HaloGradients::parts || !is_group(graph, uses, distribution, i)) continue;
    // An input that learns comes in blocks; data come as they are.
    const bool learned = uses.learned[layer.inputs.front()];
    const std::int64_t channels =
        learned ? (layer.input.channels + kNarrowBlock - 1) / kNarrowBlock * kNarrowBlock
                : layer.input.channels;
    all.back().forward.channels = all.back().backward.channels = channels;
    all.back().backward.exchanges = learned ? sent_back(split.halo) : std::vector<Exchange>();
  }
  return all;
}

RankLoad load_of(const ModelGraph& graph, const Distribution& distribution, int rank,
                 HaloGradients gradients) {
  const auto r = static_cast<std::size_t>(rank);
  RankLoad load;
  load.activation_bytes = step_bytes(graph, &distribution, rank);
  for (const auto& [forward, backward] : messages_of(graph, distribution, gradients)) {
    load.sent_forward += kFloatBytes * forward.channels * cells_sent(forward.exchanges, rank);
    load.sent_backward += kFloatBytes * backward.channels * cells_sent(backward.exchanges, rank);
  }
  for (const LayoutSwitch& change : distribution.switches) {
    const TensorShape& shape = graph.shape_of(change.value);
    const std::int64_t cell = shape.channels * kFloatBytes;
    const std::int64_t to_others = (distribution.grid.ranks() - 1) * cell * change.boxes[r].cells();
    if (change.to == Layout::whole) {
      load.sent_forward += to_others;
    } else if (change.backward_bytes > 0) {
      load.sent_backward += to_others;
    }
  }
  return load;
}

std::string describe(const ModelGraph& graph, const Distribution& distribution, HaloGradients gradients) {
  RankLoad most;
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  for (int rank = 0; rank < distribution.grid.ranks(); ++rank) {
    const RankLoad load = load_of(graph, distribution, rank, gradients);
    forward = std::max(forward, load.sent_forward);
    backward = std::max(backward, load.sent_backward);
    if (load.activation_bytes > most.activation_bytes) most = load;
  }
  std::string out =
      fmt::format("grid            {}: {} ranks share a sample; the figures are those of one sample\n",
                  text_of(distribution.grid), distribution.grid.ranks());
  out += layer_lines(graph, distribution, gradients) + switch_lines(graph, distribution);
  out += fmt::format("sent a rank     at most {} forward and {} backward\n", bytes_text(forward),
                     bytes_text(backward));
  out += fmt::format("memory a rank   at most {} of activations with their halos; {} on one rank\n",
                     bytes_text(most.activation_bytes), bytes_text(step_bytes(graph, nullptr, 0)));
  return out;
}

const Box& local_box(const Distribution& distribution, std::size_t value, int rank) {
  return distribution.values[value].boxes[static_cast<std::size_t>(rank)];
}

std::int64_t local_output_count(const ModelGraph& graph, const Distribution& distribution, int rank) {
  std::int64_t count = 0;
  for (const ModelGraph::Output& output : graph.outputs)
    count += graph.shape_of(output.value).channels * local_box(distribution, output.value, rank).cells();
  return count;
}

}  // namespace wflow::trainer
