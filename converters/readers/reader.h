// SPDX-License-Identifier: Apache-2.0
// Reads the output of simulations behind one interface: open a file, find a field, read it into memory. A
// format is a class behind a function open_x() in the table of reader.cc.
//
// Errors: Error{data}, an error of the sample, names the file and the place in it if it is missing, cut or
// invalid. Error{system} is an error of the machine (permission, I/O error), Error{spec} one of the
// configuration. No reader allocates a size that a file claims before comparing it with the file's size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "converters/fields.h"
#include "converters/input/array.h"

namespace wflow::converters {

// A named array of a file. Values of several components (complex numbers, colours, columns of a
// table) have these as one more axis behind `shape`, the fastest.
struct InputField {
  std::string name;
  DType dtype = DType::float32;         // as read: float16 becomes float32, bool uint8
  std::vector<std::size_t> shape;       // slowest axis first
  std::string axes;                     // letters of `shape`, if the format knows them; else empty
  std::vector<std::string> components;  // their names; empty: each value is one number
  std::string stored;                   // the type in the file, if different: "float16"
  std::size_t index = 0;                // for the reader's own use
};

class InputReader {
 public:
  virtual ~InputReader() = default;
  InputReader() = default;
  InputReader(const InputReader&) = delete;
  InputReader& operator=(const InputReader&) = delete;

  // All fields, for messages; formats without names have one.
  virtual std::vector<InputField> fields() = 0;
  // The field that the selector means; Error{data} with the existing ones.
  virtual InputField find(const Selector& selector) = 0;
  // The same, for one row of the slowest axis, where rows have lengths of their own.
  virtual InputField find_in_row(const Selector& selector, std::optional<std::uint64_t> /*row*/) {
    return find(selector);
  }
  // Fills `values`, which has the length of the selection (selection_bytes).
  virtual void read(const InputField& field, const Selection& selection, std::span<std::uint8_t> values) = 0;
};

std::unique_ptr<InputReader> open_input(const std::filesystem::path& path, const Selector& selector);

// The format that open_input uses for this file: by the selector, else by its suffix, else by its first
// bytes. Error{spec} if none of them determines it.
Format format_of(const std::filesystem::path& path, const Selector& selector);

using Row = std::optional<std::uint64_t>;

// The field with the selector's slice of it; `row`: from that row of the slowest axis.
struct InputArray {
  InputField field;
  Array array;  // its shape ends with the components, if there are any
};
InputArray read_input(InputReader& reader, const std::filesystem::path& path, const Selector& selector,
                      Row row = {});

// Both for one field of one file.
Array read_array(const std::filesystem::path& path, const Selector& selector, Row row = {});
InputField read_form(const std::filesystem::path& path, const Selector& selector);

// True if a file of `file_bytes` bytes can expand to that size: deflate makes at most 1,032 bytes of one.
bool plausible_size(std::uint64_t claimed, std::uint64_t file_bytes);

// Throws Error{data}: the file has no `wanted`, but `names`.
[[noreturn]] void no_such_field(const std::filesystem::path& path, const char* kind,
                                const std::string& wanted, const std::vector<std::string>& names);

std::unique_ptr<InputReader> open_hdf5_input(const std::filesystem::path& path, const Selector& selector);
// Error{data} if an HDF5 file has values in other files (external links, external storage, virtual datasets).
void refuse_other_files(const std::filesystem::path& path);
std::unique_ptr<InputReader> open_netcdf(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_npy(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_trace_index(const std::filesystem::path& path);
std::unique_ptr<InputReader> open_npz(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_raw(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_table(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_text(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_json(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_image(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_gadget(const std::filesystem::path& path, const Selector& selector);
std::unique_ptr<InputReader> open_tfrecord(const std::filesystem::path& path, const Selector& selector);

// For formats that are read completely: one array in memory, and selections of it.
class MemoryReader : public InputReader {
 public:
  std::vector<InputField> fields() override { return {field_}; }
  InputField find(const Selector&) override { return field_; }
  void read(const InputField& field, const Selection& selection, std::span<std::uint8_t> values) override;

 protected:
  InputField field_;
  std::vector<std::uint8_t> bytes_;
};

// A file of a simulation, read by ranges, for the readers of this folder. Error{data} if it is missing or not
// a regular file, Error{system} if the machine refuses.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return fd_.get(); }
  // Error{data} if the file has fewer bytes.
  std::vector<std::uint8_t> read(std::uint64_t offset, std::size_t bytes) const;
  void read_into(std::uint64_t offset, std::span<std::uint8_t> bytes) const;

 private:
  void check_size(std::uint64_t offset, std::size_t bytes) const;

  std::filesystem::path path_;
  FileDescriptor fd_;
  std::uint64_t size_ = 0;
};

}  // namespace wflow::converters
