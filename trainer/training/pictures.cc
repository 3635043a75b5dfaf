// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/pictures.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "trainer/training/row_file.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostSamples = 4;
constexpr std::size_t kMostTargets = 2;
constexpr std::int64_t kShortestAxis = 4;

// The grid of the pictures that a head predicts.
std::optional<TensorShape> picture_shape(Session& session, std::size_t head) {
  const DataRoles& roles = session.data.roles();
  if (!roles.heads[head].learns_fields()) return std::nullopt;
  const std::size_t part = roles.heads[head].fields.front();
  const TensorShape& shape = session.data.info().fields[roles.parts[part].field].shape;
  return is_picture(shape) ? std::optional(shape) : std::nullopt;
}

// The heads that predict pictures.
std::vector<std::size_t> picture_heads(Session& session) {
  std::vector<std::size_t> heads;
  for (std::size_t h = 0; h < session.data.roles().heads.size(); ++h)
    if (picture_shape(session, h)) heads.push_back(h);
  return heads;
}

nlohmann::json to_json(const Picture& picture, const char* role) {
  return {{"name", picture.name},
          {"role", role},
          {"rows", picture.rows},
          {"columns", picture.columns},
          {"values", picture.values}};
}

}  // namespace

bool is_picture(const TensorShape& shape) {
  return shape.extent[1] >= kShortestAxis && shape.extent[2] >= kShortestAxis;
}

Picture slice_of(const std::string& name, std::span<const double> values, const TensorShape& shape) {
  const auto rows = static_cast<std::size_t>(shape.extent[1]);
  const auto columns = static_cast<std::size_t>(shape.extent[2]);
  const std::span<const double> plane =
      values.subspan(static_cast<std::size_t>(shape.extent[0] / 2) * rows * columns, rows * columns);
  const std::size_t every = (std::max(rows, columns) + kMostPixels - 1) / kMostPixels;
  Picture picture = {name, (rows + every - 1) / every, (columns + every - 1) / every, {}};
  for (std::size_t row = 0; row < rows; row += every)
    for (std::size_t column = 0; column < columns; column += every)
      picture.values.push_back(static_cast<float>(plane[row * columns + column]));
  return picture;
}

std::vector<Picture> input_pictures(Session& session) {
  std::vector<Picture> pictures;
  if (picture_heads(session).empty()) return pictures;
  CachedSplit& split = session.data.test();
  const DataRoles& roles = session.data.roles();
  const auto input = std::ranges::find_if(roles.inputs, [&](const DataRoles::Input& candidate) {
    return !candidate.label &&
           is_picture(session.data.info().fields[roles.parts[candidate.part].field].shape);
  });
  if (input == roles.inputs.end()) return pictures;
  const DataField& field = session.data.info().fields[roles.parts[input->part].field];
  const auto cells = static_cast<std::size_t>(field.shape.voxels());
  std::vector<float> scratch;
  for (std::size_t i = 0; i < std::min(kMostSamples, split.size()); ++i) {
    const std::span<const float> values = split.whole(input->part, i, scratch).first(cells);
    std::vector<double> channel(values.begin(), values.end());
    for (double& value : channel) value += split.offset(input->part, 0);
    pictures.push_back(
        slice_of(field.channels.empty() ? channel_names(field.name, field).front() : field.channels.front(),
                 channel, field.shape));
  }
  return pictures;
}

// Truth and prediction of a sample's first targets.
static void add_predicted(Session& session, std::size_t head, const RowFileReader& file, std::size_t row,
                          nlohmann::json& pictures) {
  const TensorShape shape = *picture_shape(session, head);
  const std::vector<std::string>& labels = session.data.targets()[head].labels;
  const auto cells = static_cast<std::size_t>(shape.voxels());
  const std::string& name = session.data.roles().heads[head].name;
  const std::string group = name.empty() ? "" : name + "/";
  const std::vector<double> truth = file.read((group + "truth").c_str(), row, 1);
  const std::vector<double> prediction = file.read((group + "prediction").c_str(), row, 1);
  for (std::size_t t = 0; t < std::min(kMostTargets, labels.size()); ++t) {
    const auto slice = [&](const std::vector<double>& values) {
      return slice_of(labels[t], std::span(values).subspan(t * cells, cells), shape);
    };
    if (session.data.roles().heads[head].has_truth) pictures.push_back(to_json(slice(truth), "truth"));
    pictures.push_back(to_json(slice(prediction), "prediction"));
  }
}

void write_pictures(Session& session, const std::vector<Picture>& inputs) {
  const fs::path output = session.config.output;
  const std::vector<std::size_t> heads = picture_heads(session);
  const std::size_t samples = std::min(kMostSamples, session.data.test().size());
  if (heads.empty() || samples == 0) {
    fs::remove(output / "pictures.json");
    return;
  }
  const RowFileReader file(output / "predictions.h5");
  nlohmann::json list = nlohmann::json::array();
  for (std::size_t i = 0; i < samples; ++i) {
    nlohmann::json pictures = nlohmann::json::array();
    if (i < inputs.size()) pictures.push_back(to_json(inputs[i], "input"));
    for (const std::size_t head : heads) add_predicted(session, head, file, i, pictures);
    list.push_back({{"id", file.ids()[i]}, {"pictures", std::move(pictures)}});
  }
  write_file_durably(output / "pictures.json",
                     nlohmann::json({{"wflow_format", 1}, {"samples", std::move(list)}}).dump() + "\n");
}

namespace {

constexpr double kShadedDeviations = 2.5;

std::uint8_t shade(float value) {
  const double part = (value + kShadedDeviations) / (2 * kShadedDeviations);
  return std::isnan(value) ? 0 : static_cast<std::uint8_t>(std::lround(255 * std::clamp(part, 0.0, 1.0)));
}

}  // namespace

std::string mosaic_png(const Made& made) {
  const auto cells = static_cast<std::size_t>(made.shape.voxels());
  const std::size_t samples = made.values.size() / cells;
  WFLOW_CHECK(samples > 0);
  std::vector<Picture> pictures;
  for (std::size_t n = 0; n < samples; ++n) {
    const auto begin = made.values.begin() + static_cast<std::ptrdiff_t>(n * cells);
    pictures.push_back(
        slice_of("", std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(cells)), made.shape));
  }
  const auto side = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(samples))));
  const std::size_t height = pictures.front().rows + 1;  // a black line between two samples
  const std::size_t width = pictures.front().columns + 1;
  const std::size_t columns = side * width - 1;
  std::vector<std::uint8_t> shades(((samples + side - 1) / side * height - 1) * columns);
  for (std::size_t n = 0; n < samples; ++n)
    for (std::size_t row = 0; row + 1 < height; ++row)
      for (std::size_t column = 0; column + 1 < width; ++column)
        shades[(n / side * height + row) * columns + n % side * width + column] =
            shade(pictures[n].values[row * (width - 1) + column]);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(columns);
  image.height = static_cast<png_uint_32>(shades.size() / columns);
  image.format = PNG_FORMAT_GRAY;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = bytes.size();
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, shades.data(), 0, nullptr) == 0)
    throw Error(ExitCode::internal, std::string("cannot write a picture: ") + image.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace wflow::trainer
