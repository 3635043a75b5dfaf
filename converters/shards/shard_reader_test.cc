// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shard_reader.h"

#include <fcntl.h>
#include <algorithm>

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/checksum.h"
#include "base/process.h"
#include "converters/convert/conversion.h"
#include "converters/convert/test_support.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shard_file.h"
#include "converters/shards/shard_writer.h"

// HDF5 leaks some memory when it refuses a damaged file, and one of these tests opens hundreds of them.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libhdf5";
}  // NOLINT

namespace wflow::converters {
namespace {

const std::vector<std::string> kFields = {"x", "y"};

class ShardReaderTest : public FolderTest {
 protected:
  void convert(std::uint64_t count, const ConvertConfig& config) {
    conversion_ = make_conversion(folder_, count);
    conversion_.config = config;
    manifest_ = convert_all(conversion_, write_samples(folder_, count));
    data_ = conversion_.output;
  }
  void expect_all_samples() const {
    std::set<std::int64_t> seen;
    for (const char* split : {"train", "validation", "test"}) {
      const SplitReader reader = SplitReader::open(data_, manifest_, split);
      EXPECT_EQ(reader.size(), manifest_.split(split).samples);
      std::vector<float> x(reader.values());
      for (std::size_t i = 0; i < reader.size(); ++i) {
        reader.read(i, x);
        EXPECT_EQ(x, sample_values(static_cast<std::uint64_t>(reader.id(i))));
        const double id = static_cast<double>(reader.id(i));
        EXPECT_EQ(reader.targets(i)[0], id);
        EXPECT_EQ(reader.targets(i)[1], id * id);
        seen.insert(reader.id(i));
      }
      expect_same_at_once(reader);
    }
    EXPECT_EQ(seen.size(), conversion_.config.count - manifest_.missing.size());
  }
  // In another order, with neighbours and without, scaled and not.
  static void expect_same_at_once(const SplitReader& reader) {
    std::vector<std::size_t> indices;
    for (std::size_t i = reader.size(); i-- > 0;) {
      if (i % 5 != 3) indices.push_back(i);
    }
    if (!indices.empty()) indices.push_back(indices.front());
    const std::size_t length = reader.values();
    std::vector<float> all(indices.size() * length, -1.0F);
    std::vector<std::span<float>> to;
    for (std::size_t k = 0; k < indices.size(); ++k) to.push_back(std::span(all).subspan(k * length, length));
    std::vector<float> x(length);
    for (const std::vector<Scale>& scales : {std::vector<Scale>{}, {{2, 1}}, {{3, 0}, {1, -7}}}) {
      if (!scales.empty() && length % scales.size() != 0) continue;
      reader.read_fields(0, indices, to, scales);
      for (std::size_t k = 0; k < indices.size(); ++k) {
        reader.read(indices[k], x);
        for (std::size_t j = 0; j < length && !scales.empty(); ++j) {
          const Scale& scale = scales[j / (length / scales.size())];
          x[j] = x[j] * scale.factor + scale.offset;
        }
        EXPECT_TRUE(std::equal(x.begin(), x.end(), to[k].begin())) << indices[k];
      }
    }
  }
  fs::path first_shard() const { return data_ / manifest_.split("train").shards[0].file; }
  // Rewrites a shard with h5repack; false if there is no such program.
  bool repack(const fs::path& path, const std::vector<std::string>& options) const {
    const auto program = find_program("h5repack");
    if (!program) return false;
    const fs::path packed = path.string() + ".packed";
    SpawnRequest request{.argv = {*program}, .program = {}, .environment = {}, .directory = {}};
    request.argv.insert(request.argv.end(), options.begin(), options.end());
    request.argv.insert(request.argv.end(), {path.string(), packed.string()});
    const CommandResult result = run_command(request);
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    fs::rename(packed, path);
    return true;
  }
  Conversion conversion_;
  Manifest manifest_;
  fs::path data_;
};

TEST_F(ShardReaderTest, EveryTypeAndCompression) {
  for (const Compression compression : {Compression::gzip, Compression::none}) {
    ConvertConfig config = raw_config(20);
    config.compression = compression;
    convert(20, config);
    expect_all_samples();
    EXPECT_EQ(ShardFile(first_shard(), kFields, true).layout().fields[0].has_hashes, true);
    fs::remove_all(folder_ / "data");
  }
}

TEST_F(ShardReaderTest, OtherTypesBecomeFloat) {
  for (const char* name : {"uint8", "int16", "uint32", "int64", "float64"}) {
    const DType dtype = *parse_dtype(name);
    Conversion conversion = make_conversion(folder_ / name, 4);
    conversion.config.fields[0].selector.raw.dtype = dtype;
    conversion.config.split.parts = {1, 0, 0};
    fs::create_directories(folder_ / name);
    std::vector<SampleRow> rows;
    for (std::uint64_t i = 0; i < 4; ++i) {
      const auto values = sample_values(i);
      const std::string bytes = with_type(dtype, [&](auto zero) {
        return bytes_of(std::vector<decltype(zero)>(values.begin(), values.end()));
      });
      rows.push_back({i, static_cast<std::int64_t>(i), folder_ / name / std::to_string(i), {0, 0}});
      write_file_durably(rows.back().file, bytes);
    }
    const Manifest manifest = convert_all(conversion, rows);
    EXPECT_EQ(manifest.dtype, name);
    const SplitReader reader = SplitReader::open(conversion.output, manifest, "train");
    std::vector<float> x(reader.values());
    for (std::size_t i = 0; i < 4; ++i) {
      reader.read(i, x);
      EXPECT_EQ(x, sample_values(i)) << name;
    }
  }
}

TEST_F(ShardReaderTest, RepackedFilesAreStillRead) {
  const std::vector<std::vector<std::string>> ways = {
      {},                                                  // unchanged: the chunks move, the index is stale
      {"-f", "x:GZIP=6"},                                  // no shuffle
      {"-f", "x:NONE"},                                    // chunks without filters
      {"-f", "x:SHUF", "-f", "x:GZIP=2", "-f", "x:FLET"},  // a filter that Decoder does not know
      {"-l", "x:CONTI"},                                   // contiguous
      {"-l", "x:CHUNK=2x1x12x12x6", "-f", "x:GZIP=1"},     // other chunks
  };
  for (std::size_t way = 0; way < ways.size(); ++way) {
    convert(20, raw_config(20));
    for (const char* split : {"train", "validation", "test"}) {
      for (const ShardEntry& shard : manifest_.split(split).shards) {
        if (!repack(data_ / shard.file, ways[way])) GTEST_SKIP() << "no h5repack (package hdf5-tools)";
      }
    }
    EXPECT_FALSE(ShardFile(first_shard(), kFields, true).layout().fields[0].has_hashes);
    SCOPED_TRACE(way);
    expect_all_samples();
    fs::remove_all(data_);
  }
}

// One case of each kind: the file has grown; an entry is wrong although the index' own checksum is right; the
// entries of the first and the last chunk are exchanged.
TEST_F(ShardReaderTest, AStaleIndexIsNamedAndNotFollowed) {
  enum class Way : std::uint8_t { grown, beyond_the_end, exchanged };
  for (const Way way : {Way::grown, Way::beyond_the_end, Way::exchanged}) {
    convert(20, raw_config(20));
    std::string bytes = read_file(first_shard());
    const auto places = ShardFile(first_shard(), kFields, true).layout().fields[0].chunks;
    std::vector<std::uint64_t> words;
    for (const ChunkPlace& place : places)
      words.insert(words.end(), {place.offset, place.bytes, place.mask, place.hash});
    const auto text_of = [](const std::vector<std::uint64_t>& numbers) { return bytes_of(numbers); };
    const auto hash_of = [](const std::string& text) {
      return bytes_of(std::vector<std::uint64_t>{
          chunk_hash({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()})});
    };
    const std::string before = text_of(words);
    if (way == Way::beyond_the_end) words[4] = bytes.size() + 1000;
    if (way == Way::exchanged) std::swap_ranges(words.begin(), words.begin() + 4, words.end() - 4);
    const std::string after = text_of(words);
    const auto at = bytes.find(before);
    const auto hash_at = bytes.find(hash_of(before));
    ASSERT_TRUE(at != std::string::npos && hash_at != std::string::npos);
    bytes.replace(at, after.size(), after);
    write_file_durably(first_shard(), bytes);
    if (way == Way::grown) {
      write_file_durably(first_shard(), bytes + std::string(512, '\0'));
    } else {
      bytes.replace(hash_at, sizeof(std::uint64_t), hash_of(after));
      write_file_durably(first_shard(), bytes);
    }
    SCOPED_TRACE(static_cast<int>(way));
    EXPECT_FALSE(ShardFile(first_shard(), kFields, true).layout().fields[0].has_hashes);
    expect_all_samples();
    const auto problems = verify_dataset(data_).problems;
    ASSERT_GE(problems.size(), 2U);
    EXPECT_NE(problems[1].find("the index of x in " + first_shard().string() + " is stale"),
              std::string::npos)
        << problems[1];
    fs::remove_all(data_);
  }
}

TEST_F(ShardReaderTest, FieldsAreReadByName) {
  convert(20, raw_config(20));
  const SplitReader reader = SplitReader::open(data_, manifest_, "train");
  ASSERT_EQ(reader.fields().size(), 2U);
  EXPECT_EQ(manifest_.field("y"), 1U);
  EXPECT_EQ(reader.fields()[0].layout, "CDHW");
  EXPECT_EQ(reader.fields()[1].channels, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(error_of([&] { static_cast<void>(manifest_.field("z")); }),
            "2: there is no field 'z' (there are x, y); did you mean 'x'?");
  std::vector<float> y(2);
  for (std::size_t i = 0; i < reader.size(); ++i) {
    reader.read_field(1, i, y);
    EXPECT_EQ(static_cast<double>(y[0]), reader.targets(i)[0]);
    EXPECT_EQ(static_cast<double>(y[1]), reader.targets(i)[1]);
  }
}

// A reader needs only a copy of a shard and the encoded contents from HDF5.
TEST_F(ShardReaderTest, OpensFromContentsAndBytes) {
  convert(10, raw_config(10));
  const SplitReader direct = SplitReader::open(data_, manifest_, "train");
  const fs::path copy = folder_ / "copy";
  const SplitReader reader = SplitReader::open_with(data_, manifest_, "train", [&](const ShardEntry& shard) {
    fs::copy_file(data_ / shard.file, copy, fs::copy_options::overwrite_existing);
    const std::string sent = encode_contents(read_shard_contents(copy, manifest_));
    return OpenedShard{decode_contents(sent), std::make_unique<FileBytes>(copy, true)};
  });
  fs::remove_all(data_);
  ASSERT_EQ(reader.size(), direct.size());
  std::vector<float> x(direct.values());
  std::vector<float> again(direct.values());
  for (std::size_t i = 0; i < reader.size(); ++i) {
    EXPECT_EQ(reader.id(i), direct.id(i));
    EXPECT_TRUE(std::ranges::equal(reader.targets(i), direct.targets(i)));
    reader.read(i, x);
    direct.read(i, again);
    EXPECT_EQ(x, again);
  }
}

TEST_F(ShardReaderTest, ADamagedPackedChunkIsNamed) {
  convert(8, raw_config(8));
  const FieldLayout y = ShardFile(first_shard(), kFields, true).layout().fields[1];
  ASSERT_GT(y.rows_per_chunk, 1U);
  std::string bytes = read_file(first_shard());
  bytes[y.chunks[0].offset + 1] ^= 1;
  write_file_durably(first_shard(), bytes);
  // Opening the split reads the targets; other fields are read on demand.
  EXPECT_NE(error_of([&] { SplitReader::open(data_, manifest_, "train"); }).find("4: y of samples "),
            std::string::npos);
  ReadScratch scratch;
  std::vector<float> values(2);
  const ShardFile shard(first_shard(), kFields, true);
  EXPECT_NE(error_of([&] { shard.read_float(1, 0, scratch, values); }).find("4: y of samples "),
            std::string::npos);
  EXPECT_EQ(verify_dataset(data_).problems.size(), 2U);
}

// Compressed chunks stay in memory up to the budget, and are readable without the file.
TEST_F(ShardReaderTest, KeptChunksAreReadNoMore) {
  convert(10, raw_config(10));
  const SplitReader reader = SplitReader::open(data_, manifest_, "train");
  ASSERT_EQ(reader.size(), 6U);
  const std::int64_t all_bytes = reader.compressed_bytes(0);
  ASSERT_GT(all_bytes, 6 * 100);
  EXPECT_EQ(reader.compressed_bytes(1), 0);  // numbers are not compressed
  MemoryBudget budget(all_bytes - 100);      // enough except for one sample
  std::vector<float> all(6 * kValues);
  std::vector<std::span<float>> to;
  for (std::size_t i = 0; i < 6; ++i) to.push_back(std::span(all).subspan(i * kValues, kValues));
  const std::vector<std::size_t> indices = {3, 0, 5, 1, 2, 4};
  reader.read_fields(0, indices, to, {}, &budget);
  const std::vector<float> good = all;
  EXPECT_TRUE(budget.holds(1));
  for (const ShardEntry& shard : manifest_.split("train").shards) {
    const FileDescriptor fd = open_file(data_ / shard.file, O_WRONLY | O_TRUNC);
  }
  std::size_t kept = 0;
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const std::string error = error_of(
        [&] { reader.read_fields(0, std::span(indices).subspan(k, 1), std::span(to).subspan(k, 1)); });
    if (error.empty()) ++kept;
  }
  EXPECT_EQ(kept, 5U);
  EXPECT_EQ(all, good);
}

TEST_F(ShardReaderTest, ManyThreadsReadAtOnce) {
  convert(24, raw_config(24));
  const SplitReader reader = SplitReader::open(data_, manifest_, "train");
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<float> x(reader.values());
      for (std::size_t k = 0; k < 200; ++k) {
        const std::size_t i = hash64(t, k) % reader.size();
        reader.read(i, x);
        EXPECT_EQ(x, sample_values(static_cast<std::uint64_t>(reader.id(i))));
      }
    });
  }
}

