// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/distribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "trainer/model/graph_builder.h"

namespace wflow::trainer {
namespace {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  // From `least` to `most`.
  std::int64_t roll(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(hash64(seed_, ++rolls_) % static_cast<std::uint64_t>(most - least + 1));
  }

 private:
  std::uint64_t seed_;
  std::uint64_t rolls_ = 0;
};

constexpr std::size_t kWidth = 2;  // the axis of series

// A layer on a series of up to 40 cells, of a kind that changes cells; none if it does not fit.
std::optional<Layer> random_layer(Dice& dice) {
  const std::int64_t n = dice.roll(1, 40);
  const std::int64_t factor = dice.roll(1, 4);
  GraphBuilder builder({{"x", {factor, {1, 1, n}}}}, {{1, {1, 1, 41}}});
  const GraphBuilder::Window window = {dice.roll(1, 7), dice.roll(1, 3),
                                       dice.roll(0, 1) == 1 ? Padding::same : Padding::valid, false,
                                       dice.roll(1, 3)};
  switch (dice.roll(0, 10)) {
    case 0:
      if (window.padding == Padding::same && window.kernel < window.stride) return std::nullopt;
      builder.transposed_convolution("t", 0, 1, window);
      break;
    case 1:
      if (window.kernel > n) return std::nullopt;
      builder.pool(LayerKind::max_pool, "p", 0, builder.along_axes(window.kernel));
      break;
    case 2:
      builder.upsample("u", 0, factor);
      break;
    case 3:
      builder.resize("r", 0, {1, 1, dice.roll(1, 60)});
      break;
    case 4: {
      const std::int64_t first = dice.roll(0, n - 1);
      builder.slice("s", 0, LayerAxis::width, first, dice.roll(first + 1, n));
      break;
    }
    case 5:
      builder.pixel_shuffle("q", 0, factor);
      break;
    case 6:
      builder.pointwise(LayerKind::relu, "a", 0);
      break;
    case 7: {
      if ((window.kernel - 1) * window.dilation > n) return std::nullopt;
      GraphBuilder::Window around = window;
      around.padding = Padding::periodic;
      builder.convolution("b", 0, 1, around);  // its wrap, if it needs one
      break;
    }
    default:
      if (window.padding == Padding::valid && (window.kernel - 1) * window.dilation + 1 > n)
        return std::nullopt;
      builder.convolution("c", 0, 1, window);
      break;
  }
  return builder.finish().layers.front();
}

// True if output cell `o` depends on input cell `i`, by the definition of the layer.
bool depends(const Layer& layer, std::int64_t o, std::int64_t i) {
  const std::int64_t n = layer.input.extent[kWidth];
  const std::int64_t m = layer.output.extent[kWidth];
  const std::int64_t k = layer.kernel[kWidth];
  const std::int64_t stride = layer.stride[kWidth];
  switch (layer.kind) {
    case LayerKind::convolution: {
      const std::int64_t in_window = i + layer.pad_low[kWidth] - o * stride;
      return in_window >= 0 && in_window < layer.reach(kWidth) && in_window % layer.dilation[kWidth] == 0;
    }
    case LayerKind::transposed_convolution:
      return o + layer.pad_low[kWidth] - i * stride >= 0 && o + layer.pad_low[kWidth] - i * stride < k;
    case LayerKind::max_pool:
    case LayerKind::average_pool:
      return i / k == o;
    case LayerKind::upsample:
    case LayerKind::pixel_shuffle:
      return o / k == i;
    case LayerKind::resize: {
      // The place of the output cell, between 0 and n - 1, in units of 1 / 2m; the cell has weight if it is
      // nearer than one cell.
      const std::int64_t place = std::clamp<std::int64_t>((2 * o + 1) * n - m, 0, 2 * m * (n - 1));
      return std::abs(place - 2 * m * i) < 2 * m;
    }
    case LayerKind::slice:
      return i == o + layer.first;
    case LayerKind::wrap:
      return (o - layer.pad_low[kWidth] - i) % n == 0;
    default:
      return i == o;
  }
}

std::vector<std::int64_t> random_cuts(Dice& dice, std::int64_t cells, std::int64_t parts) {
  std::vector<std::int64_t> cuts = {0, cells};
  while (std::ssize(cuts) <= parts) cuts.push_back(dice.roll(0, cells));
  std::ranges::sort(cuts);
  return cuts;
}

// A part with all output cells needs the cells that there are; another one those of its border, too, in order
// and beyond the ends.
void check_needed_around(const Layer& layer, const Range& needed, const Range& out) {
  const std::int64_t n = layer.input.extent[kWidth];
  if (out == Range{0, layer.output.extent[kWidth]}) {
    ASSERT_EQ(needed, (Range{0, n}));
    return;
  }
  ASSERT_EQ(needed.count(), out.count());
  for (std::int64_t k = 0; k < out.count(); ++k) {
    const std::int64_t cell = needed.begin + k;
    ASSERT_TRUE(cell >= -n && cell < 2 * n);
    ASSERT_TRUE(depends(layer, out.begin + k, (cell + n) % n));
  }
}

// The formulae of one part of a layer against every pair of cells.
void check_part(const Layer& layer, const AxisReads& reads, const Range& in, const Range& out) {
  Range needed;
  Range readers;
  std::vector<bool> reads_others(static_cast<std::size_t>(layer.output.extent[kWidth]), false);
  for (std::int64_t o = 0; o < layer.output.extent[kWidth]; ++o) {
    for (std::int64_t i = 0; i < layer.input.extent[kWidth]; ++i) {
      if (!depends(layer, o, i)) continue;
      const bool own_input = i >= in.begin && i < in.end;
      if (o >= out.begin && o < out.end) needed = hull(needed, {i, i + 1});
      if (own_input) readers = hull(readers, {o, o + 1});
      if (!own_input) reads_others[static_cast<std::size_t>(o)] = true;
    }
  }
  const Range got_needed = reads.needed(out);
  const Range got_readers = reads.readers(in);
  if (layer.kind == LayerKind::wrap) {
    ASSERT_NO_FATAL_FAILURE(check_needed_around(layer, got_needed, out));
  } else {
    ASSERT_TRUE(got_needed == needed || (got_needed.empty() && needed.empty()));
  }
  ASSERT_TRUE(got_readers == readers || (got_readers.empty() && readers.empty()));
  const Range inside = reads.inside(out, in);
  // An output cell of a border may read a cell of the same part.
  const bool dense = layer.dilation[kWidth] == 1 && layer.kernel[kWidth] >= layer.stride[kWidth] &&
                     layer.kind != LayerKind::wrap;
  for (std::int64_t o = out.begin; o < out.end; ++o) {
    const bool is_inside = o >= inside.begin && o < inside.end;
    const bool independent = !reads_others[static_cast<std::size_t>(o)];
    ASSERT_TRUE(!is_inside || independent) << "cell " << o;
    // Cells between the taps of a dilated window may count as read.
    ASSERT_TRUE(is_inside || !independent || !dense || in.empty()) << "cell " << o;
  }
}

TEST(AxisReads, AreTheLayersDefinitionsInRandomCases) {
  Dice dice(26);
  constexpr int kCases = 100'000;
  int done = 0;
  while (done < kCases) {
    const std::optional<Layer> layer = random_layer(dice);
    if (!layer) continue;
    ++done;
    const AxisReads reads = axis_reads(*layer, kWidth);
    const std::int64_t parts = dice.roll(1, 8);
    const Partition in(random_cuts(dice, reads.inputs(), parts));
    const Partition out(random_cuts(dice, reads.outputs(), parts));
    const int part = static_cast<int>(dice.roll(0, parts - 1));
    ASSERT_NO_FATAL_FAILURE(check_part(*layer, reads, in.part(part), out.part(part)))
        << name_of(layer->kind) << ": kernel " << layer->kernel[kWidth] << ", stride "
        << layer->stride[kWidth] << ", dilation " << layer->dilation[kWidth] << ", pad "
        << layer->pad_low[kWidth] << ", " << reads.inputs() << " cells to " << reads.outputs()
        << ", input part " << in.part(part).begin << " to " << in.part(part).end << ", output part "
        << out.part(part).begin << " to " << out.part(part).end;
  }
}

TEST(Partition, GivesTheRestToTheFirstParts) {
  const Partition partition = Partition::even(11, 4);
  EXPECT_THAT(partition.cuts(), testing::ElementsAre(0, 3, 6, 9, 11));
  EXPECT_EQ(partition.most(), 3);
  EXPECT_EQ(partition.least(), 2);
  EXPECT_EQ(partition.parts_with({2, 7}), (Range{0, 3}));
  EXPECT_EQ(partition.parts_with({9, 11}), (Range{3, 4}));
  EXPECT_TRUE(partition.parts_with({4, 4}).empty());
}

TEST(Box, SlabsAroundTheInteriorAreTheRest) {
  Dice dice(1);
  for (int round = 0; round < 2000; ++round) {
    Box box;
    Box inner;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::vector<std::int64_t> cuts = random_cuts(dice, 9, 3);
      box.axes[axis] = {cuts[0], cuts[3]};
      inner.axes[axis] = {cuts[1], cuts[2]};
    }
    std::vector<Box> boxes = around(box, inner);
    if (!inner.empty()) boxes.push_back(inner);
    std::int64_t cells = 0;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      cells += boxes[i].cells();
      EXPECT_EQ(intersection(boxes[i], box), boxes[i]);
      for (std::size_t j = 0; j < i; ++j) EXPECT_TRUE(intersection(boxes[i], boxes[j]).empty());
    }
    EXPECT_EQ(cells, box.cells());
  }
}

