// SPDX-License-Identifier: Apache-2.0
// What shards cost in CPU time, and what HDF5 and libdeflate do in the same run: bench/README.md.
//   shard_rates [SAMPLES [EDGE [CASE]]]     default 48 of 64^3; CASE: those whose name has it, "u16"
// A shard is 512 MiB: 1,024 samples of 64^3 and 2 bytes. Fewer make the fixed cost of a file look larger.
#include <fcntl.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/random.h"
#include "converters/shards/encode.h"
#include "converters/shards/shard_file.h"
#include "converters/shards/shard_writer.h"

namespace {

using namespace wflow;
using namespace wflow::converters;
namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The least of several rounds: what others do on the machine only adds. `before` each is not counted.
double least_cpu(
    int rounds, const std::function<void()>& work, const std::function<void()>& before = [] {}) {
  double least = 1e30;
  for (int k = 0; k < rounds; ++k) {
    before();
    const double begin = cpu_seconds();
    work();
    least = std::min(least, cpu_seconds() - begin);
  }
  return least;
}

// The jobs take turns, so that other load on the machine affects them alike.
std::vector<double> least_of_each(
    int rounds, const std::vector<std::function<void()>>& works,
    const std::function<void()>& before = [] {}) {
  std::vector<double> least(works.size(), 1e30);
  for (int k = 0; k < rounds; ++k) {
    for (std::size_t w = 0; w < works.size(); ++w)
      least[w] = std::min(least[w], least_cpu(1, works[w], before));
  }
  return least;
}

// A correlated lognormal field of this mean, as a density of galaxies or particles: sums of box-filtered
// noise.
std::vector<float> lognormal(std::size_t edge, double mean, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const std::size_t count = edge * edge * edge;
  std::vector<float> field(count, 0);
  std::vector<float> noise(count);
  std::vector<float> smooth(count);
  for (std::size_t scale = 1; scale <= 8; scale *= 2) {
    for (float& v : noise) v = normal(random);
    for (std::size_t step = 1; step < count; step *= edge) {
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = i / step % edge;
        float sum = 0;
        for (std::size_t d = 0; d <= 2 * scale; ++d) {
          const std::size_t other = (at + edge + d - scale) % edge;
          sum += noise[i - at * step + other * step];
        }
        smooth[i] = sum / std::sqrt(static_cast<float>(2 * scale + 1));
      }
      noise.swap(smooth);
    }
    for (std::size_t i = 0; i < count; ++i) field[i] += 0.75F * noise[i];
  }
  double total = 0;
  for (float& v : field) total += v = std::exp(v);
  for (float& v : field) v *= static_cast<float>(mean * static_cast<double>(count) / total);
  return field;
}

template <typename Value>
Bytes sample_of(const std::vector<float>& field, bool counts, bool logarithm, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(field.size() * sizeof(Value));
  for (std::size_t i = 0; i < field.size(); ++i) {
    float v = field[i];
    if (counts) v = static_cast<float>(std::poisson_distribution<int>(field[i])(random));
    if (logarithm) v = std::log1p(v);
    const auto value = static_cast<Value>(v);
    std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
  }
  return bytes;
}

struct Case {
  std::string name;
  DType dtype;
  std::vector<Bytes> samples;  // a few, that take turns
};

struct Bench {
  fs::path folder;
  std::size_t samples;
  std::size_t edge;
  double megabytes(const Case& c) const {
    return static_cast<double>(samples) * static_cast<double>(c.samples[0].size()) / 1e6;
  }

