// SPDX-License-Identifier: Apache-2.0
// TorchScript files without libtorch: a zip file with the module's source, a pickle of its members, and its
// arrays. The layout is that of PyTorch 1.13 (torch/csrc/jit/serialization: export_module.cpp, pickler.cpp;
// caffe2/serialize/inline_container.h).
#include "trainer/model/model_export.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <string_view>

#include "base/checksum.h"
#include "base/file.h"
#include "base/program_file.h"
#include "base/protobuf.h"
#include "base/text.h"
#include "trainer/model/layer_constants.h"

namespace wflow::trainer {
namespace {

// ---- zip

// Entries without compression, whose bytes begin at multiples of 64, as PyTorch writes them: it may map them.
class ZipWriter {
 public:
  ZipWriter(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}

  void add(const std::string& name, std::string_view bytes) {
    Entry entry{name, crc32(bytes), bytes.size(), at_};
    std::string header;
    put_little_endian<std::uint32_t>(header, 0x04034b50);
    put_common(header, entry);
    std::string extra = field64(entry.bytes > kMost32 ? Numbers{entry.bytes, entry.bytes} : Numbers());
    const std::uint64_t begin = at_ + header.size() + 4 + name.size() + extra.size() + 4;
    const std::string padding((kAlign - begin % kAlign) % kAlign, '\0');
    extra += "FB";
    put_little_endian<std::uint16_t>(extra, static_cast<std::uint16_t>(padding.size()));
    extra += padding;
    put_little_endian<std::uint16_t>(header, static_cast<std::uint16_t>(name.size()));
    put_little_endian<std::uint16_t>(header, static_cast<std::uint16_t>(extra.size()));
    write(header + name + extra);
    write(bytes);
    entries_.push_back(std::move(entry));
  }

  void finish() {
    const std::uint64_t begin = at_;
    for (const Entry& entry : entries_) write(directory_entry(entry));
    const std::uint64_t bytes = at_ - begin;
    const std::uint64_t end64 = at_;
    std::string end;
    put_little_endian<std::uint32_t>(end, 0x06064b50);
    put_little_endian<std::uint64_t>(end, 44);
    put_little_endian<std::uint16_t>(end, kVersion64);
    put_little_endian<std::uint16_t>(end, kVersion64);
    put_little_endian<std::uint64_t>(end, 0);  // numbers of disks
    put_little_endian<std::uint64_t>(end, entries_.size());
    put_little_endian<std::uint64_t>(end, entries_.size());
    put_little_endian<std::uint64_t>(end, bytes);
    put_little_endian<std::uint64_t>(end, begin);
    put_little_endian<std::uint32_t>(end, 0x07064b50);
    put_little_endian<std::uint32_t>(end, 0);
    put_little_endian<std::uint64_t>(end, end64);
    put_little_endian<std::uint32_t>(end, 1);
    put_little_endian<std::uint32_t>(end, 0x06054b50);
    put_little_endian<std::uint32_t>(end, 0);
    const auto count = static_cast<std::uint16_t>(std::min<std::size_t>(entries_.size(), 0xffff));
    put_little_endian<std::uint16_t>(end, count);
    put_little_endian<std::uint16_t>(end, count);
    put_little_endian<std::uint32_t>(end, limited(bytes));
    put_little_endian<std::uint32_t>(end, limited(begin));
    put_little_endian<std::uint16_t>(end, 0);
    write(end);
  }

 private:
  struct Entry {
    std::string name;
    std::uint32_t crc = 0;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;
  };

  using Numbers = std::vector<std::uint64_t>;
  static constexpr std::uint64_t kAlign = 64;
  static constexpr std::uint64_t kMost32 = 0xfffffffe;
  static constexpr std::uint16_t kVersion64 = 45;

  static std::uint32_t limited(std::uint64_t number) {
    return number > kMost32 ? 0xffffffff : static_cast<std::uint32_t>(number);
  }