TEST(SpaceGrid, ReadsPartsAndRefusesOtherText) {
  const SpaceGrid grid = read_space_grid("2x3x4");
  EXPECT_EQ(grid.ranks(), 24);
  for (int rank = 0; rank < 24; ++rank) EXPECT_EQ(grid.rank_of(grid.place_of(rank)), rank);
  EXPECT_EQ(grid.rank_of({1, 2, 3}), 23);
  for (const char* text : {"", "2", "2x2", "2x2x0", "2x2x-1", "2x2x2x2", "axbxc", "2x2x", "65536x65536x2"}) {
    try {
      read_space_grid(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_THAT(error.what(),
                  testing::HasSubstr("is no grid of ranks: write the parts along depth, height and"));
    }
  }
}

// Every cell of a box that a rank wants is its own or arrives once, from the rank that owns it.
void check_exchanges(const std::vector<Exchange>& exchanges, const std::vector<Box>& wanted,
                     const std::vector<Box>& own) {
  std::vector<std::int64_t> cells;
  for (std::size_t rank = 0; rank < own.size(); ++rank)
    cells.push_back(intersection(wanted[rank], own[rank]).cells());
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    const auto& [from, to, box, shift] = exchanges[i];
    ASSERT_NE(from, to);
    ASSERT_EQ(shift, (std::array<std::int64_t, 3>{0, 0, 0}));
    ASSERT_FALSE(box.empty());
    ASSERT_EQ(intersection(box, own[static_cast<std::size_t>(from)]), box);
    ASSERT_EQ(intersection(box, wanted[static_cast<std::size_t>(to)]), box);
    // Ordered by receiver and sender, and so without a second message between two ranks.
    ASSERT_TRUE(i == 0 || std::pair(exchanges[i - 1].to, exchanges[i - 1].from) < std::pair(to, from));
    cells[static_cast<std::size_t>(to)] += box.cells();
  }
  // The owners' boxes have no common cells, so that equal numbers are equal sets.
  for (std::size_t rank = 0; rank < own.size(); ++rank) ASSERT_EQ(cells[rank], wanted[rank].cells());
}

