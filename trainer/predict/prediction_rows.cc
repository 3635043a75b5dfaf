// SPDX-License-Identifier: Apache-2.0
#include "trainer/predict/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/csv.h"
#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "trainer/config.h"
#include "trainer/data/roles.h"
#include "trainer/training/row_file.h"

namespace wflow::trainer {
namespace {

class DatasetRows final : public PredictionRows {
 public:
  DatasetRows(const std::filesystem::path& directory, const std::vector<std::string>& inputs,
              const std::vector<std::vector<std::string>>& targets, const std::string& split)
      : dataset_(open_dataset(directory)) {
    const DatasetInfo& info = dataset_.info;
    if (inputs.empty()) {
      for (std::size_t k = 0; k < info.fields.size(); ++k)
        if (info.fields[k].is_input) inputs_.push_back({std::nullopt, k});
    }
    for (const std::string& name : inputs) {
      const auto label = name == kField ? std::nullopt : label_called(name, info);
      const auto field = field_called(name, info);
      if (!label && !field) throw missing_input(directory, name);
      inputs_.push_back({label, field.value_or(0)});
    }
    for (const std::vector<std::string>& of_head : targets) targets_.push_back(found(of_head));
    const std::pair<const char*, const SampleSource*> splits[] = {{"train", dataset_.train.get()},
                                                                  {"validation", dataset_.validation.get()},
                                                                  {"test", dataset_.test.get()}};
    for (const auto& [name, source] : splits) {
      if (split != "all" && split != name) continue;
      for (std::size_t i = 0; i < source->size(); ++i) rows_.emplace_back(source, i);
    }
  }

  std::size_t size() const override { return rows_.size(); }
  std::int64_t id(std::size_t row) const override { return rows_[row].first->id(rows_[row].second); }

  std::vector<ModelArray> inputs(std::size_t first, std::size_t count) const override {
    std::vector<ModelArray> arrays;
    for (const Input& input : inputs_) {
      if (!input.label) {
        arrays.push_back(field(input.field, first, count));
        continue;
      }
      ModelArray& array = arrays.emplace_back();
      array.shape = {static_cast<std::int64_t>(count), 1};
      for (std::size_t n = 0; n < count; ++n) array.values.push_back(label(first + n, *input.label));
    }
    return arrays;
  }

  bool has_truths(std::size_t head) const override { return targets_[head].any(); }
  std::vector<double> truths(std::size_t head, std::size_t first, std::size_t count) const override {
    const Targets& targets = targets_[head];
    std::vector<double> truths;
    if (targets.fields.empty()) {
      for (std::size_t n = 0; n < count; ++n)
        for (const std::size_t target : targets.labels) truths.push_back(label(first + n, target));
      return truths;
    }
    std::vector<ModelArray> parts;
    for (const std::size_t target : targets.fields) {
      parts.push_back(field(target, first, count));
      const auto mask = mask_of(target, dataset_.info);
      if (mask) hide_padding(parts.back(), field(*mask, first, count), count);
    }
    for (std::size_t n = 0; n < count; ++n) {
      for (const ModelArray& part : parts) {
        const std::size_t values = part.values.size() / count;
        const auto begin = part.values.begin() + static_cast<std::ptrdiff_t>(n * values);
        truths.insert(truths.end(), begin, begin + static_cast<std::ptrdiff_t>(values));
      }
    }
    return truths;
  }
  std::vector<double> guesses(std::size_t head, bool classes) const override {
    const Targets& targets = targets_[head];
    std::vector<double> means;
    if (classes && !targets.labels.empty())
      return {usual_class_of_label(*dataset_.train, targets.labels.front())};
    if (classes) {
      const std::size_t field = targets.fields.front();
      return {usual_class_of_field(*dataset_.train, field, dataset_.info.fields[field].shape)};
    }
    for (const std::size_t label : targets.labels) means.push_back(dataset_.info.label_range[label].mean);
    for (const std::size_t target : targets.fields) {
      const DataField& field = dataset_.info.fields[target];
      for (std::size_t c = 0; c < static_cast<std::size_t>(field.shape.channels); ++c)
        means.push_back(field.range.at(std::min(c, field.range.size() - 1)).mean);
    }
    return means;
  }
  std::string data_hash() const override { return dataset_.info.hash; }

 private:
  double label(std::size_t row, std::size_t label) const {
    const auto& [source, i] = rows_[row];
    return source->targets(i)[label];
  }