  // The extra field for numbers that do not fit in 32 bits.
  static std::string field64(const Numbers& numbers) {
    std::string field;
    if (numbers.empty()) return field;
    put_little_endian<std::uint16_t>(field, 1);
    put_little_endian<std::uint16_t>(field,
                                     static_cast<std::uint16_t>(numbers.size() * sizeof(std::uint64_t)));
    for (const std::uint64_t number : numbers) put_little_endian(field, number);
    return field;
  }

  // From the version that a reader needs to the sizes.
  static void put_common(std::string& header, const Entry& entry) {
    put_little_endian<std::uint16_t>(header, entry.bytes > kMost32 ? kVersion64 : 20);
    put_little_endian<std::uint16_t>(header, 0x0800);  // names are UTF-8
    put_little_endian<std::uint16_t>(header, 0);       // no compression
    put_little_endian<std::uint16_t>(header, 0);
    put_little_endian<std::uint16_t>(header, 0x0021);  // 1980-01-01: the same network is the same file
    put_little_endian<std::uint32_t>(header, entry.crc);
    put_little_endian<std::uint32_t>(header, limited(entry.bytes));
    put_little_endian<std::uint32_t>(header, limited(entry.bytes));
  }

  static std::string directory_entry(const Entry& entry) {
    Numbers beyond;
    if (entry.bytes > kMost32) beyond = {entry.bytes, entry.bytes};
    if (entry.offset > kMost32) beyond.push_back(entry.offset);
    const std::string extra = field64(beyond);
    std::string header;
    put_little_endian<std::uint32_t>(header, 0x02014b50);
    put_little_endian<std::uint16_t>(header, kVersion64);
    put_common(header, entry);
    put_little_endian<std::uint16_t>(header, static_cast<std::uint16_t>(entry.name.size()));
    put_little_endian<std::uint16_t>(header, static_cast<std::uint16_t>(extra.size()));
    put_little_endian<std::uint16_t>(header, 0);  // comment
    put_little_endian<std::uint16_t>(header, 0);  // disk
    put_little_endian<std::uint16_t>(header, 0);
    put_little_endian<std::uint32_t>(header, 0);
    put_little_endian<std::uint32_t>(header, limited(entry.offset));
    return header + entry.name + extra;
  }

  void write(std::string_view bytes) {
    write_all(fd_, bytes, path_);
    at_ += bytes.size();
  }

  int fd_;
  std::filesystem::path path_;
  std::vector<Entry> entries_;
  std::uint64_t at_ = 0;
};

// ---- pickle, protocol 2

// Names of TorchScript's types, and of the functions that make lists of numbers.
template <class T>
struct TypeName {};
template <>
struct TypeName<bool> {
  static std::string text() { return "bool"; }
  static constexpr const char* kBuilder = "build_boollist";
};
template <>
struct TypeName<std::int64_t> {
  static std::string text() { return "int"; }
  static constexpr const char* kBuilder = "build_intlist";
};
template <>
struct TypeName<double> {
  static std::string text() { return "float"; }
  static constexpr const char* kBuilder = "build_doublelist";
};
template <>
struct TypeName<std::string> {
  static std::string text() { return "str"; }
};
template <class T>
struct TypeName<std::vector<T>> {
  static std::string text() { return "List[" + TypeName<T>::text() + "]"; }
};

class Pickle {
 public:
  Pickle() { bytes_ = "\x80\x02"; }

  void code(char one) { bytes_ += one; }

  void global(std::string_view module, std::string_view name) {
    bytes_ += fmt::format("c{}\n{}\n", module, name);
  }

