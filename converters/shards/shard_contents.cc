// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "base/file.h"
#include "converters/shards/codec.h"
#include "converters/shards/shard_file.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

class ByteWriter {
 public:
  template <typename Value>
  void value(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename List>
  void list(const List& list) {
    value(list.size());
    for (const auto& entry : list) value(entry);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  template <typename Value>
  void value(Value& value) {
    WFLOW_CHECK(bytes_.size() >= sizeof value);
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
  }
  template <typename List>
  void list(List& list) {
    std::size_t size = 0;
    value(size);
    WFLOW_CHECK(size <= bytes_.size() / sizeof(typename List::value_type));
    list.resize(size);
    for (auto& entry : list) value(entry);
  }

 private:
  std::string_view bytes_;
};

// Lists the members of a field's layout, for both directions.
template <typename Coder, typename Layout>
void code_field(Coder& coder, Layout& layout) {
  coder.list(layout.name);
  coder.value(layout.access);
  coder.list(layout.shape);
  coder.value(layout.dtype);
  coder.value(layout.held);
  coder.value(layout.sample_bytes);
  coder.value(layout.rows_per_chunk);
  coder.list(layout.chunk);
  coder.value(layout.chunks_per_sample);
  coder.value(layout.filters);
  coder.value(layout.has_hashes);
  coder.value(layout.index_stale);
  coder.value(layout.index_damaged);
  coder.list(layout.chunks);
  coder.value(layout.ragged.axis);
  coder.value(layout.ragged.steps_per_chunk);
  coder.list(layout.ragged.offsets);
  coder.value(layout.ragged.pad_value);
  coder.value(layout.ragged.mask);
}

// HDF5 reads them without checking their checksums.
void check_chunks(const fs::path& path, const FieldLayout& field, const std::vector<std::int64_t>& ids) {
  if (!field.has_hashes) return;
  const FileDescriptor file = open_file(path, O_RDONLY);
  std::vector<std::uint8_t> stored;
  for (std::size_t k = 0; k < field.chunks.size(); ++k) {
    const ChunkPlace& place = field.chunks[k];
    stored.resize(place.bytes);
    const std::size_t got = read_at(file.get(), place.offset, stored.data(), stored.size(), path);
    if (got == stored.size() && chunk_hash(stored) == place.hash) continue;
    const std::size_t first = k / field.chunks_per_sample * field.rows_per_chunk;
    const std::size_t last = std::min(first + field.rows_per_chunk, ids.size()) - 1;
    throw Error(
        ExitCode::data,
        fmt::format("{} of samples {} to {} of {} is damaged; `wflow-convert verify` checks the whole "
                    "data set",
                    field.name, ids[first], ids[last], path.string()));
  }
}

// The targets of a shard, one sample's behind the other's.
std::vector<double> read_targets(const fs::path& path, const ShardLayout& layout, const Manifest& manifest) {
  const std::size_t rows = layout.ids.size();
  std::vector<double> all(rows * manifest.labels.size());
  std::size_t at = 0;
  for (std::size_t k = 0; k < manifest.fields.size() && !manifest.labels.empty(); ++k) {
    if (manifest.fields[k].role != FieldRole::target) continue;
    if (layout.fields[k].shape != manifest.fields[k].shape) return {};  // SplitReader refuses the shard
    const std::size_t width = manifest.fields[k].values();
    check_chunks(path, layout.fields[k], layout.ids);
    const std::vector<double> values = read_small_field(path, layout.fields[k], rows);
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t j = 0; j < width; ++j)
        all[row * manifest.labels.size() + at + j] = values[row * width + j];
    }
    at += width;
  }
  return all;
}

}  // namespace

ShardContents read_shard_contents(const fs::path& path, const Manifest& manifest) {
  std::vector<std::string> names;
  for (const FieldInfo& field : manifest.fields) names.push_back(field.name);
  ShardContents contents{read_shard_layout(path, names), {}};
  pad_to_longest(contents.layout, manifest);
  contents.targets = read_targets(path, contents.layout, manifest);
  return contents;
}

std::string encode_contents(const ShardContents& contents) {
  ByteWriter writer;
  writer.list(contents.layout.ids);
  writer.value(contents.layout.fields.size());
  for (const FieldLayout& field : contents.layout.fields) code_field(writer, field);
  writer.list(contents.targets);
  return writer.take();
}

ShardContents decode_contents(std::string_view bytes) {
  ByteReader reader(bytes);
  ShardContents contents;
  reader.list(contents.layout.ids);
  std::size_t fields = 0;
  reader.value(fields);
  for (std::size_t k = 0; k < fields; ++k) code_field(reader, contents.layout.fields.emplace_back());
  reader.list(contents.targets);
  return contents;
}

}  // namespace wflow::converters
