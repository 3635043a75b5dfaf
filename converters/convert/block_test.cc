// SPDX-License-Identifier: Apache-2.0
#include "converters/convert/conversion.h"

#include <limits>
#include <map>

#include "converters/convert/test_support.h"
#include "converters/shards/manifest.h"

namespace wflow::converters {
namespace {

std::map<std::string, std::string> all_files(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[fs::relative(entry.path(), folder)] = read_file(entry.path());
  }
  return files;
}

class BlockTest : public FolderTest {};

TEST_F(BlockTest, BytesDependOnTheSamplesAlone) {
  const auto rows = write_samples(folder_, 37);
  const Conversion one = make_conversion(folder_ / "one", 37, 1);
  const Manifest manifest = convert_all(one, rows);
  EXPECT_EQ(manifest.split("train").samples, 22U);
  EXPECT_EQ(manifest.split("validation").samples + manifest.split("test").samples, 15U);
  const Conversion many = make_conversion(folder_ / "many", 37, 5);
  Conversion redo = many;
  redo.force = true;
  for (const std::uint64_t block : {4U, 2U, 0U, 1U, 3U}) {  // another order
    convert_block(redo, block, rows_of_block(rows, block, 8), {});
  }
  convert_block(redo, 2, rows_of_block(rows, 2, 8), {});
  finish_conversion(many);
  auto expected = all_files(one.output);
  auto found = all_files(many.output);
  // A data set without a name has the name of its folder, `data` for both.
  EXPECT_EQ(found, expected);
}

TEST_F(BlockTest, StatisticsAreOfTheTrainingSamples) {
  const auto rows = write_samples(folder_, 30);
  const Conversion conversion = make_conversion(folder_, 30);
  const Manifest manifest = convert_all(conversion, rows);
  const SplitMap split(conversion.config.split, 30);
  double sum = 0;
  double label = 0;
  double count = 0;
  for (std::uint64_t i = 0; i < 30; ++i) {
    if (split.of(i, 0) != kTrain) continue;
    const auto values = sample_values(i);
    for (std::size_t k = 0; k < values.size() / 2; ++k) sum += values[k];
    label += static_cast<double>(i);
    ++count;
  }
  EXPECT_NEAR(manifest.statistics.x[0].mean, sum / (count * static_cast<double>(kValues / 2)), 1e-12);
  EXPECT_NEAR(manifest.statistics.y[0].mean, label / count, 1e-12);
  EXPECT_EQ(manifest.statistics.x[1].max, 6);
}

TEST_F(BlockTest, FinishedBlocksAreNotConvertedAgain) {
  const auto rows = write_samples(folder_, 8);
  Conversion conversion = make_conversion(folder_, 8);
  convert_all(conversion, rows);
  std::size_t shards = 0;
  const BlockObserver observer{.converted = {}, .missing = {}, .shard = [&](const fs::path&) { ++shards; }};
  convert_block(conversion, 0, rows, observer);
  EXPECT_EQ(shards, 0U);
  EXPECT_TRUE(fs::exists(conversion.output / kManifestName));
  fs::resize_file(conversion.output / shard_name("train", 0), 100);  // damaged
  convert_block(conversion, 0, rows, observer);
  EXPECT_EQ(shards, 3U);
  EXPECT_FALSE(fs::exists(conversion.output / kManifestName));  // until finish
  conversion.config.level = 3;                                  // another configuration
  convert_block(conversion, 0, rows, observer);
  EXPECT_EQ(shards, 6U);
  conversion.force = true;
  convert_block(conversion, 0, rows, observer);
  EXPECT_EQ(shards, 9U);
}

TEST_F(BlockTest, UnusableSamplesAreLeftOutAndNamed) {
  const auto rows = write_samples(folder_, 16);
  auto nan = sample_values(5);
  nan[17] = std::numeric_limits<float>::quiet_NaN();
  write_file_durably(rows[5].file, bytes_of(nan));
  fs::remove(rows[3].file);
  fs::resize_file(rows[9].file, 100);
  const Conversion conversion = make_conversion(folder_, 16);
  std::map<std::int64_t, std::string> missing;
  const BlockObserver observer{
      .converted = {}, .missing = [&](const MissingSample& m) { missing[m.id] = m.reason; }, .shard = {}};
  const Manifest manifest = convert_all(conversion, rows, observer);
  EXPECT_EQ(manifest.missing, (std::vector<std::int64_t>{3, 5, 9}));
  EXPECT_NE(missing[3].find("no such file"), std::string::npos);
  EXPECT_NE(missing[5].find("NaN"), std::string::npos);
  EXPECT_NE(missing[9].find("has 100 bytes, but (2, 12, 12, 12) float32"), std::string::npos);
  EXPECT_NE(describe_dataset(conversion.output).find("missing samples: 3"), std::string::npos);

  write_file_durably(rows[5].file, bytes_of(sample_values(5)));  // its simulation ran again
  EXPECT_EQ(convert_all(conversion, rows).missing, (std::vector<std::int64_t>{3, 9}));
}

// With statistics (of the training samples) and without.
TEST_F(BlockTest, ValuesThatAreNotFiniteAreSeenInEveryChannelAndSplit) {
  const auto rows = write_samples(folder_, 16);
  const float infinity = std::numeric_limits<float>::infinity();
  const float wrong[] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity};
  std::vector<std::int64_t> expected;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i % 4 == 3) continue;
    auto values = sample_values(i);
    values[i % 2 == 0 ? i : values.size() - 1 - i] = wrong[i % 3];
    write_file_durably(rows[i].file, bytes_of(values));
    expected.push_back(static_cast<std::int64_t>(i));
  }
  Conversion conversion = make_conversion(folder_, 16);
  conversion.config.max_missing = 1;
  EXPECT_EQ(convert_all(conversion, rows).missing, expected);
}

