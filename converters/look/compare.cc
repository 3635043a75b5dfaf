// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "converters/look/look.h"
#include "converters/split.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

// A data set with its samples by id; sub-cubes, which share an id, are in their order.
struct Side {
  explicit Side(const fs::path& path) : name(path.string()), manifest(read_manifest(path)) {
    for (std::size_t k = 0; k < kSplitNames.size(); ++k) {
      readers.push_back(SplitReader::open(path, manifest, kSplitNames[k]));
      std::map<std::int64_t, std::size_t> pieces;
      for (std::size_t i = 0; i < readers[k].size(); ++i) {
        const std::int64_t id = readers[k].id(i);
        places[{id, pieces[id]++}] = {k, i};
      }
    }
  }
  std::vector<float> read(std::size_t field, std::pair<std::size_t, std::size_t> place) const {
    std::vector<float> values(manifest.fields[field].values());
    readers[place.first].read_field(field, place.second, values);
    return values;
  }

  std::string name;
  Manifest manifest;
  std::vector<SplitReader> readers;
  std::map<std::pair<std::int64_t, std::size_t>, std::pair<std::size_t, std::size_t>>
      places;  // split and number
};

// The greatest difference; values that are not finite must be equal.
double difference(std::span<const float> a, std::span<const float> b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double here = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    most = std::isnan(here) ? INFINITY : std::max(most, here);
  }
  return most;
}

class Differences {
 public:
  void add(const std::string& kind, const std::string& sentence) {
    if (++counts_[kind] <= kMostShown) text_ += sentence + "\n";
  }
  Comparison take() {
    for (const auto& [kind, count] : counts_) {
      if (count > kMostShown) text_ += fmt::format("and {} more: {}\n", count - kMostShown, kind);
    }
    return {text_, counts_.empty()};
  }

 private:
  std::map<std::string, std::size_t> counts_;
  std::string text_;
};

// The numbers of fields that are alike in both.
std::vector<std::pair<std::size_t, std::size_t>> common_fields(const Side& a, const Side& b,
                                                               Differences& found) {
  std::vector<std::pair<std::size_t, std::size_t>> common;
  const auto find = [](const Side& side, const std::string& name) {
    const auto& fields = side.manifest.fields;
    return static_cast<std::size_t>(
        std::find_if(fields.begin(), fields.end(), [&](const auto& f) { return f.name == name; }) -
        fields.begin());
  };
  for (std::size_t k = 0; k < a.manifest.fields.size(); ++k) {
    const FieldInfo& ours = a.manifest.fields[k];
    const std::size_t other = find(b, ours.name);
    if (other == b.manifest.fields.size()) {
      found.add("fields", fmt::format("{} has no field {}", b.name, ours.name));
      continue;
    }
    const FieldInfo& theirs = b.manifest.fields[other];
    if (ours.shape == theirs.shape && ours.layout == theirs.layout && ours.dtype == theirs.dtype &&
        ours.role == theirs.role) {
      common.emplace_back(k, other);
    } else {
      found.add("fields",
                fmt::format("{} is ({}) {} in {}, ({}) {} in {}", ours.name, fmt::join(ours.shape, ", "),
                            ours.dtype, a.name, fmt::join(theirs.shape, ", "), theirs.dtype, b.name));
    }
  }
  for (const FieldInfo& field : b.manifest.fields) {
    if (find(a, field.name) == a.manifest.fields.size())
      found.add("fields", fmt::format("{} has no field {}", a.name, field.name));
  }
  return common;
}

}  // namespace

Comparison compare_data(const fs::path& first, const fs::path& second, double tolerance) {
  const Side a(first);
  const Side b(second);
  Differences found;
  const auto fields = common_fields(a, b, found);
  for (const auto& [key, place] : a.places) {
    const auto other = b.places.find(key);
    if (other == b.places.end()) {
      found.add("samples", fmt::format("{} has no sample {}", b.name, key.first));
      continue;
    }
    if (place.first != other->second.first)
      found.add("splits", fmt::format("sample {} is {} in {}, {} in {}", key.first, kSplitNames[place.first],
                                      a.name, kSplitNames[other->second.first], b.name));
    for (const auto& [ours, theirs] : fields) {
      const double most = difference(a.read(ours, place), b.read(theirs, other->second));
      if (most > tolerance)
        found.add("values", fmt::format("sample {}: {} differs by up to {:.6g}", key.first,
                                        a.manifest.fields[ours].name, most));
    }
  }
  for (const auto& [key, place] : b.places) {
    if (!a.places.contains(key)) found.add("samples", fmt::format("{} has no sample {}", a.name, key.first));
  }
  Comparison result = found.take();
  if (result.same)
    result.text = fmt::format("the same {} samples of {} fields\n", a.places.size(), fields.size());
  return result;
}

}  // namespace wflow::converters