TEST_F(ShardReaderTest, ADamagedChunkIsNamed) {
  convert(8, raw_config(8));
  const ChunkPlace place = ShardFile(first_shard(), kFields, true).layout().fields[0].chunks.at(1);
  const std::int64_t id = ShardFile(first_shard(), kFields, true).layout().ids.at(1);
  std::string bytes = read_file(first_shard());
  bytes[place.offset + place.bytes / 2] ^= 1;
  write_file_durably(first_shard(), bytes);
  const SplitReader reader = SplitReader::open(data_, manifest_, "train");
  std::vector<float> x(reader.values());
  reader.read(0, x);
  const std::string expected =
      "4: sample " + std::to_string(id) + " of " + first_shard().string() + " is damaged";
  EXPECT_TRUE(error_of([&] { reader.read(1, x); }).starts_with(expected));
  const Verification verification = verify_dataset(data_);
  ASSERT_EQ(verification.problems.size(), 2U);  // the file, and the sample in it
  EXPECT_NE(verification.problems[1].find("sample " + std::to_string(id)), std::string::npos);
}

TEST_F(ShardReaderTest, AnyChangedByteIsAnErrorOrHarmless) {
  convert(8, raw_config(8));
  const std::string good = read_file(first_shard());
  const FieldLayout layout = ShardFile(first_shard(), kFields, true).layout().fields[0];
  const std::size_t chunks_end = layout.chunks.back().offset + layout.chunks.back().bytes;
  std::vector<float> x(kValues);
  // Numbers, targets and values of all samples.
  const auto contents = [&](std::vector<double>& all) {
    all.clear();
    const SplitReader reader = SplitReader::open(data_, manifest_, "train");
    for (std::size_t i = 0; i < reader.size(); ++i) {
      reader.read(i, x);
      all.push_back(static_cast<double>(reader.id(i)));
      for (const double target : reader.targets(i)) all.push_back(target);
      all.insert(all.end(), x.begin(), x.end());
    }
  };
  std::vector<double> expected;
  contents(expected);
  std::vector<double> found;
  for (std::uint64_t round = 0; round < 400; ++round) {
    std::string bytes = good;
    // Half of the rounds damage other parts than chunks: headers, index, tables.
    const std::size_t first = round % 2 == 0 || chunks_end >= bytes.size() ? 0 : chunks_end;
    bytes[first + hash64(1, round) % (bytes.size() - first)] ^= static_cast<char>(1 + hash64(2, round) % 255);
    if (round % 10 == 0) bytes.resize(hash64(3, round) % bytes.size());
    {
      const FileDescriptor fd = open_file(first_shard(), O_WRONLY | O_TRUNC);
      write_all(fd.get(), bytes, first_shard());
    }
    const std::string error = error_of([&] { contents(found); });
    EXPECT_TRUE(!error.empty() || found == expected) << round;
    const std::string at_once = error_of([&] {
      const SplitReader reader = SplitReader::open(data_, manifest_, "train");
      std::vector<float> all(reader.size() * kValues);
      std::vector<std::size_t> indices;
      std::vector<std::span<float>> to;
      for (std::size_t i = 0; i < reader.size(); ++i) {
        indices.push_back(i);
        to.push_back(std::span(all).subspan(i * kValues, kValues));
      }
      reader.read_fields(0, indices, to);
    });
    EXPECT_EQ(error.empty(), at_once.empty()) << error << " / " << at_once;
    EXPECT_TRUE(error.empty() || error.starts_with("4: ") || error.starts_with("8: ") ||
                error.starts_with("5: "))
        << error;
  }
}

