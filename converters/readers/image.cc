// SPDX-License-Identifier: Apache-2.0
// PNG by libpng, and PGM (portable graymap, plain and binary). Grey: axes H, W; colours are components.
#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cctype>
#include <csetjmp>
#include <cstring>

#include "base/error.h"
#include "converters/readers/reader.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

// The data for libpng's callbacks and its jump after an error. No object with a destructor is created between
// setjmp and longjmp.
struct PngState {
  const std::vector<std::uint8_t>* file = nullptr;
  std::size_t at = 0;
  char reason[200] = {};
  png_structp png = nullptr;
  png_infop info = nullptr;
  png_uint_32 width = 0;
  png_uint_32 height = 0;
  std::size_t channels = 0;
  bool wide = false;  // 16 bits a value
  std::vector<std::uint8_t> bytes;
};

void png_failed(png_structp png, png_const_charp message) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::strncpy(state->reason, message, sizeof state->reason - 1);
  png_longjmp(png, 1);
}
void png_warned(png_structp, png_const_charp) {}

void png_bytes(png_structp png, png_bytep into, png_size_t count) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state->file->size() - state->at) png_error(png, "it is cut short");
  std::memcpy(into, state->file->data() + state->at, count);
  state->at += count;
}

constexpr png_uint_32 kMostSide = 65536;

// Both return true on success; the reason of a failure is in `state`.
bool read_png_header(PngState& state) {
  if (setjmp(png_jmpbuf(state.png)) != 0) return false;
  png_set_user_limits(state.png, kMostSide, kMostSide);
  png_set_read_fn(state.png, &state, png_bytes);
  png_read_info(state.png, state.info);
  png_set_palette_to_rgb(state.png);
  png_set_expand_gray_1_2_4_to_8(state.png);
  png_set_swap(state.png);  // 16 bits are stored big-endian
  png_set_interlace_handling(state.png);
  png_read_update_info(state.png, state.info);
  state.width = png_get_image_width(state.png, state.info);
  state.height = png_get_image_height(state.png, state.info);
  state.channels = png_get_channels(state.png, state.info);
  state.wide = png_get_bit_depth(state.png, state.info) == 16;
  return true;
}

bool read_png_rows(PngState& state, png_bytep* rows) {
  if (setjmp(png_jmpbuf(state.png)) != 0) return false;
  png_read_image(state.png, rows);
  return true;
}