// Every cell of a box that a rank wants, beyond the ends of the field too, is its own or arrives once, from
// the rank that owns it and as many turns away as the shift says.
void check_exchanges_around(const Layer& layer, const std::vector<Exchange>& exchanges,
                            const std::vector<Box>& wanted, const std::vector<Box>& own) {
  const auto& n = layer.input.extent;
  using Cell = std::array<std::int64_t, 3>;
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    std::map<Cell, int> found;
    const auto mark = [&](const Box& box) {
      for (std::int64_t d = box.axes[0].begin; d < box.axes[0].end; ++d)
        for (std::int64_t h = box.axes[1].begin; h < box.axes[1].end; ++h)
          for (std::int64_t w = box.axes[2].begin; w < box.axes[2].end; ++w) ++found[{d, h, w}];
    };
    for (const auto& [from, to, box, shift] : exchanges) {
      if (to != static_cast<int>(rank)) continue;
      ASSERT_NE(from, to);
      ASSERT_FALSE(box.empty());
      ASSERT_EQ(intersection(box, own[static_cast<std::size_t>(from)]), box);
      for (std::size_t axis = 0; axis < 3; ++axis) ASSERT_EQ(shift[axis] % n[axis], 0);
      mark(moved(box, shift));
    }
    const Box& box = wanted[rank];
    const Box& mine = own[rank];
    std::size_t cells = 0;
    for (std::int64_t d = box.axes[0].begin; d < box.axes[0].end; ++d) {
      for (std::int64_t h = box.axes[1].begin; h < box.axes[1].end; ++h) {
        for (std::int64_t w = box.axes[2].begin; w < box.axes[2].end; ++w) {
          const Cell cell = {(d + n[0]) % n[0], (h + n[1]) % n[1], (w + n[2]) % n[2]};
          bool is_own = true;
          for (std::size_t axis = 0; axis < 3; ++axis)
            is_own = is_own && cell[axis] >= mine.axes[axis].begin && cell[axis] < mine.axes[axis].end;
          const auto at = found.find({d, h, w});
          ASSERT_EQ(at == found.end() ? 0 : at->second, is_own ? 0 : 1);
          cells += at == found.end() ? 0 : 1;
        }
      }
    }
    ASSERT_EQ(cells, found.size());  // nothing else arrives
  }
}

void check_boxes(const std::vector<Box>& boxes, const TensorShape& shape) {
  std::int64_t cells = 0;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    ASSERT_FALSE(boxes[i].empty());
    ASSERT_EQ(intersection(boxes[i], Box::of(shape.extent)), boxes[i]);
    cells += boxes[i].cells();
    for (std::size_t j = 0; j < i; ++j) ASSERT_TRUE(intersection(boxes[i], boxes[j]).empty());
  }
  ASSERT_EQ(cells, shape.voxels());
}

// The gradients of the halo of a max pool or a wrap go back to the ranks that it came from.
void check_sent_back(const LayerSplit& split) {
  if (split.halo.empty() || split.gradient_halo.empty()) return;
  ASSERT_EQ(split.gradient_halo.size(), split.halo.size());
  for (const Exchange& exchange : split.halo) {
    const auto& s = exchange.shift;
    const Exchange back = {exchange.to, exchange.from, moved(exchange.box, s), {-s[0], -s[1], -s[2]}};
    ASSERT_NE(std::ranges::find(split.gradient_halo, back), split.gradient_halo.end());
  }
}

