// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "converters/look/look.h"

namespace wflow::converters {

namespace {

constexpr std::size_t kMostColumns = 64;

// Scales to 0..1; a constant slice becomes 0.
class Shades {
 public:
  explicit Shades(std::span<const float> values) {
    bool any = false;
    for (const float value : values) {
      if (!std::isfinite(value)) continue;
      least_ = any ? std::min(least_, value) : value;
      most_ = any ? std::max(most_, value) : value;
      any = true;
    }
  }
  float least() const { return least_; }
  float most() const { return most_; }
  float of(float value) const {
    return std::isfinite(value) && most_ > least_ ? (value - least_) / (most_ - least_) : 0.0F;
  }

 private:
  float least_ = 0;
  float most_ = 0;
};

}  // namespace

Slice reduced_slice(const Slice& slice, std::size_t columns) {
  const std::size_t factor = (slice.columns + columns - 1) / columns;
  if (factor <= 1) return slice;
  Slice small{(slice.rows + factor - 1) / factor, (slice.columns + factor - 1) / factor, {}};
  small.values.resize(small.rows * small.columns, 0);
  for (std::size_t r = 0; r < small.rows; ++r) {
    for (std::size_t c = 0; c < small.columns; ++c) {
      double sum = 0;
      std::size_t count = 0;
      for (std::size_t i = r * factor; i < std::min(slice.rows, (r + 1) * factor); ++i) {
        for (std::size_t j = c * factor; j < std::min(slice.columns, (c + 1) * factor); ++j, ++count)
          sum += slice.values[i * slice.columns + j];
      }
      small.values[r * small.columns + c] = static_cast<float>(sum / static_cast<double>(count));
    }
  }
  return small;
}

Slice middle_slice(const std::vector<std::size_t>& shape, std::span<const float> values) {
  Slice slice{shape.size() > 1 ? shape[shape.size() - 2] : 1, shape.empty() ? 1 : shape.back(), {}};
  std::size_t at = 0;
  for (std::size_t k = 0; k + 2 < shape.size(); ++k)
    at = at * shape[k] + (k == 0 && shape.size() == 4 ? 0 : shape[k] / 2);
  const std::size_t size = slice.rows * slice.columns;
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(at * size);
  slice.values.assign(first, first + static_cast<std::ptrdiff_t>(size));
  return slice;
}

std::string draw(const Slice& slice) {
  static constexpr std::array<const char*, 5> kInk = {" ", "░", "▒", "▓", "█"};
  const Slice small = reduced_slice(slice, kMostColumns);
  const Shades shades(small.values);
  std::string out;
  for (std::size_t r = 0; r < small.rows; r += 2) {  // letters are about twice as high as wide
    for (std::size_t c = 0; c < small.columns; ++c) {
      float value = small.values[r * small.columns + c];
      if (r + 1 < small.rows) value = (value + small.values[(r + 1) * small.columns + c]) / 2;
      out += kInk[std::min<std::size_t>(
          kInk.size() - 1, static_cast<std::size_t>(shades.of(value) * static_cast<float>(kInk.size())))];
    }
    out += '\n';
  }
  return out + fmt::format("{} x {}, from {:.6g} ( ) to {:.6g} (█)\n", slice.rows, slice.columns,
                           shades.least(), shades.most());
}

void write_png(const Slice& slice, const std::filesystem::path& path) {
  const Shades shades(slice.values);
  std::vector<std::uint8_t> grey(slice.values.size());
  for (std::size_t i = 0; i < grey.size(); ++i)
    grey[i] = static_cast<std::uint8_t>(std::lround(shades.of(slice.values[i]) * 255));
  png_image image;
  std::memset(&image, 0, sizeof image);
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(slice.columns);
  image.height = static_cast<png_uint_32>(slice.rows);
  image.format = PNG_FORMAT_GRAY;
  const int written = png_image_write_to_file(&image, path.c_str(), 0, grey.data(), 0, nullptr);
  if (written == 0)
    throw Error(ExitCode::system,
                fmt::format("cannot write {}: {}", path.string(), static_cast<const char*>(image.message)));
}

}  // namespace wflow::converters
