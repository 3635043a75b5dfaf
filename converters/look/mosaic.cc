// SPDX-License-Identifier: Apache-2.0
// A slice of many samples in one picture, placed by two of their parameters: an overview of the simulation's
// results.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "converters/look/look.h"
#include "converters/split.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kGap = 1;  // pixels between tiles

// A number for every sample: one of a field's values.
struct ParameterPlace {
  std::string name;
  std::size_t field = 0;
  std::size_t value = 0;
};

std::vector<ParameterPlace> parameters_of(const Manifest& manifest) {
  constexpr std::size_t kMostValues = 64;  // limit for a field; a longer list is a series, not parameters
  std::vector<ParameterPlace> places;
  for (const FieldRole role : {FieldRole::target, FieldRole::input}) {
    for (std::size_t k = 0; k < manifest.fields.size(); ++k) {
      const FieldInfo& field = manifest.fields[k];
      if (field.role != role || field.shape.size() > 1 || field.values() > kMostValues) continue;
      for (std::size_t i = 0; i < field.values(); ++i) {
        const std::string name = field.shape.empty()         ? field.name
                                 : i < field.channels.size() ? field.channels[i]
                                                             : fmt::format("{}[{}]", field.name, i);
        places.push_back({name, k, i});
      }
    }
  }
  return places;
}

std::vector<ParameterPlace> chosen_parameters(const Manifest& manifest,
                                              const std::vector<std::string>& wanted) {
  const std::vector<ParameterPlace> all = parameters_of(manifest);
  std::vector<std::string> names;
  for (const ParameterPlace& place : all) names.push_back(place.name);
  std::vector<ParameterPlace> chosen;
  for (const std::string& name : wanted) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      throw Error(ExitCode::usage, fmt::format("there is no parameter '{}' (there are {}){}", name,
                                               text::join(names, ", "), text::suggestion(name, names)));
    chosen.push_back(all[static_cast<std::size_t>(found - names.begin())]);
  }
  if (!wanted.empty()) return chosen;
  for (const ParameterPlace& place : all) {
    const auto& statistics = manifest.fields[place.field].statistics;
    const ChannelStatistics& s = statistics[place.value < statistics.size() ? place.value : 0];
    if (s.min != s.max && chosen.size() < 2) chosen.push_back(place);
  }
  if (chosen.empty())
    throw Error(ExitCode::usage,
                "no parameter among the fields has two values; there is nothing to place samples by");
  return chosen;
}

struct MosaicSample {
  std::size_t number = 0;  // in its split
  std::int64_t id = 0;
  std::vector<double> values;               // values of the chosen parameters
  std::array<double, 2> rank = {0.5, 0.5};  // 0 to 1 among all samples
};

std::vector<MosaicSample> read_parameters(const SplitReader& reader,
                                          const std::vector<ParameterPlace>& places) {
  std::vector<MosaicSample> samples;
  std::vector<float> values;
  for (std::size_t i = 0; i < reader.size(); ++i) {
    if (i > 0 && reader.id(i) == reader.id(i - 1)) continue;  // the first sub-cube represents the sample
    MosaicSample sample{i, reader.id(i), {}, {}};
    for (const ParameterPlace& place : places) {
      values.resize(reader.fields()[place.field].values());
      reader.read_field(place.field, i, values);
      sample.values.push_back(values[place.value]);
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

void rank_samples(std::vector<MosaicSample>& samples, std::size_t parameters) {
  std::vector<std::size_t> order(samples.size());
  for (std::size_t k = 0; k < parameters; ++k) {
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return samples[a].values[k] < samples[b].values[k];
    });
    // Equal values have one rank, so that a grid of samples is shown as one.
    std::vector<std::size_t> distinct(order.size(), 0);
    for (std::size_t i = 1; i < order.size(); ++i)
      distinct[i] = distinct[i - 1] + (samples[order[i]].values[k] > samples[order[i - 1]].values[k] ? 1 : 0);
    const double levels = order.empty() ? 1 : static_cast<double>(distinct.back() + 1);
    for (std::size_t i = 0; i < order.size(); ++i)
      samples[order[i]].rank[k] = (static_cast<double>(distinct[i]) + 0.5) / levels;
  }
}

// The sample of a cell: the one whose ranks are nearest to its middle.
struct Cell {
  std::optional<std::size_t> sample;
  double distance = 0;
};

struct Grid {
  std::size_t columns = 0;
  std::size_t rows = 0;
  std::vector<Cell> cells;
};

Grid place_samples(const std::vector<MosaicSample>& samples, std::size_t parameters, std::size_t side) {
  Grid grid;
  if (parameters == 1) {  // in reading order
    std::vector<std::size_t> order(samples.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return samples[a].rank[0] < samples[b].rank[0]; });
    const std::size_t shown = std::min(order.size(), side * side);
    grid.columns = std::min(side, static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(shown)))));
    grid.rows = (shown + grid.columns - 1) / grid.columns;
    grid.cells.resize(grid.columns * grid.rows);
    for (std::size_t k = 0; k < shown; ++k)
      grid.cells[k].sample = order[shown > 1 ? k * (order.size() - 1) / (shown - 1) : 0];
    return grid;
  }
  grid.columns = grid.rows = side;
  grid.cells.resize(side * side);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    std::array<std::size_t, 2> at{};
    double distance = 0;
    for (std::size_t k = 0; k < 2; ++k) {
      const double place = samples[i].rank[k] * static_cast<double>(side);
      at[k] = std::min(side - 1, static_cast<std::size_t>(place));
      distance += std::abs(place - static_cast<double>(at[k]) - 0.5);
    }
    Cell& cell = grid.cells[(side - 1 - at[1]) * side + at[0]];  // the second parameter rises upwards
    if (!cell.sample || distance < cell.distance) cell = {i, distance};
  }
  return grid;
}