TEST_F(BlockTest, OnMissingFailLeavesNothing) {
  const auto rows = write_samples(folder_, 8);
  fs::remove(rows[7].file);
  Conversion conversion = make_conversion(folder_, 8);
  conversion.config.on_missing = OnMissing::fail;
  EXPECT_NE(error_of([&] {
              convert_block(conversion, 0, rows, {});
            }).find("4: sample 7 is not usable: no such file"),
            std::string::npos);
  EXPECT_TRUE(all_files(conversion.output).empty());
}

TEST_F(BlockTest, TooManyMissingFailAtTheEnd) {
  const auto rows = write_samples(folder_, 8);
  for (int i = 0; i < 5; ++i) fs::remove(rows[static_cast<std::size_t>(i)].file);
  const Conversion conversion = make_conversion(folder_, 8);
  EXPECT_NE(error_of([&] {
              convert_all(conversion, rows);
            }).find("5 of 8 samples are not usable, more than max_missing: 0.5"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(conversion.output / kManifestName));
}

TEST_F(BlockTest, FinishChecksTheBlocks) {
  const auto rows = write_samples(folder_, 16);
  Conversion conversion = make_conversion(folder_, 16);
  convert_block(conversion, 0, rows_of_block(rows, 0, 8), {});
  EXPECT_NE(error_of([&] { finish_conversion(conversion); }).find("block 1 of 2 has not been converted"),
            std::string::npos);
  Conversion other = conversion;
  other.config.fields[0].dtype = DType::float32;
  other.config.fields[0].selector.raw.dtype = DType::uint32;
  convert_block(other, 1, rows_of_block(rows, 1, 8), {});
  EXPECT_NE(error_of([&] { finish_conversion(conversion); }).find("another configuration"),
            std::string::npos);
  convert_block(conversion, 1, rows_of_block(rows, 1, 8), {});
  finish_conversion(conversion);
  fs::remove(conversion.output / shard_name("train", 1));
  EXPECT_NE(error_of([&] { finish_conversion(conversion); }).find("block 1 is not whole"), std::string::npos);
}

TEST_F(BlockTest, ADamagedRecordIsConvertedAgainAndNeverMerged) {
  const auto rows = write_samples(folder_, 8);
  Conversion conversion = make_conversion(folder_, 8);
  convert_all(conversion, rows);
  const fs::path path = block_record_path(conversion.output, 0);
  const std::string whole = read_file(path);
  const std::string manifest = read_file(conversion.output / kManifestName);
  std::string damaged = whole;
  const std::size_t digit = whole.find_first_of("123456789", whole.find("\"mean\""));
  ASSERT_LT(digit, whole.size());
  damaged[digit] ^= 1;
  write_file_durably(path, damaged);
  EXPECT_NE(error_of([&] { finish_conversion(conversion); }).find("remove it and convert its block again"),
            std::string::npos);
  EXPECT_EQ(verify_dataset(conversion.output).problems.size(), 1U);
  convert_all(conversion, rows);
  EXPECT_EQ(read_file(path), whole);
  EXPECT_EQ(read_file(conversion.output / kManifestName), manifest);
}

TEST_F(BlockTest, InputsAreDeletedOnlyOnceTheyAreSafe) {
  auto rows = write_samples(folder_, 8);
  fs::resize_file(rows[2].file, 7);
  Conversion conversion = make_conversion(folder_, 8);
  conversion.config.delete_inputs = true;
  convert_all(conversion, rows);
  for (const SampleRow& row : rows) EXPECT_EQ(fs::exists(row.file), row.id == 2) << row.id;
  EXPECT_EQ(convert_all(conversion, rows).missing,
            (std::vector<std::int64_t>{2}));  // a second call does nothing
  conversion.force = true;
  EXPECT_NE(error_of([&] { convert_all(conversion, rows); }).find("no longer there"), std::string::npos);
  EXPECT_EQ(verify_dataset(conversion.output).problems, std::vector<std::string>{});
}

TEST_F(BlockTest, AFileInPlaceOfTheOutputIsASystemError) {
  const auto rows = write_samples(folder_, 8);
  Conversion conversion = make_conversion(folder_, 8);
  write_file_durably(conversion.output, "in the way");
  EXPECT_TRUE(error_of([&] { convert_all(conversion, rows); }).starts_with("5: cannot create directory"));
}

TEST_F(BlockTest, LeftoversOfAKilledRunGo) {
  const auto rows = write_samples(folder_, 8);
  const Conversion conversion = make_conversion(folder_, 8);
  fs::create_directories(conversion.output / "train");
  write_file_durably(conversion.output / "train" / ".shard-00000.h5.tmp-1-0", "half");
  convert_all(conversion, rows);
  EXPECT_FALSE(fs::exists(conversion.output / "train" / ".shard-00000.h5.tmp-1-0"));
}

}  // namespace
}  // namespace wflow::converters