TEST_F(ShardReaderTest, ErrorsOfTheManifest) {
  EXPECT_NE(
      error_of([&] { read_manifest(folder_); }).find("4: " + folder_.string() + " has no manifest.json"),
      std::string::npos);
  convert(8, raw_config(8));
  EXPECT_EQ(read_manifest(data_).hash, manifest_.hash);
  EXPECT_EQ(manifest_text(read_manifest(data_)), read_file(data_ / kManifestName));
  EXPECT_TRUE(
      error_of([&] { SplitReader::open(data_, manifest_, "trian"); }).ends_with("did you mean 'train'?"));
  const std::string whole = read_file(data_ / kManifestName);
  std::string changed_mean = whole;
  const std::size_t digit =
      whole.find_first_of("123456789", whole.find("\"mean\"", whole.find("statistics")));
  changed_mean[digit] ^= 1;
  write_file_durably(data_ / kManifestName, changed_mean);
  EXPECT_NE(error_of([&] { read_manifest(data_); }).find("its checksum does not match"), std::string::npos);
  auto json = nlohmann::json::parse(take_checksum(whole).text);  // as older versions wrote it
  const auto why = [&](auto change) {
    auto changed = json;
    change(changed);
    write_file_durably(data_ / kManifestName, changed.dump());
    return error_of([&] { SplitReader::open(data_, read_manifest(data_), "train"); });
  };
  EXPECT_TRUE(why([](auto& j) { j["wflow_format"] = 99; }).starts_with("8: "));
  EXPECT_TRUE(why([](auto& j) { j.erase("fields"); }).starts_with("4: "));
  EXPECT_TRUE(why([](auto& j) { j["splits"]["train"]["shards"][0]["file"] = "../x.h5"; }).starts_with("4: "));
  EXPECT_TRUE(why([](auto& j) {
                j["splits"]["train"]["shards"][0]["file"] = "train/none.h5";
              }).starts_with("4: no such file"));
  EXPECT_NE(why([](auto& j) {
              j["fields"][0]["shape"] = {1, 12, 12, 12};
              j["statistics"]["x"].erase(1);
            }).find("not what the manifest says"),
            std::string::npos);
  write_file_durably(data_ / kManifestName, "{");
  EXPECT_TRUE(error_of([&] { read_manifest(data_); }).starts_with("4: the manifest"));
}

