// SPDX-License-Identifier: Apache-2.0
// NPY: SPLIT/FIELD.npy with all rows, SPLIT/id.npy, metadata.json.
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "converters/exchange/exchange.h"
#include "converters/exchange/rows.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

class NpyExporter final : public Exporter {
 public:
  NpyExporter(const Manifest& manifest, fs::path folder) : manifest_(manifest), folder_(std::move(folder)) {}

  void open_split(std::string_view split, std::uint64_t rows) override {
    const fs::path folder = folder_ / split;
    make_directories(folder);
    files_.clear();
    for (const FieldInfo& field : manifest_.fields) {
      std::vector<std::size_t> shape = {rows};
      shape.insert(shape.end(), field.shape.begin(), field.shape.end());
      files_.emplace_back(folder / (field.name + ".npy")).write(npy_header(field.dtype, shape));
    }
    files_.emplace_back(folder / "id.npy").write(npy_header("int64", {rows}));
  }
  void add(const DataRow& row) override {
    for (std::size_t k = 0; k < row.fields.size(); ++k) files_[k].write(row.fields[k]);
    files_.back().write(std::string_view(reinterpret_cast<const char*>(&row.id), sizeof row.id));
  }
  void close_split() override {
    for (OutputFile& file : files_) file.close();
    files_.clear();
  }
  void finish() override {
    OutputFile file(folder_ / "metadata.json");
    file.write(export_metadata(manifest_).dump(2) + "\n");
    file.close();
  }

 private:
  const Manifest& manifest_;
  fs::path folder_;
  std::vector<OutputFile> files_;  // for the split: one for each field, and the ids
};

}  // namespace

std::unique_ptr<Exporter> make_npy_exporter(const Manifest& manifest, fs::path folder) {
  return std::make_unique<NpyExporter>(manifest, std::move(folder));
}

}  // namespace wflow::converters
