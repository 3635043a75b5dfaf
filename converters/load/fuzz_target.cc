// SPDX-License-Identifier: Apache-2.0
// The target of libFuzzer for the loader: the input is a list of changes to good shards of two fields (one
// compressed, one packed), which the loader then opens and reads (converters/load/README.md).
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "converters/load/batch_reader.h"
#include "converters/shards/encode.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shard_writer.h"

namespace {

using namespace wflow;
using namespace wflow::converters;
namespace fs = std::filesystem;

constexpr std::size_t kSamples = 6;
constexpr std::size_t kSide = 16;
constexpr std::size_t kFieldValues = kSide * kSide * kSide;
constexpr std::size_t kNumbers = 3;

FieldForm form(const char* name, DType dtype, std::vector<std::size_t> shape, const char* layout) {
  FieldForm made;
  made.name = name;
  made.dtype = dtype;
  made.shape = std::move(shape);
  made.layout = layout;
  made.compressed = made.shape.size() > 1;
  return made;
}

void write_shard(const fs::path& path) {
  const std::vector<FieldForm> forms = {form("x", DType::uint16, {kSide, kSide, kSide}, "DHW"),
                                        form("y", DType::float64, {kNumbers}, "C")};
  ShardWriter writer(path,
                     {.fields = forms, .level = 1, .split = "train", .block = 0, .most_samples = kSamples});
  Encoder runs(filters_of(forms[0]), Coder::runs, 1);
  Encoder plain(filters_of(forms[1]), Coder::runs, 1);
  for (std::size_t i = 0; i < kSamples; ++i) {
    std::vector<std::uint16_t> x(kFieldValues);
    for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<std::uint16_t>(k * k * (i + 1) % 7);
    const std::vector<double> y = {1.0 * static_cast<double>(i), 2, 3};
    const auto bytes = [](const auto& values) {
      return std::span(reinterpret_cast<const std::uint8_t*>(values.data()),
                       values.size() * sizeof values[0]);
    };
    std::vector<EncodedField> fields(2);
    fields[0].chunks.push_back(runs.encode(bytes(x), sizeof x[0]));
    fields[1].chunks.push_back(plain.encode(bytes(y), sizeof y[0]));
    writer.add(static_cast<std::int64_t>(i), fields);
  }
  writer.close({});
  writer.publish();
}

// Shards as conversions write them, with the statistics that readers need.
std::string manifest_of(const std::string& shard) {
  const auto statistics = [](std::size_t count) {
    nlohmann::json list = nlohmann::json::array();
    for (std::size_t k = 0; k < count; ++k) list.push_back({{"mean", 1}, {"std", 2}, {"min", 0}, {"max", 6}});
    return list;
  };
  const nlohmann::json empty = {{"samples", 0}, {"shards", nlohmann::json::array()}};
  const nlohmann::json train = {
      {"samples", kSamples},
      {"shards", {{{"file", shard}, {"samples", kSamples}, {"bytes", 0}, {"xxh3_128", ""}}}}};
  const nlohmann::json x = {{"name", "x"},
                            {"role", "input"},
                            {"dtype", "uint16"},
                            {"shape", {kSide, kSide, kSide}},
                            {"layout", "DHW"}};
  const nlohmann::json y = {
      {"name", "y"}, {"role", "target"}, {"dtype", "float64"}, {"shape", {kNumbers}}, {"layout", "C"}};
  const nlohmann::json json = {{"wflow_format", 2},
                               {"name", "fuzz"},
                               {"fields", {x, y}},
                               {"splits", {{"train", train}, {"validation", empty}, {"test", empty}}},
                               {"split", {{"order", "count"}, {"seed", 1}}},
                               {"missing", nlohmann::json::array()},
                               {"statistics", {{"x", statistics(1)}, {"y", statistics(kNumbers)}}}};
  return json.dump();
}

struct Setting {
  fs::path folder = fs::temp_directory_path() / ("wflow-loader-fuzz-" + std::to_string(::getpid()));
  fs::path shard = folder / "shard-00000.h5";
  std::string good;
  Setting() {
    fs::create_directories(folder);
    write_shard(shard);
    good = read_file(shard);
    write_file_durably(folder / "manifest.json", manifest_of(shard.filename().string()));
  }
  ~Setting() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
};

// Bytes of the input: 4 for each change (24 bits of place, the new byte). The first two cut the tail.
std::string changed(const std::string& good, const std::uint8_t* data, std::size_t size) {
  std::string bytes = good;
  const std::size_t cut = data[0] | std::size_t{data[1]} << 8;
  if (data[0] & 1) bytes.resize(bytes.size() - cut % bytes.size());
  for (std::size_t k = 2; k + 4 <= size; k += 4) {
    const std::size_t at = data[k] | std::size_t{data[k + 1]} << 8 | std::size_t{data[k + 2]} << 16;
    bytes[at % bytes.size()] = static_cast<char>(data[k + 3]);
  }
  return bytes;
}

void read_all(const fs::path& folder) {
  BatchReader reader(folder, "train", 2);
  std::vector<std::size_t> all(reader.split().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::vector<float> x(all.size() * kFieldValues);
  std::vector<float> y(all.size() * kNumbers);
  reader.wait(reader.submit(all, {{0, x.data(), {{2, 1}}}, {1, y.data(), {}}}));
  const std::vector<std::size_t> start = {3, 0, 5};
  const std::vector<std::size_t> count = {2, kSide, 4};
  reader.split().read_field_part(0, 0, start, count, std::span(x).first(2 * kSide * 4));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Setting setting;
  if (size < 2) return 0;
  {
    const std::string bytes = changed(setting.good, data, size);
    const FileDescriptor fd = open_file(setting.shard, O_WRONLY | O_CREAT | O_TRUNC);
    write_all(fd.get(), bytes, setting.shard);
  }
  try {
    read_all(setting.folder);
  } catch (const Error& error) {
    WFLOW_CHECK(error.code() != ExitCode::internal);
  }
  return 0;
}