  // Without leading axes of one cell: modules of Python's torch take images and series like this.
  ModelArray field(std::size_t number, std::size_t first, std::size_t count) const {
    const TensorShape& shape = dataset_.info.fields[number].shape;
    // Subtract the centres while reading, as in training: otherwise float32 would lose the variation.
    std::vector<ChannelScale> centres;
    for (const double centre : dataset_.info.fields[number].centres()) centres.push_back({1, 0, centre});
    ModelArray array;
    array.shape = {static_cast<std::int64_t>(count), shape.channels};
    for (const std::int64_t n : shape.extent)
      if (n > 1 || array.shape.size() > 2) array.shape.push_back(n);
    const auto values = static_cast<std::size_t>(shape.count());
    std::vector<float> read(count * values);
    // The rows of all splits, one split after the other.
    for (std::size_t begin = 0; begin < count;) {
      const SampleSource* source = rows_[first + begin].first;
      std::vector<std::size_t> indices;
      std::vector<std::span<float>> to;
      for (; begin < count && rows_[first + begin].first == source; ++begin) {
        indices.push_back(rows_[first + begin].second);
        to.push_back(std::span(read).subspan(begin * values, values));
      }
      source->read_scaled(number, indices, to, centres, nullptr);
    }
    array.values.assign(read.begin(), read.end());
    const auto cells = static_cast<std::size_t>(shape.voxels());
    for (std::size_t i = 0; i < read.size(); ++i)
      array.values[i] += centres[i / cells % centres.size()].centre;
    return array;
  }

  // Values are NaN where the mask is 0.
  static void hide_padding(ModelArray& array, const ModelArray& mask, std::size_t count) {
    const std::size_t values = array.values.size() / count;
    const std::size_t cells = mask.values.size() / count;
    for (std::size_t i = 0; i < array.values.size(); ++i)
      if (mask.values[i / values * cells + i % cells] < 0.5)
        array.values[i] = std::numeric_limits<double>::quiet_NaN();
  }

  struct Input {
    std::optional<std::size_t> label;
    std::size_t field = 0;  // if it is not a label
  };

  Error missing_input(const std::filesystem::path& directory, const std::string& name) const {
    std::vector<std::string> known = dataset_.info.labels;
    for (const DataField& field : dataset_.info.fields)
      if (!field.first_label) known.push_back(field.name);
    return Error(
        ExitCode::data,
        fmt::format("the data in {} do not have '{}', an input of the model; they have {}{}",
                    directory.string(), name, text::join(known, ", "), text::suggestion(name, known)));
  }

  // The labels or fields that a head learns; neither where the data do not have all of them.
  struct Targets {
    std::vector<std::size_t> labels;
    std::vector<std::size_t> fields;
    bool any() const { return !labels.empty() || !fields.empty(); }
  };

  Targets found(const std::vector<std::string>& names) const {
    Targets targets{labels_called(names), {}};
    if (targets.labels.empty()) targets.fields = fields_called(names);
    return targets;
  }

  std::vector<std::size_t> labels_called(const std::vector<std::string>& targets) const {
    std::vector<std::size_t> labels;
    for (const std::string& name : targets) {
      const auto label = label_called(name, dataset_.info);
      if (!label) return {};
      labels.push_back(*label);
    }
    return labels;
  }

  // One field after the other, by the names of their channels.
  std::vector<std::size_t> fields_called(const std::vector<std::string>& targets) const {
    std::vector<std::size_t> fields;
    for (std::size_t at = 0; at < targets.size();) {
      const std::size_t before = at;
      for (std::size_t k = 0; k < dataset_.info.fields.size() && at == before; ++k) {
        const DataField& field = dataset_.info.fields[k];
        for (const std::string& name : {field.name, std::string(kField)}) {
          if (field_called(name, dataset_.info) != k || at != before) continue;
          const std::vector<std::string> channels = channel_names(name, field);
          if (targets.size() - at < channels.size() ||
              !std::equal(channels.begin(), channels.end(),
                          targets.begin() + static_cast<std::ptrdiff_t>(at)))
            continue;
          fields.push_back(k);
          at += channels.size();
        }
      }
      if (at == before) return {};
    }
    return fields;
  }