std::size_t distinct_values(const std::vector<MosaicSample>& samples, std::size_t k) {
  std::map<double, bool> values;
  for (const MosaicSample& sample : samples) values[sample.values[k]] = true;
  return values.size();
}

// The number of cells a side, by the number of samples or the levels of a parameter.
std::size_t grid_side(const std::vector<MosaicSample>& samples, std::size_t parameters, std::size_t most) {
  auto side = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(samples.size()))));
  for (std::size_t k = 0; parameters == 2 && k < 2; ++k)
    side = std::min(side, std::max<std::size_t>(1, distinct_values(samples, k)));
  if (parameters == 2) {
    std::size_t levels = 0;
    for (std::size_t k = 0; k < 2; ++k) levels = std::max(levels, distinct_values(samples, k));
    if (levels * levels <= 2 * samples.size()) side = levels;  // the samples are a grid themselves
  }
  return std::clamp<std::size_t>(side, 1, most);
}

}  // namespace

std::string draw_mosaic(const MosaicOptions& options) {
  const Manifest manifest = read_manifest(options.data);
  const SplitReader reader = SplitReader::open(options.data, manifest, options.split);
  if (reader.size() == 0)
    throw Error(ExitCode::usage, fmt::format("the split {} has no samples", options.split));
  std::size_t field = manifest.fields.size();
  if (!options.field.empty()) {
    field = manifest.field(options.field);
  } else {
    for (std::size_t k = manifest.fields.size(); k-- > 0;) {
      if (manifest.fields[k].shape.size() > 1) field = k;
    }
  }
  if (field == manifest.fields.size())
    throw Error(ExitCode::usage, "no field has two axes; a picture needs one");
  const std::vector<ParameterPlace> parameters = chosen_parameters(manifest, options.parameters);
  std::vector<MosaicSample> samples = read_parameters(reader, parameters);
  rank_samples(samples, parameters.size());
  const Grid grid =
      place_samples(samples, parameters.size(), grid_side(samples, parameters.size(), options.grid));

  Slice picture;
  std::size_t tile_rows = 0;
  std::size_t tile_columns = 0;
  std::size_t shown = 0;
  std::vector<float> values(manifest.fields[field].values());
  for (std::size_t k = 0; k < grid.cells.size(); ++k) {
    if (!grid.cells[k].sample) continue;
    reader.read_field(field, samples[*grid.cells[k].sample].number, values);
    const Slice tile = reduced_slice(middle_slice(manifest.fields[field].shape, values), options.tile);
    if (picture.values.empty()) {
      tile_rows = tile.rows;
      tile_columns = tile.columns;
      picture.rows = grid.rows * (tile_rows + kGap) - kGap;
      picture.columns = grid.columns * (tile_columns + kGap) - kGap;
      picture.values.assign(picture.rows * picture.columns, std::numeric_limits<float>::quiet_NaN());
    }
    const std::size_t top = k / grid.columns * (tile_rows + kGap);
    const std::size_t left = k % grid.columns * (tile_columns + kGap);
    for (std::size_t row = 0; row < tile_rows; ++row)
      std::copy_n(tile.values.begin() + static_cast<std::ptrdiff_t>(row * tile_columns), tile_columns,
                  picture.values.begin() + static_cast<std::ptrdiff_t>((top + row) * picture.columns + left));
    ++shown;
  }
  write_png(picture, options.png);

  const auto range = [&](std::size_t k) {
    double least = samples.front().values[k];
    double most = least;
    for (const MosaicSample& sample : samples) {
      least = std::min(least, sample.values[k]);
      most = std::max(most, sample.values[k]);
    }
    return fmt::format("{} from {:.6g} to {:.6g}", parameters[k].name, least, most);
  };
  std::string text =
      fmt::format("{}: {} of {} {} samples, {} x {} tiles of {} x {} pixels\n", options.png.string(), shown,
                  samples.size(), options.split, grid.rows, grid.columns, tile_rows, tile_columns);
  if (parameters.size() == 1) return text + fmt::format("in reading order: {}\n", range(0));
  return text + fmt::format("to the right: {}\nupwards: {}\n", range(0), range(1));
}

}  // namespace wflow::converters