  void add(const std::string& text) {
    bytes_ += 'X';
    put_little_endian<std::uint32_t>(bytes_, static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
  }

  void add(bool value) { bytes_ += value ? '\x88' : '\x89'; }

  void add(std::int64_t value) {
    if (value == static_cast<std::int32_t>(value)) {
      bytes_ += 'J';
      put_little_endian(bytes_, static_cast<std::uint32_t>(value));
    } else {
      bytes_ += "\x8a\x08";
      put_little_endian(bytes_, static_cast<std::uint64_t>(value));
    }
  }

  void add(double value) {
    bytes_ += 'G';
    std::string raw;
    put_little_endian(raw, std::bit_cast<std::uint64_t>(value));
    bytes_.append(raw.rbegin(), raw.rend());  // the only number in network order
  }

  // Lists of numbers have a builder each; the type of others is said.
  template <class T>
  void add(const std::vector<T>& values) {
    if constexpr (requires { TypeName<T>::kBuilder; }) {
      global("torch.jit._pickle", TypeName<T>::kBuilder);
      code('(');
      add_items(values);
      bytes_ += "tR";
    } else {
      global("torch.jit._pickle", "restore_type_tag");
      add_items(values);
      add(TypeName<std::vector<T>>::text());
      bytes_ += "\x86R";
    }
  }

  void add_tuple(const std::vector<std::int64_t>& values) {
    code('(');
    for (const std::int64_t value : values) add(value);
    code('t');
  }

  std::string finish() && { return std::move(bytes_) + '.'; }

 private:
  template <class T>
  void add_items(const std::vector<T>& values) {
    bytes_ += "](";
    for (const auto& value : values) add(static_cast<const T&>(value));
    code('e');
  }

  std::string bytes_;
};

// ---- the module

struct ModuleArray {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string_view bytes;
  bool wide = false;
  bool learns = false;
};

std::string_view bytes_of(std::span<const float> all, const FlatEntry& entry) {
  const std::span<const float> values =
      all.subspan(static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.count));
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

class ModuleFile {
 public:
  ModuleFile(const ModelGraph& graph, const FlatState& state, const ExportedUnits& units)
      : members_(members_of(graph, units)), source_(torchscript_source(graph, units)) {
    // The graph may be a part of the network that the state is of.
    for (const ParameterSpec& spec : graph.parameters()) add(state.parameters(), state.values(), spec, true);
    for (const ParameterSpec& spec : graph.buffers())
      add(state.buffers(), state.buffer_values(), spec, false);
    for (const Layer& layer : graph.layers) {
      for (const LayerConstant& constant : constants_of(layer))
        arrays_.push_back({member_of(constant.name), constant.shape, keep(constant.values), false, false});
    }
    for (const ModuleScale& scale : members_.scales) add(scale);
  }

  void write(ZipWriter& zip) const {
    zip.add("model/data.pkl", pickle());
    zip.add("model/code/__torch__.py", code());
    for (std::size_t i = 0; i < arrays_.size(); ++i)
      zip.add(fmt::format("model/data/{}", i), arrays_[i].bytes);
    zip.add("model/constants.pkl", "\x80\x02).");
    // The version of the operators in the source: gelu has an argument more since 10.
    zip.add("model/version", source_.find("gelu(") == std::string::npos ? "4\n" : "10\n");
    zip.finish();
  }

 private:
  void add(const FlatLayout& layout, std::span<const float> all, const ParameterSpec& spec, bool learns) {
    const FlatEntry& entry = *layout.find(spec.name);
    arrays_.push_back({member_of(spec.name), entry.spec.shape, bytes_of(all, entry), false, learns});
  }

  void add(const ModuleScale& scale) {
    const std::vector<float> narrow(scale.values.begin(), scale.values.end());
    arrays_.push_back(
        {scale.name, scale.shape, scale.wide ? keep(scale.values) : keep(narrow), scale.wide, false});
  }

