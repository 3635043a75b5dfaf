// SPDX-License-Identifier: Apache-2.0
// HDF5 by libhdf5: a dataset, members of a compound dataset, or an attribute; a slice is read as a hyperslab.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "converters/input/hdf5_handle.h"
#include "converters/readers/reader.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

herr_t refuse_link(const char*, const char*, const char* file, const char*, unsigned*, hid_t, void* refused) {
  static_cast<std::string*>(refused)->assign(file);
  return -1;
}

herr_t collect_dataset(hid_t group, const char* name, const H5L_info_t* link, void* names) {
  if (link->type == H5L_TYPE_EXTERNAL) return 0;
  const DatasetId dataset(H5Dopen2(group, name, H5P_DEFAULT));
  if (dataset) static_cast<std::vector<std::string>*>(names)->emplace_back(std::string("/") + name);
  return 0;
}

// A simulation's file could name any other file that the user can read.
[[noreturn]] void throw_external(const fs::path& path, const std::string& name, const std::string& file) {
  throw Error(
      ExitCode::data,
      fmt::format("{} of {} lies in another file, {}; 'external_files: true' in convert: reads such files",
                  name, path.string(), file));
}

// The file of external storage, or of a virtual dataset's source outside this file.
std::optional<std::string> other_file_of(hid_t dataset) {
  constexpr std::size_t kMostName = 4096;
  const PropertyId creation(H5Dget_create_plist(dataset));
  std::string file(kMostName, '\0');
  if (H5Pget_external_count(creation.get()) > 0) {
    H5Pget_external(creation.get(), 0, file.size() - 1, file.data(), nullptr, nullptr);
    return file.c_str();
  }
  std::size_t sources = 0;
  if (H5Pget_layout(creation.get()) != H5D_VIRTUAL || H5Pget_virtual_count(creation.get(), &sources) < 0)
    return std::nullopt;
  for (std::size_t k = 0; k < sources; ++k) {
    file.assign(kMostName, '\0');
    H5Pget_virtual_filename(creation.get(), k, file.data(), file.size());
    if (std::string_view(file.c_str()) != ".") return file.c_str();
  }
  return std::nullopt;
}

herr_t collect_path(hid_t, const char* name, const H5L_info_t* link, void* paths) {
  constexpr std::size_t kMostPaths = 1000;
  auto& all = *static_cast<std::vector<std::string>*>(paths);
  if (link->type == H5L_TYPE_HARD) all.push_back(std::string("/") + name);
  return all.size() < kMostPaths ? 0 : 1;
}

// The names of all objects in the file, for a suggestion.
std::vector<std::string> all_paths(const FileId& file) {
  std::vector<std::string> paths;
  H5Lvisit(file.get(), H5_INDEX_NAME, H5_ITER_INC, collect_path, &paths);
  return paths;
}

struct OtherFile {
  std::string name, file;
};

herr_t find_other_file(hid_t group, const char* name, const H5L_info_t* link, void* found) {
  auto& other = *static_cast<OtherFile*>(found);
  other.name = std::string("/") + name;
  if (link->type == H5L_TYPE_EXTERNAL) {
    std::string value(link->u.val_size, '\0');
    const char* file = nullptr;
    H5Lget_val(group, name, value.data(), value.size(), H5P_DEFAULT);
    if (H5Lunpack_elink_val(value.data(), value.size(), nullptr, &file, nullptr) >= 0 && file != nullptr)
      other.file = file;
    return 1;
  }
  if (link->type != H5L_TYPE_HARD) return 0;
  const DatasetId dataset(H5Dopen2(group, name, H5P_DEFAULT));
  const auto file = dataset ? other_file_of(dataset.get()) : std::nullopt;
  if (file) other.file = *file;
  return file ? 1 : 0;
}

std::vector<std::string> root_datasets(const FileId& file) {
  std::vector<std::string> names;
  H5Literate(file.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_dataset, &names);
  return names;
}

std::vector<std::size_t> extent(const SpaceId& space) {
  const int rank = H5Sget_simple_extent_ndims(space.get());
  std::vector<hsize_t> dims(rank > 0 ? static_cast<std::size_t>(rank) : 0);
  if (rank > 0) H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
  return {dims.begin(), dims.end()};
}

class Hdf5Input final : public InputReader {
 public:
  Hdf5Input(const fs::path& path, bool external) : path_(path), external_(external) {
    file_bytes_ = InputFile(path).size();  // wflow's own messages if it is not a regular file
    const Hdf5Section section;
    file_ = open_hdf5(path, H5F_ACC_RDONLY);
    access_ = PropertyId(H5Pcreate(H5P_DATASET_ACCESS));
    if (!external_) H5Pset_elink_cb(access_.get(), refuse_link, &refused_);
  }
  ~Hdf5Input() override {
    const Hdf5Section section;
    access_.close();
    file_.close();
  }

