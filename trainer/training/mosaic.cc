// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/mosaic.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "trainer/training/pictures.h"

namespace wflow::trainer {
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