  // H5Dwrite through HDF5's own shuffle and deflate, a chunk a sample.
  void write_by_hdf5(const Case& c, const fs::path& path) const {
    const hsize_t dims[4] = {samples, edge, edge, edge};
    const hsize_t chunk[4] = {1, edge, edge, edge};
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(4, dims, nullptr);
    const hid_t memory = H5Screate_simple(4, chunk, nullptr);
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, 4, chunk);
    H5Pset_shuffle(creation);
    H5Pset_deflate(creation, 1);
    const hid_t type = c.dtype == DType::float32 ? H5T_NATIVE_FLOAT : H5T_NATIVE_UINT16;
    const hid_t x = H5Dcreate2(file, "x", type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    for (hsize_t k = 0; k < samples; ++k) {
      const hsize_t start[4] = {k, 0, 0, 0};
      H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, chunk, nullptr);
      H5Dwrite(x, type, memory, space, H5P_DEFAULT, c.samples[k % c.samples.size()].data());
    }
    H5Dclose(x);
    H5Pclose(creation);
    H5Sclose(memory);
    H5Sclose(space);
    H5Fclose(file);
  }

  void read_by_hdf5(const fs::path& path, const std::vector<std::size_t>& order,
                    std::vector<float>& to) const {
    const hsize_t chunk[4] = {1, edge, edge, edge};
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t x = H5Dopen2(file, "x", H5P_DEFAULT);
    const hid_t space = H5Dget_space(x);
    const hid_t memory = H5Screate_simple(4, chunk, nullptr);
    for (const std::size_t k : order) {
      const hsize_t start[4] = {k, 0, 0, 0};
      H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, chunk, nullptr);
      H5Dread(x, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, to.data());
    }
    H5Sclose(memory);
    H5Sclose(space);
    H5Dclose(x);
    H5Fclose(file);
  }

  FieldForm form_of(const Case& c, bool compressed) const {
    FieldForm form;
    form.name = "x";
    form.dtype = c.dtype;
    form.shape = {edge, edge, edge};
    form.layout = "DHW";
    form.compressed = compressed;
    return form;
  }

  // Encoder and shard writer on one thread, as a conversion does with many.
  void write_shard(const Case& c, const fs::path& path, bool compressed, Coder coder) const {
    const FieldForm form = form_of(c, compressed);
    ShardWriter writer(path,
                       {.fields = {form}, .level = 1, .split = "train", .block = 0, .most_samples = samples});
    Encoder encoder(filters_of(form), coder, 1);
    for (std::size_t k = 0; k < samples; ++k) {
      EncodedField field;
      field.chunks.push_back(encoder.encode(c.samples[k % c.samples.size()], dtype_size(c.dtype)));
      writer.add(static_cast<std::int64_t>(k), std::span(&field, 1));
    }
    writer.close({});
    writer.publish();
  }

  void read_shard(const ShardFile& shard, const std::vector<std::size_t>& order, std::vector<float>& batch,
                  ReadScratch& scratch) const {
    constexpr std::size_t kBatch = 16;
    const std::size_t values = edge * edge * edge;
    for (std::size_t k = 0; k < order.size(); k += kBatch) {
      std::vector<RowTarget> rows;
      for (std::size_t j = k; j < std::min(order.size(), k + kBatch); ++j)
        rows.push_back({order[j], std::span(batch).subspan((j - k) * values, values)});
      shard.read_floats(0, rows, {}, scratch);
    }
  }
};

