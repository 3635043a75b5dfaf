// SPDX-License-Identifier: Apache-2.0
// TFRecord: SPLIT/shard-NNNNN.tfrecord with one tf.train.Example for each row, metadata.json.
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/protobuf.h"
#include "converters/exchange/exchange.h"
#include "converters/exchange/rows.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostListed =
    64;  // longer lists of whole numbers are stored as bytes, which are smaller and faster

// The list of tf.train.Feature that has a field's values, by its field number.
enum class ListKind { bytes = 1, floats = 2, integers = 3 };

std::string_view list_name(ListKind kind) {
  return kind == ListKind::bytes ? "bytes_list" : kind == ListKind::floats ? "float_list" : "int64_list";
}

ListKind list_kind(const FieldInfo& field, bool exact) {
  const DType type = parse_dtype(field.dtype).value_or(DType::float32);
  if (type == DType::float32 || (type == DType::float64 && !exact)) return ListKind::floats;
  if (type == DType::float64 || type == DType::uint64 || field.values() > kMostListed) return ListKind::bytes;
  return ListKind::integers;
}

// All values of a list are one packed field; so is the only byte string.
ProtobufMessage list_message(ListKind kind, std::string_view values) {
  ProtobufMessage list;
  list.text(1, values);
  ProtobufMessage feature;
  feature.message(static_cast<int>(kind), list);
  return feature;
}

void put_feature(ProtobufMessage& features, std::string_view name, const ProtobufMessage& feature) {
  ProtobufMessage entry;  // an entry of the map
  entry.text(1, name);
  entry.message(2, feature);
  features.message(1, entry);
}

template <typename Value>
ProtobufMessage integer_list(const std::vector<Value>& values) {
  std::string packed;
  for (const Value value : values)
    put_varint(packed, static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  return list_message(ListKind::integers, packed);
}

ProtobufMessage field_message(const FieldInfo& field, ListKind kind, const std::vector<std::uint8_t>& bytes) {
  const DType type = parse_dtype(field.dtype).value_or(DType::float32);
  const std::string_view raw(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (kind == ListKind::bytes || type == DType::float32) return list_message(kind, raw);
  return with_type(type, [&](auto value) {
    std::vector<std::int64_t> integers;
    std::vector<float> floats;
    for (std::size_t at = 0; at < bytes.size(); at += sizeof value) {
      std::memcpy(&value, bytes.data() + at, sizeof value);
      if (kind == ListKind::floats)
        floats.push_back(static_cast<float>(value));
      else
        integers.push_back(static_cast<std::int64_t>(value));
    }
    if (kind == ListKind::integers) return integer_list(integers);
    return list_message(kind, {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)});
  });
}

class TfrecordExporter final : public Exporter {
 public:
  TfrecordExporter(const Manifest& manifest, fs::path folder, bool exact)
      : manifest_(manifest), folder_(std::move(folder)) {
    for (const FieldInfo& field : manifest.fields) kinds_.push_back(list_kind(field, exact));
  }

  void open_split(std::string_view split, std::uint64_t) override {
    split_ = folder_ / split;
    make_directories(split_);
  }
  void open_shard(std::size_t number) override {
    file_.emplace(split_ / fmt::format("shard-{:05}.tfrecord", number));
  }
  // Encodes into the record, replacing the values.
  void prepare(DataRow& row) const override {
    ProtobufMessage features;
    put_feature(features, "id", integer_list(std::vector{row.id}));
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      const FieldInfo& field = manifest_.fields[k];
      put_feature(features, field.name, field_message(field, kinds_[k], row.fields[k]));
      if (!field.shape.empty()) put_feature(features, field.name + "/shape", integer_list(field.shape));
      row.fields[k] = {};
    }
    ProtobufMessage example;
    example.message(1, features);
    const std::string record = tfrecord_of(example.bytes());
    row.fields.assign(1, {record.begin(), record.end()});
  }
  void add(const DataRow& row) override { file_->write(row.fields.front()); }
  void close_shard() override { file_->close(); }

  void finish() override {
    auto json = export_metadata(manifest_);
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      auto& field = json.at("fields").at(k);
      field["feature"] = list_name(kinds_[k]);
      if (rounded(k)) field["feature_dtype"] = "float32";
    }
    OutputFile file(folder_ / "metadata.json");
    file.write(json.dump(2) + "\n");
    file.close();
  }
  std::string note() const override {
    std::string note;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      if (rounded(k))
        note += fmt::format("{}: float64, rounded to the float32 of a float_list; --exact writes bytes\n",
                            manifest_.fields[k].name);
    }
    return note;
  }

 private:
  bool rounded(std::size_t k) const {
    return kinds_[k] == ListKind::floats && manifest_.fields[k].dtype == "float64";
  }

  const Manifest& manifest_;
  fs::path folder_;
  fs::path split_;
  std::vector<ListKind> kinds_;  // by field
  std::optional<OutputFile> file_;
};

}  // namespace

std::unique_ptr<Exporter> make_tfrecord_exporter(const Manifest& manifest, fs::path folder, bool exact) {
  return std::make_unique<TfrecordExporter>(manifest, std::move(folder), exact);
}

}  // namespace wflow::converters