  Dataset dataset_;
  std::vector<Input> inputs_;
  std::vector<Targets> targets_;  // one for each head
  std::vector<std::pair<const SampleSource*, std::size_t>> rows_;
};

class TableRows final : public PredictionRows {
 public:
  TableRows(const std::filesystem::path& file, const std::vector<std::string>& inputs,
            const std::vector<std::vector<std::string>>& columns_of_inputs) {
    csv::Reader reader(file);
    names_ = reader.header();
    const auto id = reader.column("id");
    std::vector<std::string> wanted;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::vector<std::string>& of_input = columns_of_inputs.at(i);
      if (of_input.empty()) wanted.push_back(inputs[i]);
      wanted.insert(wanted.end(), of_input.begin(), of_input.end());
      widths_.push_back(std::max<std::size_t>(1, of_input.size()));
    }
    if (wanted.empty()) {
      for (const std::string& name : names_)
        if (name != "id") wanted.push_back(name);
      widths_.assign(wanted.size(), 1);
    }
    std::vector<std::size_t> columns;
    for (const std::string& name : wanted) {
      const auto column = reader.column(name);
      if (!column)
        throw Error(
            ExitCode::data,
            fmt::format("{} has no column '{}', which is an input of the model; it has {}{}", file.string(),
                        name, text::join(names_, ", "), text::suggestion(name, names_)));
      columns.push_back(*column);
    }
    values_.resize(columns.size());
    std::vector<std::string> row;
    while (reader.next(row)) {
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const auto value = text::to_real(row[columns[i]]);
        if (!value) reader.fail(fmt::format("'{}' of column '{}' is no number", row[columns[i]], wanted[i]));
        values_[i].push_back(*value);
      }
      const auto number = id ? text::to_integer(row[*id]) : static_cast<std::int64_t>(ids_.size());
      if (!number) reader.fail(fmt::format("the id '{}' is no whole number", row[*id]));
      ids_.push_back(*number);
      if (id) row.erase(row.begin() + static_cast<std::ptrdiff_t>(*id));
      rows_.push_back(row);
    }
    if (id) names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(*id));
  }

  std::size_t size() const override { return ids_.size(); }
  std::int64_t id(std::size_t row) const override { return ids_[row]; }
  std::vector<ModelArray> inputs(std::size_t first, std::size_t count) const override {
    std::vector<ModelArray> arrays;
    std::size_t column = 0;
    for (const std::size_t width : widths_) {
      ModelArray& array = arrays.emplace_back();
      array.shape = {static_cast<std::int64_t>(count), static_cast<std::int64_t>(width)};
      for (std::size_t row = first; row < first + count; ++row)
        for (std::size_t k = 0; k < width; ++k) array.values.push_back(values_[column + k][row]);
      column += width;
    }
    return arrays;
  }
  std::vector<std::string> column_names() const override { return names_; }
  std::span<const std::string> columns(std::size_t row) const override { return rows_[row]; }

 private:
  std::vector<std::string> names_;
  std::vector<std::int64_t> ids_;
  std::vector<std::vector<double>> values_;  // one per column
  std::vector<std::size_t> widths_;          // columns of each input
  std::vector<std::vector<std::string>> rows_;
};

// Datasets of an HDF5 file, such as a simulation's output, with the names of the inputs: of one sample, or of
// several along a first axis.
class FileRows final : public PredictionRows {
 public:
  FileRows(const std::filesystem::path& file, const std::vector<std::string>& inputs,
           std::span<const std::vector<std::int64_t>> shapes)
      : reader_(file) {
    for (std::size_t i = 0; i < inputs.size(); ++i) add(file, inputs[i], shapes[i]);
    if (!reader_.ids().empty() && reader_.ids().size() != rows_)
      throw Error(ExitCode::data,
                  fmt::format("{} has {} ids for {} samples", file.string(), reader_.ids().size(), rows_));
  }

  std::size_t size() const override { return rows_; }
  std::int64_t id(std::size_t row) const override {
    return reader_.ids().empty() ? static_cast<std::int64_t>(row) : reader_.ids()[row];
  }
  std::vector<ModelArray> inputs(std::size_t first, std::size_t count) const override {
    std::vector<ModelArray> arrays;
    for (const ModelArray& whole : inputs_) {
      ModelArray& part = arrays.emplace_back(ModelArray{whole.shape, {}});
      part.shape.front() = static_cast<std::int64_t>(count);
      const std::size_t size = whole.values.size() / rows_;
      const auto begin = whole.values.begin() + static_cast<std::ptrdiff_t>(first * size);
      part.values.assign(begin, begin + static_cast<std::ptrdiff_t>(count * size));
    }
    return arrays;
  }

