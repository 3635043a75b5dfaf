// SPDX-License-Identifier: Apache-2.0
// Gadget snapshots, of HDF5 and of formats 1 and 2 (Fortran records; format 2 has a label before each block):
// converts positions and masses to a density on a grid by cloud-in-cell (Hockney and Eastwood 1981, section
// 5-2), in the file's mass per its length cubed, with periodic edges.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "converters/input/hdf5_handle.h"
#include "converters/readers/reader.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kTypes = 6;

class Grid {
 public:
  Grid(std::size_t cells, double box) : cells_(cells), box_(box), mass_(cells * cells * cells, 0.0) {}

  // False if the position is not a number.
  bool add(const std::array<double, 3>& position, double mass) {
    std::array<std::array<std::size_t, 2>, 3> cell{};
    std::array<std::array<double, 2>, 3> weight{};
    const auto n = static_cast<double>(cells_);
    for (std::size_t k = 0; k < 3; ++k) {
      if (!std::isfinite(position[k])) return false;
      const double u = position[k] / box_ * n - 0.5;  // in cells, from the first one's centre
      if (!std::isfinite(u)) return false;
      const double below = std::floor(u);
      double wrapped = std::fmod(below, n);
      if (wrapped < 0) wrapped += n;
      cell[k][0] = std::min(static_cast<std::size_t>(wrapped), cells_ - 1);
      cell[k][1] = (cell[k][0] + 1) % cells_;
      weight[k] = {1 - (u - below), u - below};
    }
    for (std::size_t x = 0; x < 2; ++x) {
      for (std::size_t y = 0; y < 2; ++y) {
        for (std::size_t z = 0; z < 2; ++z) {
          mass_[(cell[0][x] * cells_ + cell[1][y]) * cells_ + cell[2][z]] +=
              mass * weight[0][x] * weight[1][y] * weight[2][z];
        }
      }
    }
    return true;
  }

  std::vector<std::uint8_t> density() const {
    const double volume = std::pow(box_ / static_cast<double>(cells_), 3);
    std::vector<std::uint8_t> bytes(mass_.size() * sizeof(float));
    for (std::size_t i = 0; i < mass_.size(); ++i) {
      const auto value = static_cast<float>(mass_[i] / volume);
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    }
    return bytes;
  }

 private:
  std::size_t cells_;
  double box_;
  std::vector<double> mass_;
};

// The header of a snapshot, in any format.
struct Header {
  std::array<std::uint64_t, kTypes> particles{};
  std::array<double, kTypes> mass{};  // mass of each particle of the type; 0: individual masses
  double box = 0;
  std::uint64_t files = 1;
};

