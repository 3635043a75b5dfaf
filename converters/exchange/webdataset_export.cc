// SPDX-License-Identifier: Apache-2.0
// WebDataset: SPLIT-NNNNNN.tar with ID.FIELD.npy and ID.json of each sample one behind the other,
// metadata.json.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "converters/exchange/exchange.h"
#include "converters/exchange/rows.h"

namespace wflow::converters {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::size_t kTarBlock = 512;

// POSIX.1-1988 (ustar). The same members give the same bytes: no times, no owner.
std::string tar_header(const std::string& name, std::uint64_t bytes) {
  std::array<char, kTarBlock> header{};
  const auto put = [&](std::size_t at, std::string_view text) {
    std::memcpy(&header[at], text.data(), text.size());
  };
  constexpr std::size_t kName = 100;
  if (name.size() > kName)
    throw Error(ExitCode::data, fmt::format("the name {} is too long for a tar file (100 letters)", name));
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", bytes));
  put(136, "00000000000");
  put(148, "        ");  // the checksum field counts as blanks
  put(156, "0");
  put(257, std::string_view("ustar\0"
                            "00",
                            8));
  const unsigned sum = std::accumulate(header.begin(), header.end(), 0U, [](unsigned total, char c) {
    return total + static_cast<unsigned char>(c);
  });
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  header[155] = ' ';
  return {header.data(), header.size()};
}

// Numbers and short lists of them, by name.
Json labels_of(const DataRow& row, const Manifest& manifest) {
  constexpr std::size_t kMostLabels = 64;
  Json labels = {{"id", row.id}};
  if (row.piece > 0) labels["piece"] = row.piece;
  for (std::size_t k = 0; k < manifest.fields.size(); ++k) {
    const FieldInfo& field = manifest.fields[k];
    if (field.shape.size() > 1 || field.values() > kMostLabels) continue;
    std::vector<Json> values;
    with_type(parse_dtype(field.dtype).value_or(DType::float32), [&](auto value) {
      for (std::size_t at = 0; at < row.fields[k].size(); at += sizeof value) {
        std::memcpy(&value, row.fields[k].data() + at, sizeof value);
        values.emplace_back(value);
      }
    });
    if (field.shape.empty()) {
      labels[field.name] = values.front();
    } else if (field.channels.size() == values.size()) {
      for (std::size_t c = 0; c < values.size(); ++c) labels[field.name][field.channels[c]] = values[c];
    } else {
      labels[field.name] = values;
    }
  }
  return labels;
}

class WebdatasetExporter final : public Exporter {
 public:
  WebdatasetExporter(const Manifest& manifest, fs::path folder)
      : manifest_(manifest), folder_(std::move(folder)) {}

  void open_split(std::string_view split, std::uint64_t) override { split_ = split; }
  void open_shard(std::size_t number) override {
    file_.emplace(folder_ / fmt::format("{}-{:06}.tar", split_, number));
  }
  void add(const DataRow& row) override {
    std::string key = fmt::format("{:09}", row.id);
    if (row.piece > 0) key += fmt::format("-{:05}", row.piece);
    for (std::size_t k = 0; k < manifest_.fields.size(); ++k) {
      const FieldInfo& field = manifest_.fields[k];
      const std::string start = npy_header(field.dtype, field.shape);
      member(fmt::format("{}.{}.npy", key, field.name), start, row.fields[k]);
    }
    member(key + ".json", labels_of(row, manifest_).dump(), {});
  }
  void close_shard() override {
    file_->write(std::string(2 * kTarBlock, '\0'));
    file_->close();
  }
  void finish() override {
    OutputFile file(folder_ / "metadata.json");
    file.write(export_metadata(manifest_).dump(2) + "\n");
    file.close();
  }

 private:
  void member(const std::string& name, std::string_view start, std::span<const std::uint8_t> rest) {
    const std::size_t bytes = start.size() + rest.size();
    file_->write(tar_header(name, bytes));
    file_->write(start);
    file_->write(rest);
    file_->write(std::string((kTarBlock - bytes % kTarBlock) % kTarBlock, '\0'));
  }

  const Manifest& manifest_;
  fs::path folder_;
  std::string split_;
  std::optional<OutputFile> file_;
};

}  // namespace

std::unique_ptr<Exporter> make_webdataset_exporter(const Manifest& manifest, fs::path folder) {
  return std::make_unique<WebdatasetExporter>(manifest, std::move(folder));
}

}  // namespace wflow::converters
