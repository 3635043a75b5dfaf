// SPDX-License-Identifier: Apache-2.0
// Reading what simulations write, behind one interface: open a file, find a field, read it into memory. A
// format is a class behind a function open_x() in the table of reader.cc.
//
// Errors: Error{data} names the file, and where in it, when it is missing, cut, or not what it should be: the
// sample's fault. Error{system} is the machine's (permission, I/O error); Error{spec} the configuration's.
// No reader allocates what a file merely claims: a claim is compared with the file's size first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "converters/fields.h"
#include "converters/input/array.h"

namespace wflow::converters {

// What a file has under one name. Values of several components (complex numbers, colours, columns of a
// table) have these as one more axis behind `shape`, the fastest.
struct InputField {
  std::string name;
  DType dtype = DType::float32;         // as read: float16 becomes float32, bool uint8
  std::vector<std::size_t> shape;       // slowest axis first
  std::string axes;                     // letters of `shape`, where the format knows them; else empty
  std::vector<std::string> components;  // their names; empty: each value is one number
  std::string stored;                   // the type in the file, where that is another: "float16"
  std::size_t index = 0;                // the reader's own
};

class InputReader {
 public:
  virtual ~InputReader() = default;
  InputReader() = default;
  InputReader(const InputReader&) = delete;
  InputReader& operator=(const InputReader&) = delete;

  // All that can be named, for messages; formats without names give one.
  virtual std::vector<InputField> fields() = 0;
  // The one that the selector means; Error{data} with what there is instead.
  virtual InputField find(const Selector& selector) = 0;
  // Fills `values`, which has the length of the selection (selection_bytes).
  virtual void read(const InputField& field, const Selection& selection, std::span<std::uint8_t> values) = 0;
};

std::unique_ptr<InputReader> open_input(const std::filesystem::path& path, const Selector& selector);

// The format that open_input takes for this file: as the selector says, else by its suffix, else by its first
// bytes. Error{spec} where neither says.
Format format_of(const std::filesystem::path& path, const Selector& selector);

using Row = std::optional<std::uint64_t>;

// The field with what the selector's slice leaves of it; `row`: of that row of the slowest axis.
struct InputArray {
  InputField field;
  Array array;  // its shape ends with the components, where there are any
};
InputArray read_input(InputReader& reader, const std::filesystem::path& path, const Selector& selector,
                      Row row = {});

// Both for one field of one file.
Array read_array(const std::filesystem::path& path, const Selector& selector, Row row = {});
InputField read_form(const std::filesystem::path& path, const Selector& selector);

// Of an expansion that a file of `file_bytes` may claim: even deflate makes no more of a byte than 1,032.
bool plausible_size(std::uint64_t claimed, std::uint64_t file_bytes);

// Error{data}: there is no `wanted` in the file; it has `names`.
[[noreturn]] void no_such_field(const std::filesystem::path& path, const char* kind,
                                const std::string& wanted, const std::vector<std::string>& names);

std::unique_ptr<InputReader> open_hdf5_input(const std::filesystem::path& path, const Selector& selector);
// Error{data} where an HDF5 file has values in other files (external links, external storage, virtual datasets).
void refuse_other_files(const std::filesystem::path& path);
std::unique_ptr<InputReader> open_netcdf(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_npy(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_npz(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_raw(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_table(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_text(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_json(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_image(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_gadget(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_tfrecord(const std::filesystem::path& path, const Selector& selector);

// For formats that are read whole: one array in memory, of which selections are taken.
class MemoryReader : public InputReader {
 public:
  std::vector<InputField> fields() override { return {field_}; }
  InputField find(const Selector&) override { return field_; }
  void read(const InputField& field, const Selection& selection, std::span<std::uint8_t> values) override;

 protected:
  InputField field_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace wflow::converters