// A sample of 19 MB is stored in slabs; reading a part reads only the slabs that contain it.
TEST(ShardReaderParts, AreThoseOfTheWhole) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("wflow-parts-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const std::vector<std::size_t> shape = {2, 5, 701, 700};
  std::vector<float> whole(2 * 5 * 701 * 700);
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(hash64(1, i) % 9);
  write_file_durably(folder / "u.raw", bytes_of(whole));
  Conversion conversion = make_conversion(folder, 1);
  FieldConfig& x = conversion.config.fields.front();
  x.shape = shape;
  x.selector.raw.shape = shape;
  x.chunk.emplace();
  conversion.config.split.parts = {1, 0, 0};
  const Manifest manifest = convert_all(conversion, {{0, 0, folder / "u.raw", {1, 2}}});
  const ShardFile shard(conversion.output / "train/shard-00000.h5", {"x"}, true);
  const FieldLayout& layout = shard.layout().fields[0];
  EXPECT_EQ(layout.chunk,
            (std::vector<std::size_t>{1, 3, 701, 700}));  // the second of a channel is of two planes
  EXPECT_EQ(layout.chunks_per_sample, 4U);
  EXPECT_TRUE(layout.has_hashes);
  const SplitReader reader = SplitReader::open(conversion.output, manifest, "train");
  std::vector<float> read(whole.size());
  reader.read_field(0, 0, read);
  EXPECT_EQ(read, whole);
  const std::vector<std::pair<std::vector<std::size_t>, std::vector<std::size_t>>> parts = {
      {{0, 0, 0, 0}, {2, 5, 701, 700}},
      {{1, 2, 700, 699}, {1, 2, 1, 1}},
      {{0, 2, 300, 0}, {2, 3, 50, 700}},
      {{1, 4, 3, 5}, {1, 1, 2, 7}},
      {{0, 0, 0, 0}, {1, 1, 1, 1}}};
  for (const auto& [start, count] : parts) {
    std::vector<float> part(count[0] * count[1] * count[2] * count[3]);
    reader.read_field_part(0, 0, start, count, part);
    std::size_t at = 0;
    for (std::size_t c = 0; c < count[0]; ++c) {
      for (std::size_t d = 0; d < count[1]; ++d) {
        for (std::size_t h = 0; h < count[2]; ++h) {
          for (std::size_t w = 0; w < count[3]; ++w, ++at)
            ASSERT_EQ(part[at],
                      whole[(((start[0] + c) * 5 + start[1] + d) * 701 + start[2] + h) * 700 + start[3] + w]);
        }
      }
    }
  }
  fs::remove_all(folder);
}