void check_layer(const ModelGraph& graph, const Distribution& distribution, std::size_t index) {
  const Layer& layer = graph.layers[index];
  const LayerSplit& split = distribution.layers[index];
  ASSERT_EQ(split.reason.empty(), split.reads == Layout::split);
  if (split.gives == Layout::whole) {
    ASSERT_TRUE(split.halo.empty() && split.gradient_halo.empty());
    return;
  }
  const std::vector<Box>& outputs = distribution.values[graph.inputs.size() + index].boxes;
  const ValueSplit& input = distribution.values[layer.inputs.front()];
  if (layer.kind == LayerKind::wrap && input.layout == Layout::split) {
    ASSERT_NO_FATAL_FAILURE(check_exchanges_around(layer, split.halo, split.needed, input.boxes));
  } else if (input.layout == Layout::split) {
    ASSERT_NO_FATAL_FAILURE(check_exchanges(split.halo, split.needed, input.boxes));
  } else {
    ASSERT_TRUE(split.halo.empty());
  }
  if (layer.kind == LayerKind::max_pool || layer.kind == LayerKind::wrap) {
    ASSERT_NO_FATAL_FAILURE(check_sent_back(split));
  } else if (!split.gradient_halo.empty()) {
    ASSERT_NO_FATAL_FAILURE(check_exchanges(split.gradient_halo, split.readers, outputs));
  }
  for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
    ASSERT_EQ(intersection(split.interior[rank], outputs[rank]), split.interior[rank]);
    ASSERT_TRUE(!split.halo.empty() || split.interior[rank] == outputs[rank]) << layer.name;
  }
}

void check_distribution(const ModelGraph& graph, const SpaceGrid& grid) {
  const Distribution distribution = distribute(graph, grid);
  ASSERT_EQ(distribution.values.size(), graph.inputs.size() + graph.layers.size());
  for (std::size_t value = 0; value < distribution.values.size(); ++value) {
    const ValueSplit& split = distribution.values[value];
    const TensorShape& shape = graph.shape_of(value);
    if (split.layout == Layout::split) {
      ASSERT_NO_FATAL_FAILURE(check_boxes(split.boxes, shape));
    } else {
      for (const Box& box : split.boxes) ASSERT_EQ(box, Box::of(shape.extent));
    }
  }
  std::int64_t sent_forward = 0;
  std::int64_t sent_backward = 0;
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    const LayerSplit& split = distribution.layers[i];
    ASSERT_NO_FATAL_FAILURE(check_layer(graph, distribution, i)) << graph.layers[i].name;
    sent_forward += bytes_of(split.halo, graph.layers[i].input.channels);
    sent_backward += bytes_of(split.gradient_halo, graph.layers[i].output.channels);
    // A reader has the layout that it wants, or a switch to it comes before.
    for (std::size_t k = 0; k < graph.layers[i].inputs.size(); ++k) {
      const std::size_t value = graph.layers[i].inputs[k];
      const Layout wanted = layout_read(graph.layers[i], split, k);
      const bool switched = std::ranges::any_of(distribution.switches, [&](const LayoutSwitch& change) {
        return change.value == value && change.layer <= i && change.to == wanted;
      });
      ASSERT_EQ(switched, grid.ranks() > 1 && distribution.values[value].layout != wanted)
          << graph.layers[i].name;
    }
  }
  for (const LayoutSwitch& change : distribution.switches) {
    ASSERT_NO_FATAL_FAILURE(check_boxes(change.boxes, graph.shape_of(change.value)));
    sent_forward += change.forward_bytes;
    sent_backward += change.backward_bytes;
  }
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const RankLoad load = load_of(graph, distribution, rank, HaloGradients::parts);
    sent_forward -= load.sent_forward;
    sent_backward -= load.sent_backward;
  }
  ASSERT_EQ(sent_forward, 0);
  ASSERT_EQ(sent_backward, 0);
}

std::vector<SpaceGrid> grids_of(int ranks) {
  std::vector<SpaceGrid> grids;
  for (int d = 1; d <= ranks; ++d) {
    for (int h = 1; h <= ranks; ++h) {
      if (ranks % (d * h) == 0) grids.push_back({{d, h, ranks / (d * h)}});
    }
  }
  return grids;
}

ModelGraph named_network(ModelName name) {
  const TensorShape field = {2, {32, 48, 32}};
  const TensorShape numbers = {3, {1, 1, 1}};
  switch (name) {
    case ModelName::decoder:
      return build_model(default_model(name), {{{"a", {4, {1, 1, 1}}}}, field});
    case ModelName::unet:
    case ModelName::deeplab:
    case ModelName::tiramisu:
    case ModelName::autoencoder:
    case ModelName::vae:
    case ModelName::fno:
    case ModelName::conv_lstm:
      return build_model(default_model(name), {{{"x", field}}, field});
    default:
      return build_model(default_model(name), {{{"x", field}}, numbers});
  }
}

ModelGraph periodic_network(ModelName name, const TensorShape& field) {
  ModelConfig model = default_model(name);
  model.padding = Padding::periodic;
  model.width = 2;
  const bool gives_field = name == ModelName::unet;
  return build_model(model, {{{"x", field}}, gives_field ? field : TensorShape{3, {1, 1, 1}}});
}