  std::vector<InputField> fields() override {
    const Hdf5Section section;
    std::vector<InputField> list;
    for (const std::string& name : root_datasets(file_)) {
      Selector selector;
      selector.dataset = name;
      try {
        list.push_back(describe(open_dataset(selector), selector));
      } catch (const Error&) {  // not numeric: cannot be read, so it is not listed
      }
    }
    return list;
  }

  InputField find(const Selector& selector) override {
    const Hdf5Section section;
    if (!selector.attribute.empty()) return describe(open_attribute(selector), selector);
    return describe(open_dataset(selector), selector);
  }

  void read(const InputField& field, const Selection& selection, std::span<std::uint8_t> values) override {
    const Hdf5Section section;
    const Selector selector = selector_of(field);
    if (!selector.attribute.empty()) {
      read_attribute(field, selector, selection, values);
      return;
    }
    const DatasetId dataset = open_dataset(selector);
    const SpaceId space(H5Dget_space(dataset.get()));
    const SpaceId memory = select(space, selection, field.shape);
    const TypeId type = memory_type(field);
    if (H5Dread(dataset.get(), type.get(), memory ? memory.get() : H5S_ALL, memory ? space.get() : H5S_ALL,
                H5P_DEFAULT, values.data()) < 0) {
      throw_hdf5(ExitCode::data, fmt::format("cannot read {} of {}", described(selector), path_.string()));
    }
  }

 private:
  static std::string described(const Selector& selector) {
    const std::string object = selector.dataset.empty() ? "the dataset" : selector.dataset;
    return selector.attribute.empty() ? object
                                      : fmt::format("the attribute {} of {}", selector.attribute,
                                                    selector.dataset.empty() ? "/" : selector.dataset);
  }

  // find() stores its result, so that read() opens the same object.
  const Selector& selector_of(const InputField& field) const { return found_[field.index]; }

  DatasetId open_dataset(const Selector& selector) const {
    const auto names = [&] { return root_datasets(file_); };
    std::string name = selector.dataset;
    if (name.empty()) {
      const auto all = names();
      if (all.size() != 1) {
        throw Error(ExitCode::data,
                    fmt::format("{} does not hold just one dataset ({}); name it with the key 'dataset'",
                                path_.string(),
                                all.empty() ? "its root group has none" : "it has " + text::join(all, ", ")));
      }
      name = all.front();
    }
    refused_.clear();
    DatasetId dataset(H5Dopen2(file_.get(), name.c_str(), access_.get()));
    if (!dataset && !refused_.empty()) refuse_external(name, refused_);
    if (dataset && !external_) {
      if (const auto file = other_file_of(dataset.get())) refuse_external(name, *file);
    }
    if (!dataset) {
      const auto all = names();
      throw Error(ExitCode::data,
                  fmt::format("{} has no dataset {}; {}{}", path_.string(), name,
                              all.empty() ? "its root group has none" : "it has " + text::join(all, ", "),
                              text::suggestion(name.starts_with('/') ? name : "/" + name, all_paths(file_))));
    }
    return dataset;
  }

  [[noreturn]] void refuse_external(const std::string& name, const std::string& file) const {
    throw_external(path_, name, file);
  }

  AttributeId open_attribute(const Selector& selector) const {
    const std::string object = selector.dataset.empty() ? "/" : selector.dataset;
    refused_.clear();
    AttributeId attribute(
        H5Aopen_by_name(file_.get(), object.c_str(), selector.attribute.c_str(), H5P_DEFAULT, access_.get()));
    if (!attribute && !refused_.empty()) refuse_external(object, refused_);
    if (!attribute)
      throw Error(ExitCode::data,
                  fmt::format("{} has no attribute {} of {}", path_.string(), selector.attribute, object));
    return attribute;
  }

  InputField describe(const DatasetId& dataset, const Selector& selector) {
    const TypeId type(H5Dget_type(dataset.get()));
    InputField field = field_of(type, SpaceId(H5Dget_space(dataset.get())), selector);
    check_size(field, selector);
    return field;
  }
  InputField describe(const AttributeId& attribute, const Selector& selector) {
    const TypeId type(H5Aget_type(attribute.get()));
    InputField field = field_of(type, SpaceId(H5Aget_space(attribute.get())), selector);
    check_size(field, selector);
    return field;
  }

  void check_size(const InputField& field, const Selector& selector) const {
    const auto bytes = array_bytes(field.dtype, field.shape);
    if (bytes && !plausible_size(*bytes, file_bytes_)) {
      throw Error(ExitCode::data,
                  fmt::format("{} of {} claims {} bytes, more than a file of {} bytes can hold",
                              described(selector), path_.string(), *bytes, file_bytes_));
    }
  }