class Gadget final : public MemoryReader {
 public:
  Gadget(const fs::path& path, const Selector& selector) : file_(path), form_(selector.gadget) {
    if (form_.grid == 0)
      throw Error(ExitCode::spec, "format gadget needs 'gadget: {grid: 64}', the cells an axis");
    const auto start = file_.read(0, std::min<std::uint64_t>(8, file_.size()));
    constexpr std::array<std::uint8_t, 4> kHdf5 = {0x89, 'H', 'D', 'F'};
    if (start.size() == 8 && std::equal(kHdf5.begin(), kHdf5.end(), start.begin())) {
      load_hdf5();
    } else {
      load_records();
    }
    field_.dtype = DType::float32;
    field_.shape = {form_.grid, form_.grid, form_.grid};
    field_.axes = "DHW";
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ExitCode::data,
                fmt::format("{} is not a usable Gadget snapshot: {}", file_.path().string(), why));
  }

  bool wanted(std::size_t type) const {
    return form_.types.empty() || std::find(form_.types.begin(), form_.types.end(),
                                            static_cast<std::int64_t>(type)) != form_.types.end();
  }

  Grid start_grid(const Header& header) const {
    if (header.files > 1)
      fail(fmt::format("it is one of {} files of a snapshot; join them first, for this reads single files",
                       header.files));
    if (!(header.box > 0) || !std::isfinite(header.box)) fail(fmt::format("its BoxSize is {}", header.box));
    std::uint64_t count = 0;
    for (std::size_t type = 0; type < kTypes; ++type) count += wanted(type) ? header.particles[type] : 0;
    if (count == 0) fail("it has no particle of the wanted types");
    return {form_.grid, header.box};
  }

  // ---- formats 1 and 2

  struct Block {
    std::uint64_t offset = 0;  // begin of the content
    std::uint64_t bytes = 0;
  };

  std::uint32_t word(std::uint64_t at) const {
    auto bytes = file_.read(at, 4);
    if (swapped_) swap_byte_order(bytes, 4);
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  Block block_at(std::uint64_t at) const {
    const Block block{at + 4, word(at)};
    if (block.bytes + 8 > file_.size() - at || word(at + 4 + block.bytes) != block.bytes)
      fail(fmt::format("the record at byte {} claims {} bytes, and does not end there", at, block.bytes));
    return block;
  }

  Block next_block(std::uint64_t& at) const {
    Block block = block_at(at);
    at = block.offset + block.bytes + 4;
    if (labelled_) {  // the label is a record of its own
      block = block_at(at);
      at = block.offset + block.bytes + 4;
    }
    return block;
  }

  template <typename Value>
  Value value_of(std::vector<std::uint8_t> bytes) const {
    if (swapped_) swap_byte_order(bytes, sizeof(Value));
    Value value{};
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  void load_records() {
    constexpr std::uint32_t kHeaderBytes = 256;
    constexpr std::uint32_t kLabelBytes = 8;
    if (file_.size() < kHeaderBytes + 8)
      fail(fmt::format("it has {} bytes, fewer than its header", file_.size()));
    const std::uint32_t first = word(0);
    swapped_ = first == __builtin_bswap32(kHeaderBytes) || first == __builtin_bswap32(kLabelBytes);
    labelled_ = word(0) == kLabelBytes;
    if (word(0) != kHeaderBytes && !labelled_)
      fail(fmt::format(
          "its first record is of {} bytes; 256 (format 1), 8 (format 2) or an HDF5 file was expected",
          first));
    std::uint64_t at = 0;
    const Block head = next_block(at);
    if (head.bytes != kHeaderBytes) fail(fmt::format("its header is of {} bytes, not of 256", head.bytes));
    const Header header = read_header(head.offset);
    Grid grid = start_grid(header);
    const Block positions = next_block(at);
    next_block(at);  // velocities
    next_block(at);  // ids
    std::uint64_t total = 0;
    std::uint64_t with_mass = 0;
    for (std::size_t type = 0; type < kTypes; ++type) {
      total += header.particles[type];
      if (header.mass[type] == 0) with_mass += header.particles[type];
    }
    const std::size_t width = real_width(positions, 3 * total, "positions");
    const Block masses = with_mass > 0 ? next_block(at) : Block{};
    const std::size_t mass_width = with_mass > 0 ? real_width(masses, with_mass, "masses") : 0;
    deposit(header, grid, positions, width, masses, mass_width);
    bytes_ = grid.density();
  }

  Header read_header(std::uint64_t at) const {
    Header header;
    for (std::size_t type = 0; type < kTypes; ++type) {
      header.particles[type] = word(at + 4 * type);
      header.mass[type] = value_of<double>(file_.read(at + 24 + 8 * type, 8));
    }
    header.files = word(at + 124);
    header.box = value_of<double>(file_.read(at + 128, 8));
    return header;
  }

  std::size_t real_width(const Block& block, std::uint64_t values, const char* what) const {
    for (const std::size_t width : {sizeof(float), sizeof(double)}) {
      if (block.bytes == values * width) return width;
    }
    fail(fmt::format("its {} (byte {}) are of {} bytes, but the header makes {} values", what, block.offset,
                     block.bytes, values));
  }

  double real(const std::uint8_t* at, std::size_t width) const {
    std::array<std::uint8_t, 8> bytes{};
    std::copy_n(at, width, bytes.begin());
    if (swapped_) std::reverse(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(width));
    if (width == sizeof(float)) {
      float value = 0;
      std::memcpy(&value, bytes.data(), sizeof value);
      return static_cast<double>(value);
    }
    double value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  void deposit(const Header& header, Grid& grid, const Block& positions, std::size_t width,
               const Block& masses, std::size_t mass_width) const {
    constexpr std::uint64_t kPiece = 65536;  // particles in memory at once
    std::uint64_t particle = 0;
    std::uint64_t own_mass = 0;
    for (std::size_t type = 0; type < kTypes; ++type) {
      const bool single = header.mass[type] == 0;
      for (std::uint64_t done = 0; done < header.particles[type];) {
        const std::uint64_t piece = std::min(kPiece, header.particles[type] - done);
        if (wanted(type)) {
          const auto where = file_.read(positions.offset + particle * 3 * width, piece * 3 * width);
          const auto mass = single ? file_.read(masses.offset + own_mass * mass_width, piece * mass_width)
                                   : std::vector<std::uint8_t>();
          for (std::uint64_t i = 0; i < piece; ++i) {
            const std::uint8_t* p = where.data() + 3 * i * width;
            const bool good =
                grid.add({real(p, width), real(p + width, width), real(p + 2 * width, width)},
                         single ? real(mass.data() + i * mass_width, mass_width) : header.mass[type]);
            if (!good)
              fail(fmt::format("the position of particle {} is not finite (byte {})", particle + i,
                               positions.offset + (particle + i) * 3 * width));
          }
        }
        done += piece;
        particle += piece;
        if (single) own_mass += piece;
      }
    }
  }

  // ---- HDF5

  std::vector<double> read_hdf5_values(InputReader& reader, const std::string& dataset,
                                       const std::string& attribute,
                                       std::vector<std::size_t>* shape = nullptr) const {
    Selector selector;
    selector.dataset = dataset;
    selector.attribute = attribute;
    InputArray read = read_input(reader, file_.path(), selector);
    convert_values(read.array, DType::float64);
    if (shape != nullptr) *shape = read.array.shape;
    std::vector<double> values(read.array.bytes.size() / sizeof(double));
    std::memcpy(values.data(), read.array.bytes.data(), read.array.bytes.size());
    return values;
  }

  void load_hdf5() {
    const auto reader = open_hdf5_input(file_.path(), {});
    Header header;
    const auto counts = read_hdf5_values(*reader, "/Header", "NumPart_ThisFile");
    const auto table = read_hdf5_values(*reader, "/Header", "MassTable");
    const auto box = read_hdf5_values(*reader, "/Header", "BoxSize");
    const auto files = read_hdf5_values(*reader, "/Header", "NumFilesPerSnapshot");
    if (counts.size() > kTypes || table.size() < counts.size() || box.empty() || files.empty())
      fail("its /Header does not have six types of particles");
    header.box = box[0];
    header.files = files[0] > 1 ? static_cast<std::uint64_t>(files[0]) : 1;
    for (std::size_t type = 0; type < counts.size(); ++type) {
      if (!(counts[type] >= 0) || counts[type] > 1e15) fail("its /Header counts particles wrongly");
      header.particles[type] = static_cast<std::uint64_t>(counts[type]);
      header.mass[type] = table[type];
    }
    Grid grid = start_grid(header);
    for (std::size_t type = 0; type < kTypes; ++type) {
      if (wanted(type) && header.particles[type] > 0) deposit_hdf5(*reader, header, type, grid);
    }
    bytes_ = grid.density();
  }

  void deposit_hdf5(InputReader& reader, const Header& header, std::size_t type, Grid& grid) const {
    std::vector<std::size_t> shape;
    const std::string group = fmt::format("/PartType{}", type);
    const auto positions = read_hdf5_values(reader, group + "/Coordinates", "", &shape);
    const std::uint64_t count = header.particles[type];
    if (shape.size() != 2 || shape[0] != count || shape[1] != 3)
      fail(fmt::format("{}/Coordinates has shape ({}), but the header counts {} particles", group,
                       fmt::join(shape, ", "), count));
    const bool single = header.mass[type] == 0;
    const auto masses = single ? read_hdf5_values(reader, group + "/Masses", "") : std::vector<double>();
    if (single && masses.size() != count)
      fail(fmt::format("{}/Masses has {} values, but the header counts {} particles", group, masses.size(),
                       count));
    for (std::size_t i = 0; i < count; ++i) {
      if (!grid.add({positions[3 * i], positions[3 * i + 1], positions[3 * i + 2]},
                    single ? masses[i] : header.mass[type]))
        fail(fmt::format("the position of particle {} of {} is not finite", i, group));
    }
  }

  InputFile file_;
  GadgetForm form_;
  bool swapped_ = false;
  bool labelled_ = false;
};

}  // namespace

std::unique_ptr<InputReader> open_gadget(const fs::path& path, const Selector& selector) {
  return std::make_unique<Gadget>(path, selector);
}

}  // namespace wflow::converters