TEST(Distribution, PeriodicNetworksHaveADistributionOnEveryGrid) {
  for (const ModelName name : {ModelName::cosmoflow, ModelName::sc18, ModelName::unet, ModelName::resnet}) {
    for (const TensorShape& field : {TensorShape{1, {16, 24, 16}}, TensorShape{2, {1, 40, 24}}}) {
      const ModelGraph graph = periodic_network(name, field);
      for (const int ranks : {1, 2, 3, 4, 8}) {
        for (const SpaceGrid& grid : grids_of(ranks)) {
          if (grid.parts[0] > field.extent[0]) continue;
          ASSERT_NO_FATAL_FAILURE(check_distribution(graph, grid)) << name_of(name) << text_of(grid);
        }
      }
    }
  }
}

// A border comes from the rank at the other end; along an axis that is not cut, from the rank itself.
TEST(Distribution, BytesOfAPeriodicBorderAreItsFaces) {
  GraphBuilder builder({{"x", {5, {12, 12, 12}}}}, {});
  builder.output("y", builder.convolution("c", 0, 3, {3, 1, Padding::periodic}));
  const ModelGraph graph = builder.finish();
  const Distribution distribution = distribute(graph, {{3, 1, 1}});
  const std::vector<Exchange>& border = distribution.layers[0].halo;
  ASSERT_EQ(border.size(), 2U);
  const Box face_high = {{Range{11, 12}, {0, 12}, {0, 12}}};
  const Box face_low = {{Range{0, 1}, {0, 12}, {0, 12}}};
  EXPECT_EQ(border[0], (Exchange{2, 0, face_high, {-12, 0, 0}}));
  EXPECT_EQ(border[1], (Exchange{0, 2, face_low, {12, 0, 0}}));
  // The convolution reads faces of the neighbours, which have a border along the other axes.
  EXPECT_EQ(bytes_of(distribution.layers[1].halo, 1), 4 * 4 * 14 * 14);
}

class NamedNetworks : public testing::TestWithParam<ModelName> {};

TEST_P(NamedNetworks, HaveADistributionOnEveryGrid) {
  const ModelGraph graph = named_network(GetParam());
  for (const int ranks : {1, 2, 4, 8}) {
    for (const SpaceGrid& grid : grids_of(ranks))
      ASSERT_NO_FATAL_FAILURE(check_distribution(graph, grid)) << text_of(grid);
  }
}

INSTANTIATE_TEST_SUITE_P(All, NamedNetworks,
                         testing::Values(ModelName::cosmoflow, ModelName::sc18, ModelName::mlperf,
                                         ModelName::cnn, ModelName::unet, ModelName::resnet,
                                         ModelName::deeplab, ModelName::tiramisu, ModelName::decoder,
                                         ModelName::autoencoder, ModelName::vae, ModelName::fno,
                                         ModelName::conv_lstm),
                         [](const auto& p) { return std::string(name_of(p.param)); });

ModelGraph listed(const std::string& layers, const ModelTask& task) {
  yaml::Diagnostics diagnostics("m");
  std::vector<std::string> inputs;
  for (const NamedShape& input : task.inputs) inputs.push_back(input.name);
  ModelConfig model = default_model(ModelName::layers);
  model.layers = read_layers(yaml::parse(layers, diagnostics), inputs, diagnostics);
  EXPECT_EQ(diagnostics.to_string(), "");
  return build_model(model, task);
}

// Windows, strides and sizes that no grid divides, in one, two and three dimensions.
TEST(Distribution, UnevenFieldsHaveADistribution) {
  const char* layers =
      "[{convolution: 4, kernel: 4}, {max_pool: 2}, {convolution: 4, kernel: 3, stride: 2, padding: valid}, "
      "{convolution: 3, kernel: 3, dilation: 2}, batch_norm, {transposed_convolution: 3, kernel: 3, stride: "
      "2}, "
      "{resize: 1.3}, relu, global_mean, {dense: 2}]";
  for (const std::array<std::int64_t, 3>& extent :
       {std::array<std::int64_t, 3>{1, 1, 61}, {1, 37, 50}, {23, 31, 29}, {40, 25, 33}}) {
    const ModelGraph graph = listed(layers, {{{"x", {2, extent}}}, {2, {1, 1, 1}}});
    for (const int ranks : {2, 3, 4, 5, 6}) {
      for (const SpaceGrid& grid : grids_of(ranks)) {
        const bool flat = std::ranges::any_of(std::array{0, 1, 2}, [&](int axis) {
          return grid.parts[static_cast<std::size_t>(axis)] > extent[static_cast<std::size_t>(axis)];
        });
        if (flat) continue;
        ASSERT_NO_FATAL_FAILURE(check_distribution(graph, grid)) << text_of(grid);
      }
    }
  }
}