  InputField field_of(const TypeId& type, const SpaceId& space, const Selector& selector) {
    InputField field;
    field.name = selector.dataset;
    field.index = found_.size();
    found_.push_back(selector);
    field.shape = extent(space);
    if (H5Sget_simple_extent_type(space.get()) == H5S_NULL) refuse(selector, "holds nothing");
    const H5T_class_t kind = H5Tget_class(type.get());
    if (kind == H5T_COMPOUND) {
      take_members(type, selector, field);
      return field;
    }
    const auto dtype = dtype_of(type.get());
    if (!dtype) refuse(selector, "is not of numbers (integers, floats of 2, 4 or 8 bytes, bool or complex)");
    if (!selector.columns.empty()) refuse(selector, "is no compound table, so that it has no columns");
    field.dtype = *dtype;
    if (kind == H5T_FLOAT && H5Tget_size(type.get()) == 2) field.stored = "float16";
    if (kind == H5T_ENUM) field.stored = "bool";
    return field;
  }

  // h5py's complex numbers are compounds of r and i; other compounds are tables.
  void take_members(const TypeId& type, const Selector& selector, InputField& field) const {
    std::vector<std::string> members;
    const int count = H5Tget_nmembers(type.get());
    for (int k = 0; k < count; ++k) {
      char* name = H5Tget_member_name(type.get(), static_cast<unsigned>(k));
      members.emplace_back(name == nullptr ? "" : name);
      H5free_memory(name);
    }
    const bool complex = members == std::vector<std::string>{"r", "i"};
    field.components = selector.columns;
    if (complex && selector.columns.empty()) {
      field.components = members;
      field.stored = "complex";
    }
    if (field.components.empty())
      refuse(selector, fmt::format("is a compound table; name what is wanted with the key 'columns': {}",
                                   text::join(members, ", ")));
    bool first = true;
    for (const std::string& name : field.components) {
      const int k = H5Tget_member_index(type.get(), name.c_str());
      if (k < 0) no_such_field(path_, "column", name, members);
      const TypeId member(H5Tget_member_type(type.get(), static_cast<unsigned>(k)));
      const auto dtype = dtype_of(member.get());
      if (!dtype) refuse(selector, fmt::format("has a column {} that is not of numbers", name));
      if (first) field.dtype = *dtype;
      if (field.dtype != *dtype) field.dtype = DType::float64;
      first = false;
    }
  }

  [[noreturn]] void refuse(const Selector& selector, const std::string& what) const {
    throw Error(ExitCode::data, fmt::format("{} of {} {}", described(selector), path_.string(), what));
  }

  static TypeId memory_type(const InputField& field) {
    if (field.stored == "bool") {
      // An enum converts only to an integer of its own size.
      return TypeId(H5Tcopy(H5T_NATIVE_INT8));
    }
    const hid_t number = native_type(field.dtype);
    if (field.components.empty()) return TypeId(H5Tcopy(number));
    const std::size_t width = dtype_size(field.dtype);
    TypeId type(H5Tcreate(H5T_COMPOUND, width * field.components.size()));
    for (std::size_t k = 0; k < field.components.size(); ++k)
      H5Tinsert(type.get(), field.components[k].c_str(), k * width, number);
    return type;
  }

  static SpaceId select(const SpaceId& space, const Selection& selection,
                        const std::vector<std::size_t>& shape) {
    if (is_whole(selection, shape)) return {};
    std::vector<hsize_t> start;
    std::vector<hsize_t> step;
    std::vector<hsize_t> count;
    for (const AxisRange& range : selection) {
      start.push_back(range.start);
      step.push_back(range.step);
      count.push_back(range.count);
    }
    H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), step.data(), count.data(), nullptr);
    return SpaceId(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr));
  }

  void read_attribute(const InputField& field, const Selector& selector, const Selection& selection,
                      std::span<std::uint8_t> values) const {
    const AttributeId attribute = open_attribute(selector);
    const auto bytes = array_bytes(field.dtype, field.shape);
    const std::size_t components = std::max<std::size_t>(1, field.components.size());
    std::vector<std::uint8_t> whole(bytes.value_or(0) * components);
    const TypeId type = memory_type(field);
    if (H5Aread(attribute.get(), type.get(), whole.data()) < 0)
      throw_hdf5(ExitCode::data, fmt::format("cannot read {} of {}", described(selector), path_.string()));
    take_selection(whole, field.shape, dtype_size(field.dtype) * components, selection, values);
  }

  fs::path path_;
  bool external_ = false;
  std::uint64_t file_bytes_ = 0;
  FileId file_;
  PropertyId access_;
  mutable std::string refused_;  // the target of an external link that was refused
  std::vector<Selector> found_;
};

}  // namespace

void refuse_other_files(const fs::path& path) {
  const Hdf5Section section;
  const FileId file = open_hdf5(path, H5F_ACC_RDONLY);
  OtherFile other;
  if (H5Lvisit(file.get(), H5_INDEX_NAME, H5_ITER_NATIVE, find_other_file, &other) > 0)
    throw_external(path, other.name, other.file);
}

std::unique_ptr<InputReader> open_hdf5_input(const fs::path& path, const Selector& selector) {
  return std::make_unique<Hdf5Input>(path, selector.external);
}

}  // namespace wflow::converters