// A box of a sample in uneven bricks, the axes periodic, and the bytes that it takes.
class ShardBricksTest : public FolderTest, public ::testing::WithParamInterface<Compression> {
 protected:
  static constexpr std::array<std::size_t, 4> kShape = {2, 13, 9, 11};
  static constexpr std::array<std::size_t, 3> kCells = {4, 5, 3};
  static constexpr std::size_t kBrickBytes = 2 * 4 * 5 * 3 * sizeof(float);
  static std::size_t at(std::size_t c, std::size_t d, std::size_t h, std::size_t w) {
    return ((c * kShape[1] + d) * kShape[2] + h) * kShape[3] + w;
  }
  SplitReader open_bricks() {
    fs::create_directories(folder_);
    std::vector<SampleRow> rows;
    for (std::uint64_t i = 0; i < 2; ++i) {
      std::vector<float>& values = samples_.emplace_back(2 * 13 * 9 * 11);
      for (std::size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(hash64(i, k) % 9);
      const fs::path file = folder_ / fmt::format("{}.raw", i);
      write_file_durably(file, bytes_of(values));
      rows.push_back({i, static_cast<std::int64_t>(i), file, {1, 2}});
    }
    Conversion conversion = make_conversion(folder_, 2);
    conversion.config.compression = GetParam();
    FieldConfig& x = conversion.config.fields.front();
    x.shape = {kShape.begin(), kShape.end()};
    x.selector.raw.shape = x.shape;
    x.chunk = {kCells.begin(), kCells.end()};
    conversion.config.split.parts = {1, 0, 0};
    manifest_ = convert_all(conversion, rows);
    data_ = conversion.output;
    return SplitReader::open(data_, manifest_, "train");
  }
  // The bricks along an axis that have one of these entries.
  static std::size_t bricks(const SampleBox& box, std::size_t axis) {
    std::set<std::size_t> touched;
    for (std::size_t k = 0; k < box.count[axis]; ++k)
      touched.insert((box.start[axis] + k) % kShape[axis] / kCells[axis - 1]);
    return touched.size();
  }
  static std::vector<float> cut(const std::vector<float>& sample, const SampleBox& box) {
    std::vector<float> values;
    const auto entry = [&](std::size_t axis, std::size_t k) { return (box.start[axis] + k) % kShape[axis]; };
    for (std::size_t c = 0; c < box.count[0]; ++c)
      for (std::size_t d = 0; d < box.count[1]; ++d)
        for (std::size_t h = 0; h < box.count[2]; ++h)
          for (std::size_t w = 0; w < box.count[3]; ++w)
            values.push_back(sample[at(entry(0, c), entry(1, d), entry(2, h), entry(3, w))]);
    return values;
  }
  std::vector<std::vector<float>> samples_;
  Manifest manifest_;
  fs::path data_;
};

TEST_P(ShardBricksTest, HaveTheValuesOfTheWhole) {
  const SplitReader reader = open_bricks();
  const ShardFile shard(data_ / manifest_.split("train").shards[0].file, {"x"}, true);
  const FieldLayout& layout = shard.layout().fields[0];
  EXPECT_EQ(layout.chunk, (std::vector<std::size_t>{2, 4, 5, 3}));
  EXPECT_EQ(layout.chunks_per_sample, 4U * 2 * 4);
  EXPECT_EQ(layout.access, FieldLayout::Access::direct);
  EXPECT_TRUE(layout.has_hashes);
  EXPECT_TRUE(reader.has_parts(0));
  EXPECT_FALSE(reader.has_parts(1));
  std::vector<float> read(samples_[0].size());
  for (std::size_t i = 0; i < 2; ++i) {
    reader.read_field(0, i, read);
    EXPECT_EQ(read, samples_[static_cast<std::size_t>(reader.id(i))]);
    reader.read_fields(0, {&i, 1}, std::array{std::span(read)}, {});
    EXPECT_EQ(read, samples_[static_cast<std::size_t>(reader.id(i))]);
  }
}

TEST_P(ShardBricksTest, ABoxTakesTheBricksThatItTouches) {
  const SplitReader reader = open_bricks();
  const std::vector<Scale> scales = {{2, 1}, {3, -1}};
  for (std::uint64_t round = 0; round < 300; ++round) {
    std::array<std::size_t, 2> indices = {0, 1};
    std::vector<SampleBox> boxes(2);
    std::vector<std::vector<float>> read(2);
    std::vector<std::span<float>> to;
    std::uint64_t decoded = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t axis = 0; axis < 4; ++axis) {
        const std::uint64_t drawn = hash64(hash64(round, i), axis);
        boxes[i].start.push_back(axis == 0 ? 0 : drawn % kShape[axis]);
        boxes[i].count.push_back(axis == 0 ? 2 : 1 + (drawn >> 32) % kShape[axis]);
      }
      read[i].resize(boxes[i].values());
      to.emplace_back(read[i]);
      decoded += bricks(boxes[i], 1) * bricks(boxes[i], 2) * bricks(boxes[i], 3) * kBrickBytes;
    }
    const ReadCounts before = reader.counts();
    reader.read_boxes(0, indices, boxes, to, scales);
    EXPECT_EQ(reader.counts().decoded - before.decoded, decoded);
    for (std::size_t i = 0; i < 2; ++i) {
      std::vector<float> expected = cut(samples_[static_cast<std::size_t>(reader.id(i))], boxes[i]);
      for (std::size_t k = 0; k < expected.size(); ++k) {
        const Scale& scale = scales[k / (expected.size() / 2)];
        expected[k] = expected[k] * scale.factor + scale.offset;
      }
      ASSERT_EQ(read[i], expected) << round;
    }
  }
}