// A chain of convolutions of 3^3 cells, without a pool, has faces of one cell: a rank receives the shell
// around its box.
TEST(Distribution, BytesOfAChainAreItsFaces) {
  constexpr std::int64_t kCells = 24;
  constexpr std::int64_t kChannels = 5;
  const ModelGraph graph =
      listed("[{convolution: 5}, relu, {convolution: 5}, relu, {convolution: 5}, global_mean, {dense: 1}]",
             {{{"x", {5, {kCells, kCells, kCells}}}}, {1, {1, 1, 1}}});
  for (const SpaceGrid& grid : {SpaceGrid{{4, 1, 1}}, SpaceGrid{{2, 3, 1}}, SpaceGrid{{2, 2, 2}}}) {
    std::int64_t cells = 0;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      std::int64_t box = 1;
      std::int64_t with_halo = 1;
      for (std::size_t axis = 0; axis < 3; ++axis) {
        const int place = grid.place_of(rank)[axis];
        const std::int64_t own = kCells / grid.parts[axis];
        box *= own;
        with_halo *= own + (place > 0 ? 1 : 0) + (place + 1 < grid.parts[axis] ? 1 : 0);
      }
      cells += with_halo - box;
    }
    const Distribution distribution = distribute(graph, grid);
    const std::int64_t bytes = cells * kChannels * 4;
    for (const std::size_t i : {0U, 2U, 4U}) {
      EXPECT_EQ(bytes_of(distribution.layers[i].halo, kChannels), bytes);
      // The data need no gradient.
      EXPECT_EQ(bytes_of(distribution.layers[i].gradient_halo, kChannels), i == 0 ? 0 : bytes);
    }
    EXPECT_EQ(distribution.layers[5].forward_sums, kChannels);
    EXPECT_EQ(distribution.layers[5].gives, Layout::whole);
    EXPECT_TRUE(distribution.switches.empty());
  }
}

// MLPerf HPC's network of width 32 at 128^3: 1.25 MB of faces forward and 1.97 MB backward, in each
// direction, and no pool reads a face.
TEST(Distribution, MlperfHasFacesOfItsConvolutionsAlone) {
  const ModelGraph graph = build_model(default_model(ModelName::mlperf), {4, {128, 128, 128}}, 4);
  const Distribution distribution = distribute(graph, {{2, 1, 1}});
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    const LayerSplit& split = distribution.layers[i];
    if (graph.layers[i].kind != LayerKind::convolution) {
      EXPECT_TRUE(split.halo.empty() && split.gradient_halo.empty());
    }
    forward += bytes_of(split.halo, graph.layers[i].input.channels);
    backward += bytes_of(split.gradient_halo, graph.layers[i].output.channels);
  }
  EXPECT_EQ(forward, 2 * 1'245'184);
  EXPECT_EQ(backward, 2 * 1'966'080);
  ASSERT_EQ(distribution.switches.size(), 1U);
  EXPECT_EQ(graph.layers[distribution.switches[0].layer].kind, LayerKind::flatten);
  // 512 channels of 4^3 cells, to the other rank.
  EXPECT_EQ(distribution.switches[0].forward_bytes, 512 * 64 * 4);
  EXPECT_EQ(distribution.switches[0].backward_bytes, 0);
}

TEST(Distribution, MemoryFallsWithTheRanks) {
  for (const ModelName name : {ModelName::mlperf, ModelName::unet, ModelName::resnet}) {
    const ModelGraph graph = named_network(name);
    const auto bytes_on = [&](const SpaceGrid& grid) {
      const Distribution distribution = distribute(graph, grid);
      std::int64_t most = 0;
      for (int rank = 0; rank < grid.ranks(); ++rank)
        most = std::max(most, load_of(graph, distribution, rank).activation_bytes);
      return most;
    };
    const std::int64_t alone = bytes_on({{1, 1, 1}});
    for (const SpaceGrid& grid : {SpaceGrid{{2, 1, 1}}, SpaceGrid{{4, 1, 1}}, SpaceGrid{{2, 2, 1}}}) {
      EXPECT_GE(bytes_on(grid), alone / grid.ranks()) << name_of(name);
      EXPECT_LE(bytes_on(grid), alone * 13 / (10 * grid.ranks())) << name_of(name);
    }
  }
}

// The finer cuts follow the coarsest ones, while that makes no part much larger than even ones.
TEST(Distribution, PoolsAndStridesBeginAtCuts) {
  const ModelGraph graph = listed(
      "[{convolution: 2}, {max_pool: 2}, {convolution: 2, stride: 2}, {max_pool: 2}, "
      "flatten, {dense: 1}]",
      {{{"x", {1, {1, 1, 57}}}}, {1, {1, 1, 1}}});
  const Distribution distribution = distribute(graph, {{1, 1, 3}});
  const auto cuts = [&](std::size_t value) {
    std::vector<std::int64_t> begins;
    for (const Box& box : distribution.values[value].boxes) begins.push_back(box.axes[2].begin);
    return begins;
  };
  EXPECT_THAT(cuts(4), testing::ElementsAre(0, 3, 5));  // 7 cells
  EXPECT_THAT(cuts(3),
              testing::ElementsAre(0, 5, 10));  // 14: 0, 6, 10 would give 6 cells instead of 5 to a part
  EXPECT_THAT(cuts(2), testing::ElementsAre(0, 10, 20));  // 28
  EXPECT_THAT(cuts(0), testing::ElementsAre(0, 20, 40));  // 57: the pool drops the last cell
  EXPECT_TRUE(distribution.layers[1].halo.empty());
}