  template <class T>
  std::string_view keep(const std::vector<T>& values) {
    std::string& bytes = kept_.emplace_back(values.size() * sizeof(T), '\0');
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  // The class as torch.jit reads it: its members with their types, then the methods.
  std::string code() const {
    std::vector<std::string> parameters, buffers;
    std::string members;
    for (const ModuleArray& array : arrays_) {
      (array.learns ? parameters : buffers).push_back(fmt::format("\"{}\", ", array.name));
      members += fmt::format("  {} : Tensor\n", array.name);
    }
    for (const auto& [name, value] : members_.attributes) {
      const std::string type =
          std::visit([](const auto& of) { return TypeName<std::decay_t<decltype(of)>>::text(); }, value);
      members += fmt::format("  {} : {}\n", name, type);
    }
    std::string methods;
    for (const std::string_view line : text::split(source_, '\n'))
      if (!line.empty()) methods += fmt::format("  {}\n", line);
    return fmt::format("class WflowModel(Module):\n  __parameters__ = [{}]\n  __buffers__ = [{}]\n{}{}",
                       text::join(parameters, ""), text::join(buffers, ""), members, methods);
  }

  std::string pickle() const {
    Pickle pickle;
    pickle.global("__torch__", "WflowModel");
    for (const char one : {')', '\x81', '}', '('}) pickle.code(one);  // an object and its members
    for (std::size_t i = 0; i < arrays_.size(); ++i) add_array(pickle, arrays_[i], i);
    for (const auto& [name, value] : members_.attributes) {
      pickle.add(name);
      std::visit([&](const auto& of) { pickle.add(of); }, value);
    }
    for (const char one : {'u', 'b'}) pickle.code(one);
    return std::move(pickle).finish();
  }

  // _rebuild_tensor_v2(storage, offset, sizes, strides, whether it learns, hooks)
  static void add_array(Pickle& pickle, const ModuleArray& array, std::size_t number) {
    std::vector<std::int64_t> strides(array.shape.size(), 1);
    for (std::size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * array.shape[i];
    pickle.add(array.name);
    pickle.global("torch._utils", "_rebuild_tensor_v2");
    pickle.code('(');
    pickle.code('(');
    pickle.add(std::string("storage"));
    pickle.global("torch", array.wide ? "DoubleStorage" : "FloatStorage");
    pickle.add(std::to_string(number));
    pickle.add(std::string("cpu"));
    pickle.add(static_cast<std::int64_t>(array.bytes.size() / (array.wide ? sizeof(double) : sizeof(float))));
    for (const char one : {'t', 'Q'}) pickle.code(one);
    pickle.add(std::int64_t{0});
    pickle.add_tuple(array.shape);
    pickle.add_tuple(strides);
    pickle.add(false);
    pickle.global("collections", "OrderedDict");
    for (const char one : {')', 'R', 't', 'R'}) pickle.code(one);
  }

  ModuleMembers members_;
  std::string source_;
  std::vector<ModuleArray> arrays_;
  std::deque<std::string> kept_;  // the bytes of arrays that the state does not have
};

// ---- its members

const char* units_of(const OutputUnits& output) {
  return output.keeps_transform() ? "transformed" : "physical";
}

class Describer {
 public:
  ModuleMembers members(const ModelGraph& graph, const ExportedUnits& units) && {
    describe_outputs(units.outputs);
    describe_metrics(units.metrics);
    describe_inputs(graph, units);
    add("wflow", std::string(kVersion));
    return std::move(members_);
  }

 private:
  template <class T>
  void add(const char* name, T value) {
    members_.attributes.emplace_back(name, std::move(value));
  }

  void add_scale(const std::string& name, const FieldScale& scale, bool wide,
                 const std::vector<std::int64_t>& shape) {
    members_.scales.push_back({name + "_mean", shape, scale.mean, wide});
    members_.scales.push_back({name + "_std", shape, scale.std, wide});
  }

  void describe_one(const OutputUnits& output) {
    add("loss", std::string(name_of(output.loss)));
    add("units", std::string(units_of(output)));
    if (!output.quantiles.empty()) add("quantiles", output.quantiles);
    add("target_grid", output.grid);
    add("target_has_channels", output.has_channels);
  }

  void describe_heads(const std::vector<OutputUnits>& outputs) {
    std::vector<std::string> names, losses, units;
    std::vector<std::vector<std::string>> targets;
    std::vector<std::vector<std::int64_t>> grids;
    std::vector<bool> has_channels;
    std::vector<std::vector<double>> quantiles;
    for (const OutputUnits& output : outputs) {
      names.push_back(output.name);
      losses.emplace_back(name_of(output.loss));
      units.emplace_back(units_of(output));
      targets.push_back(output.targets);
      grids.push_back(output.grid);
      has_channels.push_back(output.has_channels);
      quantiles.push_back(output.quantiles);
    }
    add("heads", names);
    add("head_losses", losses);
    add("head_units", units);
    add("head_targets", targets);
    add("head_grids", grids);
    add("head_has_channels", has_channels);
    add("head_quantiles", quantiles);
  }

  void describe_outputs(const std::vector<OutputUnits>& outputs) {
    std::vector<std::string> targets;
    for (std::size_t h = 0; h < outputs.size(); ++h) {
      const OutputUnits& output = outputs[h];
      std::vector<std::int64_t> shape{1, std::ssize(output.mean)};
      if (output.fields) shape.insert(shape.end(), {1, 1, 1});
      add_scale(h == 0 ? "y" : "y" + std::to_string(h), {output.mean, output.deviation},
                output.needs_double(), shape);
      targets.insert(targets.end(), output.targets.begin(), output.targets.end());
    }
    add("targets", targets);
    outputs.size() == 1 ? describe_one(outputs.front()) : describe_heads(outputs);
  }

  void describe_metrics(const std::vector<MetricConfig>& metrics) {
    if (metrics.empty()) return;
    std::vector<std::string> names, formulas;
    for (const MetricConfig& metric : metrics) {
      names.push_back(metric.name);
      formulas.push_back(metric.formula);
    }
    add("metric_names", names);
    add("metric_formulas", formulas);
  }

  void describe_inputs(const ModelGraph& graph, const ExportedUnits& units) {
    const Normalisation& normalisation = units.normalisation;
    std::vector<std::string> names;
    std::vector<std::vector<std::int64_t>> shapes;
    std::vector<std::vector<double>> ranges;
    std::size_t number = 0;
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      const TensorShape& shape = graph.inputs[i].shape;
      names.push_back(graph.inputs[i].name);
      const std::string name = names.back() == kField ? "x" : "in" + std::to_string(i);
      if (const auto scale = normalisation.of_field(names.back())) {
        // For one cell in float64, as torchscript_source() computes it.
        add_scale(name, *scale, shape.voxels() == 1 || scale->needs_double(),
                  {1, std::ssize(scale->mean), 1, 1, 1});
      } else {
        add_scale(name, {{normalisation.numbers_mean[number]}, {normalisation.numbers_std[number]}}, true,
                  {1, 1});
        ++number;
      }
      shapes.push_back({shape.channels, shape.extent[0], shape.extent[1], shape.extent[2]});
      std::vector<double>& range = ranges.emplace_back();
      for (std::size_t c = 0; i < units.ranges.size() && c < units.ranges[i].size(); ++c)
        range.insert(range.end(), {units.ranges[i][c].first, units.ranges[i][c].second});
    }
    std::vector<std::string> drawn = units.random_inputs;
    std::erase_if(drawn,
                  [&](const std::string& name) { return std::ranges::find(names, name) == names.end(); });
    add("inputs", names);
    add("random_inputs", drawn);
    add("columns", units.columns);
    add("shapes", shapes);
    add("ranges", ranges);
  }

  ModuleMembers members_;
};

}  // namespace

ModuleMembers members_of(const ModelGraph& graph, const ExportedUnits& units) {
  return Describer().members(graph, units);
}

void export_model(const ModelGraph& graph, const FlatState& state, const ExportedUnits& units,
                  const std::filesystem::path& path) {
  if (graph.is_module()) return export_module(graph, state, units, path);
  DurableFile file(path);
  {
    const FileDescriptor fd = open_file(file.temporary(), O_WRONLY | O_CREAT | O_TRUNC);
    ZipWriter zip(fd.get(), path);
    ModuleFile(graph, state, units).write(zip);
  }
  file.publish();
}

}  // namespace wflow::trainer