class Image final : public MemoryReader {
 public:
  explicit Image(const fs::path& path) : path_(path) {
    const InputFile file(path);
    if (file.size() > kMostSampleBytes) fail("it is larger than 4 GiB");
    file_ = file.read(0, file.size());
    constexpr std::uint8_t kSignature[] = {0x89, 'P', 'N', 'G'};
    const bool png =
        file_.size() >= 8 && std::equal(std::begin(kSignature), std::end(kSignature), file_.begin());
    if (png) {
      load_png();
    } else if (file_.size() > 2 && file_[0] == 'P' && (file_[1] == '2' || file_[1] == '5')) {
      load_pgm();
    } else {
      fail("it is neither PNG nor PGM (P2 or P5)");
    }
    file_.clear();
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ExitCode::data, fmt::format("{} is not a usable image: {}", path_.string(), why));
  }

  std::size_t checked_bytes(std::uint64_t height, std::uint64_t width, std::size_t channels, bool wide) {
    const std::uint64_t bytes = height * width * channels * (wide ? 2 : 1);  // below 2^36
    if (bytes > kMostSampleBytes || !plausible_size(bytes, file_.size()))
      fail(fmt::format("it claims {} x {} pixels, more than a file of {} bytes can hold", width, height,
                       file_.size()));
    return bytes;
  }

  void describe(std::size_t height, std::size_t width, std::size_t channels, bool wide) {
    static const std::vector<std::vector<std::string>> kNames = {
        {}, {"grey", "alpha"}, {"red", "green", "blue"}, {"red", "green", "blue", "alpha"}};
    field_.dtype = wide ? DType::uint16 : DType::uint8;
    field_.shape = {height, width};
    field_.axes = "HW";
    field_.components = kNames[channels - 1];
  }

  void load_png() {
    PngState state;
    state.file = &file_;
    state.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, png_failed, png_warned);
    if (state.png != nullptr) state.info = png_create_info_struct(state.png);
    if (state.info == nullptr) {
      png_destroy_read_struct(&state.png, nullptr, nullptr);
      throw Error(ExitCode::system, "libpng does not start");
    }
    std::vector<png_bytep> rows;
    bool good = read_png_header(state);
    std::string problem;
    if (good && (state.channels < 1 || state.channels > 4)) problem = "it has more than four channels";
    if (good && problem.empty()) {
      try {
        state.bytes.resize(checked_bytes(state.height, state.width, state.channels, state.wide));
        const std::size_t stride = state.bytes.size() / state.height;
        for (std::size_t y = 0; y < state.height; ++y) rows.push_back(state.bytes.data() + y * stride);
        good = read_png_rows(state, rows.data());
      } catch (...) {
        png_destroy_read_struct(&state.png, &state.info, nullptr);
        throw;
      }
    }
    png_destroy_read_struct(&state.png, &state.info, nullptr);
    if (!problem.empty()) fail(problem);
    if (!good) fail(fmt::format("{} (byte {})", state.reason, state.at));
    describe(state.height, state.width, state.channels, state.wide);
    bytes_ = std::move(state.bytes);
  }

  std::uint32_t pgm_number(std::size_t& at) const {
    while (at < file_.size()) {
      if (file_[at] == '#') {
        while (at < file_.size() && file_[at] != '\n') ++at;
      } else if (std::isspace(file_[at]) != 0) {
        ++at;
      } else {
        break;
      }
    }
    std::uint32_t value = 0;
    const std::size_t start = at;
    for (; at < file_.size() && std::isdigit(file_[at]) != 0; ++at) {
      value = 10 * value + static_cast<std::uint32_t>(file_[at] - '0');
      if (value > kMostSide) fail(fmt::format("a number is above 65536 (byte {})", start));
    }
    if (at == start) fail(fmt::format("a number was expected (byte {})", at));
    return value;
  }

  void load_pgm() {
    std::size_t at = 2;
    const std::size_t width = pgm_number(at);
    const std::size_t height = pgm_number(at);
    const std::uint32_t most = pgm_number(at);
    if (width == 0 || height == 0 || most == 0 || most > 65535)
      fail(fmt::format("its header is not one of a PGM file (byte {})", at));
    const bool wide = most > 255;
    bytes_.resize(checked_bytes(height, width, 1, wide));
    describe(height, width, 1, wide);
    if (file_[1] == '5') {
      ++at;  // one white space ends the header
      if (at > file_.size() || file_.size() - at < bytes_.size())
        fail(fmt::format("it is cut short: it has {} bytes, {} were expected", file_.size(),
                         at + bytes_.size()));
      std::copy_n(file_.begin() + static_cast<std::ptrdiff_t>(at), bytes_.size(), bytes_.begin());
      if (wide) swap_byte_order(bytes_, 2);
      return;
    }
    for (std::size_t i = 0; i < width * height; ++i) {
      const std::uint32_t value = pgm_number(at);
      if (value > most) fail(fmt::format("the value {} is above its maximum {} (byte {})", value, most, at));
      bytes_[wide ? 2 * i : i] = static_cast<std::uint8_t>(value & 0xff);
      if (wide) bytes_[2 * i + 1] = static_cast<std::uint8_t>(value >> 8);
    }
  }

  fs::path path_;
  std::vector<std::uint8_t> file_;
};

}  // namespace

std::unique_ptr<InputReader> open_image(const fs::path& path, const Selector&) {
  return std::make_unique<Image>(path);
}

}  // namespace wflow::converters