struct KindCase {
  const char* layers;  // the last one is looked at
  Layout reads;
  Layout gives;
  const char* reason;
};

TEST(Distribution, EveryKindIsSplitOrSaysWhyNot) {
  const TensorShape field = {4, {8, 8, 8}};
  const KindCase cases[] = {
      {"{convolution: 4}", Layout::split, Layout::split, ""},
      {"{transposed_convolution: 4}", Layout::split, Layout::split, ""},
      {"{max_pool: 2}", Layout::split, Layout::split, ""},
      {"{average_pool: 2}", Layout::split, Layout::split, ""},
      {"{average_pool: 8}", Layout::whole, Layout::whole, "it has numbers, no field"},
      {"{max_pool: 5}", Layout::whole, Layout::whole, "it has numbers, no field"},
      {"{upsample: 2}", Layout::split, Layout::split, ""},
      {"{resize: [6, 9, 12]}", Layout::split, Layout::split, ""},
      {"{resize: [1, 9, 12]}", Layout::whole, Layout::whole,
       "4 x 1 x 9 x 12 has fewer cells than the grid has parts"},
      {"{convolution: 8}, {pixel_shuffle: 2}", Layout::split, Layout::split, ""},
      {"{slice: [1, 3], axis: depth}", Layout::split, Layout::split, ""},
      {"batch_norm", Layout::split, Layout::split, ""},
      {"{group_norm: 2}", Layout::split, Layout::split, ""},
      {"layer_norm", Layout::split, Layout::split, ""},
      {"instance_norm", Layout::split, Layout::split, ""},
      {"gelu", Layout::split, Layout::split, ""},
      {"{dropout: 0.5}", Layout::split, Layout::split, ""},
      {"softmax", Layout::split, Layout::split, ""},
      {"{gather: [0, 2]}", Layout::split, Layout::split, ""},
      {"positions", Layout::split, Layout::split, ""},
      {"coordinates", Layout::split, Layout::split, ""},
      {"{concatenate: [x, x]}", Layout::split, Layout::split, ""},
      {"{add: [x, x]}", Layout::split, Layout::split, ""},
      {"global_mean", Layout::split, Layout::whole, ""},
      {"global_max", Layout::split, Layout::whole, ""},
      {"flatten", Layout::whole, Layout::whole, "it moves values to other places"},
      {"{reshape: [8, 4, 8, 8]}", Layout::whole, Layout::whole, "it moves values to other places"},
      {"flatten, {dense: 2}", Layout::whole, Layout::whole, "every unit reads all values"},
      {"{attention: 2}", Layout::whole, Layout::whole, "every cell reads all cells"},
      {"{attention: 2}, relu", Layout::whole, Layout::whole, "every rank has its whole input"},
      {"{attention: 2}, global_mean", Layout::whole, Layout::whole, "every rank has its whole input"},
      {"{attention: 2}, {convolution: 2}", Layout::split, Layout::split, ""},
      {"{spectral_convolution: 4, modes: 2}", Layout::whole, Layout::whole,
       "its Fourier transform reads all cells"},
      {"{conv_lstm: 4}", Layout::whole, Layout::whole,
       "each step reads the state that neighbouring cells had one step before"},
  };
  for (const KindCase& c : cases) {
    // A first convolution, so that some layer is split; the last one's values go to the output.
    const std::string layers = std::string("{convolution: 4, name: first}, ") + c.layers;
    yaml::Diagnostics diagnostics("m");
    const std::string last =
        read_layers(yaml::parse("[" + layers + "]", diagnostics), std::vector<std::string>{"x"}, diagnostics)
            .back()
            .name;
    const std::string text =
        "[" + layers + ", {flatten: " + last +
        ", name: rest}, {global_mean: first, name: mean}, {concatenate: [mean, rest]}, {dense: 1}]";
    const ModelGraph graph = listed(text, {{{"x", field}}, {1, {1, 1, 1}}});
    const Distribution distribution = distribute(graph, {{2, 2, 1}});
    const auto at = std::ranges::find(graph.layers, last, &Layer::name) - graph.layers.begin();
    const LayerSplit& split = distribution.layers[static_cast<std::size_t>(at)];
    EXPECT_EQ(split.reads, c.reads) << c.layers;
    EXPECT_EQ(split.gives, c.gives) << c.layers;
    EXPECT_EQ(split.reason, c.reason) << c.layers;
    ASSERT_NO_FATAL_FAILURE(check_distribution(graph, {{2, 2, 1}})) << c.layers;
  }
}