void run_case(const Bench& bench, const Case& c) {
  const double mb = bench.megabytes(c);
  const auto path = [&](const char* name) { return bench.folder / name; };
  const auto ratio = [&](const fs::path& file) {
    return mb * 1e6 / static_cast<double>(fs::file_size(file));
  };
  // Files of the round before are gone before a round: to take their pages back is no part of writing.
  const auto remove_files = [&] {
    for (const char* name : {"matches.h5", "runs.h5", "hdf5.h5", "raw.h5"}) fs::remove(path(name));
  };
  const auto write_matches = [&] { bench.write_shard(c, path("matches.h5"), true, Coder::matches); };
  const double by_matches = least_cpu(2, write_matches, remove_files);
  const double ratio_of_matches = ratio(path("matches.h5"));
  Encoder encoder(filters_of(bench.form_of(c, true)), Coder::runs, 1);
  const auto encode_all = [&] {
    for (std::size_t k = 0; k < bench.samples; ++k)
      encoder.encode(c.samples[k % c.samples.size()], dtype_size(c.dtype));
  };
  const auto write_runs = [&] { bench.write_shard(c, path("runs.h5"), true, Coder::runs); };
  double by_hdf5 = 1e30;
  double ratio_of_hdf5 = 0;
  double by_runs = 1e30;
  double alone = 1e30;
  for (int round = 0; round < 2; ++round) {
    by_hdf5 = std::min(by_hdf5, least_cpu(
                                    1, [&] { bench.write_by_hdf5(c, path("hdf5.h5")); }, remove_files));
    ratio_of_hdf5 = ratio(path("hdf5.h5"));
    const auto least = least_of_each(5, {encode_all, write_runs}, remove_files);
    alone = std::min(alone, least[0]);
    by_runs = std::min(by_runs, least[1]);
  }
  const double ratio_of_runs = ratio(path("runs.h5"));
  fmt::print(
      "{:<12} write MB/CPU s: H5Dwrite gzip-1 {:.0f} (ratio {:.2f}), libdeflate-1 {:.0f} ({:.2f}), own "
      "{:.0f} ({:.2f}), own codec alone {:.0f}: "
      "{:.1f} x H5Dwrite, {:.2f} of the codec\n",
      c.name, mb / by_hdf5, ratio_of_hdf5, mb / by_matches, ratio_of_matches, mb / by_runs, ratio_of_runs,
      mb / alone, by_hdf5 / by_runs, alone / by_runs);

  std::vector<std::size_t> order(bench.samples);
  const Permutation permutation(bench.samples, 1);
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = static_cast<std::size_t>(permutation(k));
  std::vector<float> batch(16 * bench.edge * bench.edge * bench.edge);
  ReadScratch scratch;
  bench.write_by_hdf5(c, path("hdf5.h5"));
  write_matches();
  const ShardFile runs(path("runs.h5"), {"x"}, true);
  const ShardFile matches(path("matches.h5"), {"x"}, true);
  const double read_hdf5 = least_cpu(2, [&] { bench.read_by_hdf5(path("hdf5.h5"), order, batch); });
  const auto reads = least_of_each(6, {[&] { bench.read_shard(matches, order, batch, scratch); },
                                       [&] { bench.read_shard(runs, order, batch, scratch); }});
  const double read_matches = reads[0];
  const double read_runs = reads[1];
  fmt::print(
      "{:<12} read to float32, MB/CPU s: H5Dread gzip-1 {:.0f}, libdeflate and its stream {:.0f}, own "
      "{:.0f}: {:.1f} x H5Dread, "
      "{:.2f} x libdeflate\n",
      "", mb / read_hdf5, mb / read_matches, mb / read_runs, read_hdf5 / read_runs, read_matches / read_runs);
  if (c.dtype != DType::float32) return;
  bench.write_shard(c, path("raw.h5"), false, Coder::runs);
  const ShardFile raw(path("raw.h5"), {"x"}, true);
  const int fd = ::open(path("raw.h5").c_str(), O_RDONLY);
  const double by_pread = least_cpu(8, [&] {
    const std::size_t bytes = c.samples[0].size();
    for (std::size_t k = 0; k < order.size(); ++k) {
      auto* to = reinterpret_cast<char*>(batch.data()) + k % 16 * bytes;
      if (::pread(fd, to, bytes, static_cast<off_t>(raw.layout().fields[0].chunks[order[k]].offset)) < 0)
        std::abort();
    }
  });
  ::close(fd);
  const double by_reader = least_cpu(8, [&] { bench.read_shard(raw, order, batch, scratch); });
  fmt::print("{:<12} raw, MB/CPU s: pread {:.0f}, shard {:.0f}: {:.2f} of pread\n", "", mb / by_pread,
             mb / by_reader, by_pread / by_reader);
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench;
  bench.samples = argc > 1 ? std::stoul(argv[1]) : 48;
  bench.edge = argc > 2 ? std::stoul(argv[2]) : 64;
  bench.folder = fs::temp_directory_path() / fmt::format("wflow-shard-rates-{}", ::getpid());
  fs::create_directories(bench.folder);
  fmt::print("{} samples of {}^3, kernels {}\n", bench.samples, bench.edge, deflate_kernels_name());
  std::vector<std::vector<float>> dense;
  std::vector<std::vector<float>> sparse;
  for (unsigned k = 0; k < 4; ++k) {
    dense.push_back(lognormal(bench.edge, 8, 10 + k));
    sparse.push_back(lognormal(bench.edge, 1, 20 + k));
  }
  const auto each = [](const auto& fields, const auto& make) {
    std::vector<Bytes> samples;
    for (unsigned k = 0; k < fields.size(); ++k) samples.push_back(make(fields[k], 30 + k));
    return samples;
  };
  const auto counts16 = [](const auto& f, unsigned seed) {
    return sample_of<std::uint16_t>(f, true, false, seed);
  };
  const auto counts32 = [](const auto& f, unsigned seed) { return sample_of<float>(f, true, false, seed); };
  const auto logarithm = [](const auto& f, unsigned seed) { return sample_of<float>(f, true, true, seed); };
  const auto smooth = [](const auto& f, unsigned seed) { return sample_of<float>(f, false, false, seed); };
  const std::string wanted = argc > 3 ? argv[3] : "";
  const auto run = [&](const char* name, DType dtype, const auto& fields, const auto& make) {
    if (std::string(name).find(wanted) != std::string::npos)
      run_case(bench, {name, dtype, each(fields, make)});
  };
  run("u16 mean 8", DType::uint16, dense, counts16);
  run("u16 mean 1", DType::uint16, sparse, counts16);
  run("f32 counts", DType::float32, dense, counts32);
  run("f32 log1p", DType::float32, dense, logarithm);
  run("f32 smooth", DType::float32, dense, smooth);
  fs::remove_all(bench.folder);
  return 0;
}