// Without the index HDF5 finds each chunk by a search: then it reads so many by itself.
TEST_F(ShardReaderTest, VeryManyBricksNeedTheirIndex) {
  const std::vector<std::size_t> shape = {1, 33, 33, 16};
  std::vector<float> values(33 * 33 * 16);
  for (std::size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(hash64(1, k) % 9);
  fs::create_directories(folder_);
  write_file_durably(folder_ / "u.raw", bytes_of(values));
  conversion_ = make_conversion(folder_, 1);
  FieldConfig& x = conversion_.config.fields.front();
  x.shape = x.selector.raw.shape = shape;
  x.chunk = {1, 1, 1};
  conversion_.config.split.parts = {1, 0, 0};
  manifest_ = convert_all(conversion_, {{0, 0, folder_ / "u.raw", {1, 2}}});
  data_ = conversion_.output;
  const auto expect_values = [&](FieldLayout::Access access) {
    const ShardFile shard(first_shard(), {"x"}, true);
    EXPECT_EQ(shard.layout().fields[0].access, access);
    std::vector<float> read(values.size());
    ReadScratch scratch;
    shard.read_float(0, 0, scratch, read);
    EXPECT_EQ(read, values);
  };
  expect_values(FieldLayout::Access::direct);
  if (!repack(first_shard(), {})) GTEST_SKIP() << "no h5repack";
  expect_values(FieldLayout::Access::library);
}

INSTANTIATE_TEST_SUITE_P(Shards, ShardBricksTest, ::testing::Values(Compression::gzip, Compression::none),
                         [](const auto& of) { return of.param == Compression::gzip ? "gzip" : "plain"; });

// With all channels as far as a brick has 8 MiB, and by default for large volumes.
TEST(ChunkShape, OfBricksAndSlabs) {
  FieldForm form;
  form.dtype = DType::uint8;
  form.shape = {4, 128, 128, 128};
  form.layout = "CDHW";
  using Shape = std::vector<std::size_t>;
  EXPECT_EQ(chunk_shape(form), (Shape{4, 64, 64, 64}));  // of 8 MiB
  form.shape[0] = 3;
  EXPECT_EQ(chunk_shape(form), form.shape);  // of less
  form.chunk = {32, 16};
  EXPECT_EQ(chunk_shape(form), (Shape{3, 128, 32, 16}));
  form.shape = {40, 128, 64, 128};
  form.chunk = {128, 128, 64};
  EXPECT_EQ(chunk_shape(form), (Shape{16, 128, 64, 64}));  // 8 MiB
  form.chunk.emplace();
  EXPECT_EQ(chunk_shape(form), (Shape{8, 128, 64, 128}));  // slabs
  form.chunk.reset();
  form.layout = "CTHW";
  EXPECT_EQ(chunk_shape(form), (Shape{8, 128, 64, 128}));  // no volume
  form.shape = {2, 4, 4, 4};
  form.chunk = {2, 2, 2};
  EXPECT_EQ(chunk_shape(form), form.shape);  // many samples in a chunk
}

}  // namespace
}  // namespace wflow::converters