TEST(Distribution, SeriesAndClassNumbersAreSplitOrNot) {
  for (const char* kind : {"lstm", "gru"}) {
    const ModelGraph graph = listed("[{convolution: 4}, {" + std::string(kind) + ": 3}, {dense: 1}]",
                                    {{{"x", {2, {1, 1, 20}}}}, {1, {1, 1, 1}}});
    const Distribution distribution = distribute(graph, {{1, 1, 4}});
    EXPECT_EQ(distribution.layers[0].gives, Layout::split);
    EXPECT_EQ(distribution.layers[1].reason, "each step reads the state of the step before");
    ASSERT_EQ(distribution.switches.size(), 1U);
    EXPECT_EQ(distribution.switches[0].forward_bytes, 3 * 4 * 20 * 4);
  }
  const ModelGraph graph = listed("[{embedding: 2, classes: 5}, {convolution: 1}, flatten, {dense: 1}]",
                                  {{{"map", {1, {1, 6, 6}}}}, {1, {1, 1, 1}}});
  const Distribution distribution = distribute(graph, {{1, 3, 2}});
  EXPECT_EQ(distribution.values[0].layout, Layout::split);
  EXPECT_EQ(distribution.layers[0].gives, Layout::split);
}

// The numbers, an input or a layer's output, are on every rank.
TEST(Distribution, LayersThatReadNumbersBesideAFieldAreSplit) {
  GraphBuilder builder({{"x", {2, {8, 8, 8}}}, {"numbers", {8, {1, 1, 1}}}}, {});
  const auto field = builder.convolution("c", 0, 4, {3});
  const auto film = builder.film("f", field, 1);
  const auto wide = builder.spread("s", builder.linear("l", 1, 3), film);
  builder.output("y", builder.concatenate("k", {film, wide}));
  const ModelGraph graph = builder.finish();
  const Distribution distribution = distribute(graph, {{2, 2, 1}});
  EXPECT_EQ(distribution.values[1].layout, Layout::whole);
  EXPECT_EQ(distribution.layers[1].gives, Layout::split);
  EXPECT_EQ(distribution.layers[1].backward_sums, 8);
  EXPECT_EQ(distribution.layers[3].gives, Layout::split);
  EXPECT_EQ(distribution.layers[3].backward_sums, 3);
  EXPECT_TRUE(distribution.switches.empty());
  ASSERT_NO_FATAL_FAILURE(check_distribution(graph, {{2, 2, 1}}));
}

TEST(Distribution, SumsOfNormsAreCounted) {
  const ModelGraph graph =
      listed("[{convolution: 6}, batch_norm, {group_norm: 3}, instance_norm, global_max, {dense: 1}]",
             {{{"x", {1, {4, 4, 4}}}}, {1, {1, 1, 1}}});
  const Distribution distribution = distribute(graph, {{2, 1, 1}});
  std::vector<std::int64_t> forward;
  std::vector<std::int64_t> backward;
  for (const LayerSplit& split : distribution.layers) {
    forward.push_back(split.forward_sums);
    backward.push_back(split.backward_sums);
  }
  EXPECT_THAT(forward, testing::ElementsAre(0, 12, 6, 12, 6, 0));
  EXPECT_THAT(backward, testing::ElementsAre(0, 12, 6, 12, 6, 0));
}

std::string refusal(const ModelGraph& graph, const SpaceGrid& grid) {
  try {
    distribute(graph, grid);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::spec);
    return error.what();
  }
  return "";
}

TEST(Distribution, RefusesWhatNoLayerCanUse) {
  EXPECT_EQ(refusal(build_model(default_model(ModelName::mlp), {8, {1, 1, 1}}, 3), {{2, 1, 1}}),
            "no layer of the network can be cut into 2 x 1 x 1 parts; its largest value is 8 (channels x "
            "depth x height x "
            "width): choose a grid with fewer parts along short axes");
  EXPECT_THAT(refusal(build_model(default_model(ModelName::cnn), {1, {1, 16, 16}}, 3), {{2, 1, 1}}),
              testing::HasSubstr("can be cut into 2 x 1 x 1 parts; its largest value is"));
  ModelGraph module;
  module.inputs = {{"x", {1, {8, 8, 8}}}};
  module.layers.resize(1);
  module.layers[0].kind = LayerKind::module;
  module.layers[0].inputs = {0};
  EXPECT_EQ(refusal(module, {{2, 1, 1}}),
            "the network is a TorchScript module, whose layers are not known, so ranks can't share a sample: "
            "leave the "
            "grid out, or write the network as a list of layers");
}

TEST(Distribution, TheTableNamesHalosSwitchesAndMemory) {
  const ModelGraph graph = build_model(default_model(ModelName::mlperf), {4, {128, 128, 128}}, 4);
  const std::string table = describe(graph, distribute(graph, {{2, 2, 1}}));
  EXPECT_THAT(table, testing::StartsWith("grid            2 x 2 x 1: 4 ranks share a sample"));
  EXPECT_THAT(table, testing::ContainsRegex("conv1 +convolution +32 x 64 x 64 x 128 +1.0 MiB +- +-\n"));
  // The gradient of the halo has the input's channels where oneDNN computes, and else the output's.
  EXPECT_THAT(table, testing::ContainsRegex("conv2 +convolution +[^\n]* +2.0 MiB +2.0 MiB +-\n"));
  EXPECT_THAT(table, testing::ContainsRegex(
                         "gathered +before 'flatten', which every rank computes: it moves values to "
                         "other places; 384.0 KiB sent forward\n"));
  EXPECT_THAT(table, testing::ContainsRegex(
                         "memory a rank +at most .* of activations with their halos; .* on one rank\n"));
}

}  // namespace
}  // namespace wflow::trainer
