// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shard_writer.h"

#include <sys/resource.h>

#include <csignal>

#include "converters/convert/test_support.h"
#include "converters/shards/encode.h"
#include "converters/shards/shard_file.h"

namespace wflow::converters {
namespace {

constexpr std::size_t kRows = 5000;  // HDF5's tree of chunks has many nodes, which are between the chunks

FieldForm form_of(const std::string& name, std::vector<std::size_t> shape, bool compressed) {
  FieldForm form;
  form.name = name;
  form.dtype = DType::uint16;
  form.shape = std::move(shape);
  form.layout = std::string("CDHW").substr(4 - form.shape.size());
  form.compressed = compressed;
  return form;
}

class ShardWriterTest : public FolderTest {
 protected:
  // A field with a chunk for each sample, of different lengths, and one with packed samples.
  void write(const fs::path& path, bool ask_places, std::size_t rows = kRows) const {
    const std::vector<FieldForm> fields = {form_of("x", {64, 48}, true), form_of("y", {8}, true)};
    ShardWriter writer(path, {.fields = fields,
                              .level = 1,
                              .split = "train",
                              .block = 0,
                              .most_samples = rows + 3,
                              .ask_places = ask_places});
    Encoder encoder(filters_of(fields[0]), Coder::runs, 1);
    std::vector<std::uint8_t> values(fields[0].values() * 2);
    for (std::size_t k = 0; k < rows; ++k) {
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = i < k % values.size() ? static_cast<std::uint8_t>(hash64(k, i)) : 0;
      std::vector<EncodedField> row(2);
      row[0].chunks.push_back(encoder.encode(values, 2));
      row[1].chunks.resize(1);
      row[1].chunks[0].bytes.assign(fields[1].values() * 2, static_cast<std::uint8_t>(k));
      writer.add(static_cast<std::int64_t>(k), row);
    }
    writer.close({});
    writer.publish();
  }
};

TEST_F(ShardWriterTest, ThePlacesOfChunksAreThoseOfHdf5) {
  write(folder_ / "seen.h5", false);
  write(folder_ / "asked.h5", true);
  EXPECT_TRUE(read_file(folder_ / "seen.h5") == read_file(folder_ / "asked.h5"));
  const ShardFile shard(folder_ / "seen.h5", {"x", "y"}, true);
  ReadScratch scratch;
  for (std::size_t field = 0; field < 2; ++field) {
    EXPECT_TRUE(shard.layout().fields[field].has_hashes);
    EXPECT_EQ(shard.damaged_chunks(field, scratch), std::vector<std::size_t>{});
  }
  // Chunks do not follow each other everywhere: to take the end of the file for their places would be wrong.
  std::size_t gaps = 0;
  const auto& chunks = shard.layout().fields[0].chunks;
  for (std::size_t k = 1; k < chunks.size(); ++k)
    gaps += chunks[k].offset != chunks[k - 1].offset + chunks[k - 1].bytes ? 1U : 0U;
  EXPECT_GT(gaps, 10U);
}

TEST_F(ShardWriterTest, WhatTheSystemRefusesIsASystemError) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{std::size_t{256} << 10, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of([&] { write(folder_ / "x.h5", false); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_TRUE(error.starts_with("5: cannot write " + (folder_ / "x.h5").string())) << error;
  EXPECT_NE(error.find("File too large"), std::string::npos) << error;
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_EQ(error_of([&] { write(folder_ / "x.h5", false, 3); }), "");
}

}  // namespace
}  // namespace wflow::converters