 private:
  void add(const std::filesystem::path& file, const std::string& name,
           const std::vector<std::int64_t>& shape) {
    if (!reader_.shape(name.c_str()))
      throw Error(ExitCode::data,
                  fmt::format("{} has no dataset '{}', which is an input of the model", file.string(), name));
    std::vector<std::int64_t> extent;
    ModelArray& array = inputs_.emplace_back();
    array.values = reader_.read_all(name.c_str(), extent);
    std::size_t size = 1;
    for (const std::int64_t n : shape) size *= static_cast<std::size_t>(n);
    const std::size_t rows = array.values.size() / std::max<std::size_t>(1, size);
    const bool fits = rows > 0 && array.values.size() == rows * size &&
                      (rows == 1 || extent.front() == static_cast<std::int64_t>(rows)) &&
                      (rows_ == 0 || rows == rows_);
    if (!fits)
      throw Error(ExitCode::data,
                  fmt::format("'{}' in {} is {}, and a sample of the model is {} (channels x cells)", name,
                              file.string(), extents_text(extent), extents_text(shape)));
    rows_ = rows;
    array.shape = {static_cast<std::int64_t>(rows)};
    const bool is_field = std::any_of(shape.begin() + 1, shape.end(), [](std::int64_t n) { return n != 1; });
    array.shape.insert(array.shape.end(), shape.begin(), is_field ? shape.end() : shape.begin() + 1);
  }

  RowFileReader reader_;
  std::size_t rows_ = 0;
  std::vector<ModelArray> inputs_;
};

class DrawnRows final : public PredictionRows {
 public:
  DrawnRows(std::unique_ptr<PredictionRows> rows, std::size_t count, RandomNumbers random)
      : rows_(std::move(rows)), count_(rows_ ? rows_->size() : count), random_(std::move(random)) {}

  std::size_t size() const override { return count_; }
  std::int64_t id(std::size_t row) const override {
    return rows_ ? rows_->id(row) : static_cast<std::int64_t>(row);
  }
  std::vector<ModelArray> inputs(std::size_t first, std::size_t count) const override {
    std::vector<ModelArray> others;
    if (rows_) others = rows_->inputs(first, count);
    std::size_t other = 0;
    std::vector<ModelArray> all;
    for (std::size_t i = 0; i < random_.sizes.size(); ++i)
      all.push_back(random_.sizes[i] == 0 ? std::move(others.at(other++)) : drawn(i, first, count));
    return all;
  }
  bool has_truths(std::size_t head) const override { return rows_ && rows_->has_truths(head); }
  std::vector<double> truths(std::size_t head, std::size_t first, std::size_t count) const override {
    return rows_ ? rows_->truths(head, first, count) : std::vector<double>();
  }
  std::vector<double> guesses(std::size_t head, bool classes) const override {
    return rows_ ? rows_->guesses(head, classes) : std::vector<double>();
  }
  std::string data_hash() const override { return rows_ ? rows_->data_hash() : std::string(); }
  std::vector<std::string> column_names() const override {
    return rows_ ? rows_->column_names() : std::vector<std::string>();
  }
  std::span<const std::string> columns(std::size_t row) const override {
    return rows_ ? rows_->columns(row) : std::span<const std::string>();
  }

 private:
  ModelArray drawn(std::size_t input, std::size_t first, std::size_t count) const {
    const std::size_t size = random_.sizes[input];
    ModelArray array{{static_cast<std::int64_t>(count), static_cast<std::int64_t>(size)}, {}};
    for (std::size_t row = first; row < first + count; ++row) {
      const std::uint64_t key = hash64(hash64(random_.seed, input), row);
      for (std::size_t k = 0; k < size; ++k) array.values.push_back(normal_real(key, k));
    }
    return array;
  }

  std::unique_ptr<PredictionRows> rows_;
  std::size_t count_;
  RandomNumbers random_;
};

}  // namespace

std::unique_ptr<PredictionRows> rows_of_file(const std::filesystem::path& file,
                                             const std::vector<std::string>& inputs,
                                             std::span<const std::vector<std::int64_t>> shapes) {
  return std::make_unique<FileRows>(file, inputs, shapes);
}

std::unique_ptr<PredictionRows> rows_with_random_inputs(std::unique_ptr<PredictionRows> rows,
                                                        std::size_t count, RandomNumbers random) {
  return std::make_unique<DrawnRows>(std::move(rows), count, std::move(random));
}

std::vector<double> PredictionRows::truths(std::size_t, std::size_t, std::size_t) const {
  return {};
}

std::unique_ptr<PredictionRows> rows_of_dataset(const std::filesystem::path& directory,
                                                const std::vector<std::string>& inputs,
                                                const std::vector<std::vector<std::string>>& targets,
                                                const std::string& split) {
  return std::make_unique<DatasetRows>(directory, inputs, targets, split);
}

std::unique_ptr<PredictionRows> rows_of_table(const std::filesystem::path& file,
                                              const std::vector<std::string>& inputs,
                                              const std::vector<std::vector<std::string>>& columns) {
  return std::make_unique<TableRows>(file, inputs, columns);
}

}  // namespace wflow::trainer
