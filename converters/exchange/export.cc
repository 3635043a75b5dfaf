// SPDX-License-Identifier: Apache-2.0
#include "converters/exchange/exchange.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/error.h"
#include "base/text.h"
#include "converters/exchange/rows.h"
#include "converters/shards/manifest.h"
#include "converters/split.h"

namespace wflow::converters {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

std::unique_ptr<Exporter> make_exporter(const ExportOptions& options, const Manifest& manifest,
                                        const fs::path& folder) {
  switch (options.format) {
    case ExportFormat::tfrecord:
      return make_tfrecord_exporter(manifest, folder, options.exact);
    case ExportFormat::webdataset:
      return make_webdataset_exporter(manifest, folder);
    case ExportFormat::npy:
      return make_npy_exporter(manifest, folder);
    case ExportFormat::zarr:
      break;
  }
  return make_zarr_exporter(manifest, folder);
}

void export_shard(const ExportOptions& options, const Manifest& manifest, const ShardEntry& entry,
                  Exporter& exporter) {
  const ShardFile shard = open_shard(options.data / entry.file, manifest, true);
  check_shard(shard, entry, manifest);
  for_each_row(
      shard, manifest, options.threads, [&](DataRow& row) { exporter.prepare(row); },
      [&](const DataRow& row) { exporter.add(row); });
}

}  // namespace

std::string export_data(const ExportOptions& options) {
  const Manifest manifest = read_manifest(options.data);
  NewFolder folder(options.out);
  const auto exporter = make_exporter(options, manifest, folder.path());
  std::uint64_t samples = 0;
  for (const std::string_view name : kSplitNames) {
    const SplitEntry& split = manifest.split(name);
    if (split.samples == 0) continue;
    exporter->open_split(name, split.samples);
    for (std::size_t k = 0; k < split.shards.size(); ++k) {
      exporter->open_shard(k);
      export_shard(options, manifest, split.shards[k], *exporter);
      exporter->close_shard();
    }
    exporter->close_split();
    samples += split.samples;
  }
  exporter->finish();
  folder.publish();
  return fmt::format("{} samples of {} fields are in {}\n{}", text::format_count(samples),
                     manifest.fields.size(), options.out.string(), exporter->note());
}

Json export_metadata(const Manifest& manifest) {
  Json json = Json::parse(take_checksum(manifest_text(manifest)).text);
  for (auto& [name, split] : json.at("splits").items()) split.erase("shards");
  json["exported_from"] = manifest.hash;
  return json;
}

std::string numpy_type(std::string_view dtype) {
  const DType type = parse_dtype(dtype).value_or(DType::float32);
  const std::size_t bytes = dtype_size(type);
  const char kind = is_floating(type) ? 'f' : dtype.starts_with('u') ? 'u' : 'i';
  return fmt::format("{}{}{}", bytes == 1 ? '|' : '<', kind, bytes);
}

std::string npy_header(std::string_view dtype, const std::vector<std::size_t>& shape) {
  constexpr std::size_t kAlign = 64;
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 numpy_type(dtype), fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  const std::size_t start = 10;  // magic, version, length
  const std::size_t total = (start + dict.size() + 1 + kAlign - 1) / kAlign * kAlign;
  dict.append(total - start - dict.size() - 1, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xFF);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

}  // namespace wflow::converters
