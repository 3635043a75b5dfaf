// SPDX-License-Identifier: Apache-2.0
#include "converters/readers/tfrecord.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/protobuf.h"
#include "converters/readers/reader.h"

namespace wflow::converters {

namespace fs = std::filesystem;

// A stream of bytes with a position.
class TfrecordFile::Bytes {
 public:
  virtual ~Bytes() = default;
  // Reads as many as available, up to `into`'s size.
  virtual std::size_t read(std::span<std::uint8_t> into) = 0;
  // True if the stream can have `count` more bytes: no memory is allocated for an impossible length.
  virtual bool may_hold(std::uint64_t count) const = 0;
  virtual std::uint64_t skip(std::uint64_t count) = 0;
  std::uint64_t position() const { return position_; }

 protected:
  std::uint64_t position_ = 0;
};

class TfrecordFile::PlainBytes final : public Bytes {
 public:
  explicit PlainBytes(const fs::path& path) : file_(path) {}
  std::size_t read(std::span<std::uint8_t> into) override {
    const std::size_t got = read_at(file_.descriptor(), position_, into.data(), into.size(), file_.path());
    position_ += got;
    return got;
  }
  bool may_hold(std::uint64_t count) const override { return count <= file_.size() - position_; }
  std::uint64_t skip(std::uint64_t count) override {
    const std::uint64_t passed = std::min(count, file_.size() - std::min(position_, file_.size()));
    position_ += passed;
    return passed;
  }

 private:
  InputFile file_;
};

// One gzip member or several, inflated as they are read.
class TfrecordFile::GzipBytes final : public Bytes {
 public:
  explicit GzipBytes(const fs::path& path) : file_(path), input_(kBuffer) {
    constexpr int kGzipWindow = 15 + 16;  // selects gzip's header and checksum in zlib
    if (inflateInit2(&stream_, kGzipWindow) != Z_OK)
      throw Error(ExitCode::system, fmt::format("no memory to inflate {}", path.string()));
  }
  GzipBytes(const GzipBytes&) = delete;
  GzipBytes& operator=(const GzipBytes&) = delete;
  ~GzipBytes() override { inflateEnd(&stream_); }

  std::size_t read(std::span<std::uint8_t> into) override {
    std::size_t done = 0;
    while (done < into.size()) {
      if (stream_.avail_in == 0 && !refill()) break;
      const std::size_t piece = std::min<std::size_t>(into.size() - done, kBuffer);
      stream_.next_out = into.data() + done;
      stream_.avail_out = static_cast<uInt>(piece);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      done += piece - stream_.avail_out;
      inside_ = result != Z_STREAM_END;
      if (result == Z_STREAM_END && inflateReset(&stream_) == Z_OK) continue;
      if (result != Z_OK && result != Z_BUF_ERROR) fail(stream_.msg == nullptr ? "damaged" : stream_.msg);
    }
    position_ += done;
    return done;
  }
  bool may_hold(std::uint64_t count) const override { return plausible_size(count, file_.size()); }
  std::uint64_t skip(std::uint64_t count) override {
    std::vector<std::uint8_t> passed(kBuffer);
    std::uint64_t done = 0;
    while (done < count) {
      const std::size_t piece = std::min<std::uint64_t>(count - done, passed.size());
      const std::size_t got = read(std::span(passed).first(piece));
      done += got;
      if (got < piece) break;
    }
    return done;
  }

 private:
  static constexpr std::size_t kBuffer = std::size_t{1} << 18;

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ExitCode::data, fmt::format("{} is not a whole gzip stream: {} (near byte {})",
                                            file_.path().string(), why, read_ - stream_.avail_in));
  }
  bool refill() {
    const std::size_t got = read_at(file_.descriptor(), read_, input_.data(), input_.size(), file_.path());
    if (got == 0 && inside_) fail("it ends within the stream");
    read_ += got;
    stream_.next_in = input_.data();
    stream_.avail_in = static_cast<uInt>(got);
    if (got > 0) inside_ = true;
    return got > 0;
  }

  InputFile file_;
  std::vector<std::uint8_t> input_;
  z_stream stream_{};
  std::uint64_t read_ = 0;
  bool inside_ = false;  // inside a member
};

TfrecordFile::TfrecordFile(fs::path path) : path_(std::move(path)) {
  const InputFile file(path_);
  const auto start = file.read(0, std::min<std::uint64_t>(2, file.size()));
  const bool gzip = start.size() == 2 && start[0] == 0x1F && start[1] == 0x8B;
  if (gzip) {
    bytes_ = std::make_unique<GzipBytes>(path_);
  } else {
    bytes_ = std::make_unique<PlainBytes>(path_);
  }
}

TfrecordFile::~TfrecordFile() = default;

void TfrecordFile::fail(std::uint64_t at, const std::string& why) const {
  throw Error(ExitCode::data, fmt::format("{}: the record at byte {} {}", path_.string(), at, why));
}

namespace {

std::uint32_t uint32_at(const std::uint8_t* at) {
  std::uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

std::optional<std::uint64_t> TfrecordFile::next_length() {
  const std::uint64_t at = bytes_->position();
  std::array<std::uint8_t, kTfrecordHeader> header{};
  const std::size_t got = bytes_->read(header);
  if (got == 0) return std::nullopt;
  if (got < header.size()) fail(at, fmt::format("is cut short: its header has {} of 12 bytes", got));
  std::uint64_t length = 0;
  std::memcpy(&length, header.data(), sizeof length);
  if (masked_crc32c(std::span(header).first(8)) != uint32_at(header.data() + 8))
    fail(at, "does not have the checksum of its length: the file is damaged, or no TFRecord file");
  if (length > kMostSampleBytes)
    fail(at, fmt::format("claims {} bytes, more than a sample may have", length));
  if (!bytes_->may_hold(length + kTfrecordTrailer))
    fail(at, fmt::format("claims {} bytes, more than the file holds", length));
  begin_ = at + kTfrecordHeader;
  return length;
}

std::optional<std::vector<std::uint8_t>> TfrecordFile::next() {
  const std::uint64_t at = bytes_->position();
  const auto length = next_length();
  if (!length) return std::nullopt;
  std::vector<std::uint8_t> record(*length + kTfrecordTrailer);
  const std::size_t got = bytes_->read(record);
  if (got < record.size()) fail(at, fmt::format("is cut short: {} of its {} bytes are there", got, *length));
  const std::uint32_t stored = uint32_at(record.data() + *length);
  record.resize(*length);
  if (masked_crc32c(record) != stored) fail(at, "does not have its checksum: the file is damaged");
  return record;
}

bool TfrecordFile::skip() {
  const std::uint64_t at = bytes_->position();
  const auto length = next_length();
  if (!length) return false;
  if (bytes_->skip(*length + kTfrecordTrailer) < *length + kTfrecordTrailer) fail(at, "is cut short");
  return true;
}

std::uint64_t count_tfrecords(const fs::path& path) {
  TfrecordFile file(path);
  std::uint64_t records = 0;
  while (file.skip()) ++records;
  return records;
}

namespace {

// A feature of an example: one of three lists.
struct Feature {
  enum class Kind { none, bytes, floats, integers } kind = Kind::none;
  std::span<const std::uint8_t> text;  // for bytes: the only value
  std::size_t texts = 0;
  std::vector<std::uint8_t> numbers;  // float32 or int64, as in memory
};

// Reads protocol buffers (https://protobuf.dev/programming-guides/encoding): fields of a tag and a value.
class ProtoReader {
 public:
  enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
  struct Field {
    std::uint64_t number = 0;
    Wire wire = Wire::varint;
    std::uint64_t value = 0;              // for varint
    std::span<const std::uint8_t> bytes;  // for the other types
  };

  // `place`: offset of the message's first byte, for error texts.
  ProtoReader(std::span<const std::uint8_t> message, const fs::path& path, std::uint64_t place)
      : message_(message), path_(&path), place_(place) {}

  std::optional<Field> next() {
    if (at_ == message_.size()) return std::nullopt;
    const std::uint64_t tag = varint();
    Field field;
    field.number = tag >> 3;
    switch (tag & 7) {
      case 0:
        field.wire = Wire::varint;
        field.value = varint();
        return field;
      case 1:
        field.wire = Wire::fixed64;
        field.bytes = take(8);
        return field;
      case 2:
        field.wire = Wire::bytes;
        field.bytes = take(varint());
        return field;
      case 5:
        field.wire = Wire::fixed32;
        field.bytes = take(4);
        return field;
      default:
        fail();
    }
  }
  // The message in a field of this one.
  ProtoReader inside(const Field& field) const {
    return {field.bytes, *path_, place_ + static_cast<std::uint64_t>(field.bytes.data() - message_.data())};
  }
  bool at_end() const { return at_ == message_.size(); }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == message_.size()) fail();
      const std::uint64_t byte = message_[at_++];
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }
  [[noreturn]] void fail() const {
    throw Error(ExitCode::data,
                fmt::format("{}: byte {} is not of a tf.train.Example", path_->string(), place_ + at_));
  }

 private:
  std::span<const std::uint8_t> take(std::uint64_t length) {
    if (length > message_.size() - at_) fail();
    const auto bytes = message_.subspan(at_, length);
    at_ += length;
    return bytes;
  }

  std::span<const std::uint8_t> message_;
  const fs::path* path_;
  std::uint64_t place_ = 0;
  std::size_t at_ = 0;
};

using Wire = ProtoReader::Wire;

void append(std::vector<std::uint8_t>& bytes, const void* value, std::size_t size) {
  const auto* first = static_cast<const std::uint8_t*>(value);
  bytes.insert(bytes.end(), first, first + size);
}

// A list of values: packed, or one field each.
void read_list(ProtoReader list, Feature& feature) {
  while (const auto field = list.next()) {
    if (field->number != 1) continue;
    if (feature.kind == Feature::Kind::bytes && field->wire == Wire::bytes) {
      feature.text = field->bytes;
      ++feature.texts;
    } else if (feature.kind == Feature::Kind::floats &&
               (field->wire == Wire::fixed32 || field->wire == Wire::bytes)) {
      if (field->bytes.size() % sizeof(float) != 0) list.fail();
      append(feature.numbers, field->bytes.data(), field->bytes.size());
    } else if (feature.kind == Feature::Kind::integers && field->wire == Wire::varint) {
      append(feature.numbers, &field->value, sizeof field->value);
    } else if (feature.kind == Feature::Kind::integers && field->wire == Wire::bytes) {
      for (ProtoReader packed = list.inside(*field); !packed.at_end();) {
        const std::uint64_t value = packed.varint();
        append(feature.numbers, &value, sizeof value);
      }
    } else {
      list.fail();
    }
  }
}

Feature read_feature(ProtoReader message) {
  Feature feature;
  while (const auto field = message.next()) {
    if (field->number < 1 || field->number > 3) continue;
    if (field->wire != Wire::bytes) message.fail();
    feature = {};
    feature.kind = static_cast<Feature::Kind>(field->number);
    read_list(message.inside(*field), feature);
  }
  return feature;
}

// All features of an example by name; reads the values of a feature on demand.
class Example {
 public:
  Example(std::span<const std::uint8_t> record, const fs::path& path, std::uint64_t place) {
    ProtoReader example(record, path, place);
    while (const auto features = example.next()) {
      if (features->number != 1) continue;
      if (features->wire != Wire::bytes) example.fail();
      ProtoReader map = example.inside(*features);
      while (const auto entry = map.next()) {
        if (entry->number != 1) continue;
        if (entry->wire != Wire::bytes) map.fail();
        add(map.inside(*entry));
      }
    }
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, message] : features_) names.push_back(name);
    return names;
  }
  std::optional<Feature> find(const std::string& name) const {
    const auto found = features_.find(name);
    if (found == features_.end()) return std::nullopt;
    return read_feature(found->second);
  }

 private:
  void add(ProtoReader entry) {
    std::string name;
    std::optional<ProtoReader> value;
    while (const auto field = entry.next()) {
      if (field->number > 2 || field->number == 0) continue;
      if (field->wire != Wire::bytes) entry.fail();
      if (field->number == 1)
        name.assign(reinterpret_cast<const char*>(field->bytes.data()), field->bytes.size());
      if (field->number == 2) value.emplace(entry.inside(*field));
    }
    if (value) features_.insert_or_assign(name, *value);
  }

  std::map<std::string, ProtoReader> features_;
};

Feature require_feature(const Example& example, const fs::path& path, std::string name) {
  const auto names = example.names();
  if (name.starts_with('/')) name.erase(0, 1);
  if (name.empty() && names.size() == 1) name = names.front();
  if (name.empty())
    throw Error(ExitCode::data, fmt::format("{} has {} features ({}); name one with the key 'dataset'",
                                            path.string(), names.size(), fmt::join(names, ", ")));
  const auto feature = example.find(name);
  if (!feature) no_such_field(path, "feature", name, names);
  if (feature->kind == Feature::Kind::none || feature->texts > 1)
    throw Error(ExitCode::data,
                fmt::format("the feature {} of {} holds {} byte strings; one is read, or a list of numbers",
                            name, path.string(), feature->texts));
  return *feature;
}

class TfrecordInput final : public InputReader {
 public:
  TfrecordInput(fs::path path, const Selector& selector) : path_(std::move(path)), selector_(selector) {}

  std::vector<InputField> fields() override {
    load(0);
    std::vector<InputField> list;
    for (const std::string& name : example().names()) list.emplace_back().name = name;
    return list;
  }
  InputField find(const Selector&) override {
    load(0);
    InputField field = form();
    if (selector_.stacked) {
      field.shape.insert(field.shape.begin(), count_tfrecords(path_));
    } else if (more_) {
      throw Error(
          ExitCode::data,
          fmt::format("{} has several records; 'stacked: true' and a column 'row' make a sample of each",
                      path_.string()));
    }
    return field;
  }
  void read(const InputField& field, const Selection& selection, std::span<std::uint8_t> values) override {
    Selection rest = selection;
    if (selector_.stacked) {
      WFLOW_CHECK(!rest.empty() && rest[0].count == 1);
      load(rest[0].start);
      rest.erase(rest.begin());
    }
    const InputField one = form();
    const auto expected = std::span(field.shape).subspan(selector_.stacked ? 1 : 0);
    if (!std::equal(one.shape.begin(), one.shape.end(), expected.begin(), expected.end()))
      throw Error(ExitCode::data,
                  fmt::format("{}: record {} has ({}) values, the first one ({})", path_.string(),
                              loaded_.value_or(0), fmt::join(one.shape, ", "), fmt::join(expected, ", ")));
    const std::size_t width = dtype_size(one.dtype);
    std::vector<std::uint8_t> bytes = values_of_feature();
    take_selection(bytes, one.shape, width, rest, values);
  }

 private:
  Example example() const { return {record_, path_, place_}; }
  Feature feature() const { return require_feature(example(), path_, selector_.dataset); }

  void load(std::uint64_t number) {
    if (loaded_ == number) return;
    TfrecordFile file(path_);
    for (std::uint64_t k = 0; k < number; ++k) {
      if (!file.skip()) no_record(number, k);
    }
    auto record = file.next();
    if (!record) no_record(number, number);
    record_ = std::move(*record);
    place_ = file.record_begin();
    more_ = !selector_.stacked && file.skip();
    loaded_ = number;
  }
  [[noreturn]] void no_record(std::uint64_t number, std::uint64_t records) const {
    throw Error(ExitCode::data,
                fmt::format("{} has {} records, and none of number {}", path_.string(), records, number));
  }

  InputField form() const {
    const Feature found = feature();
    InputField field;
    if (found.kind != Feature::Kind::bytes) {
      field.dtype = found.kind == Feature::Kind::floats ? DType::float32 : DType::int64;
      field.shape = {found.numbers.size() / dtype_size(field.dtype)};
      return field;
    }
    const RawForm& raw = selector_.raw;
    if (raw.shape.empty())
      throw Error(ExitCode::spec, fmt::format("the feature {} of {} holds bytes: the keys 'shape' and 'raw: "
                                              "{{dtype: ...}}' must say what they are",
                                              selector_.dataset, path_.string()));
    const auto bytes = array_bytes(raw.dtype, raw.shape);
    if (!bytes) throw Error(ExitCode::spec, "'shape' is of more than 4 GiB, which no sample may have");
    if (found.text.size() != *bytes)
      throw Error(ExitCode::data, fmt::format("the feature {} of {} has {} bytes, but ({}) {} makes {}",
                                              selector_.dataset, path_.string(), found.text.size(),
                                              fmt::join(raw.shape, ", "), dtype_name(raw.dtype), *bytes));
    field.dtype = raw.dtype;
    field.shape = raw.shape;
    return field;
  }
  std::vector<std::uint8_t> values_of_feature() const {
    Feature found = feature();
    if (found.kind != Feature::Kind::bytes) return std::move(found.numbers);
    std::vector<std::uint8_t> bytes(found.text.begin(), found.text.end());
    const std::size_t width = dtype_size(selector_.raw.dtype);
    if (selector_.raw.byte_order == ByteOrder::big) swap_byte_order(bytes, width);
    if (selector_.raw.fortran_order) to_c_order(bytes, selector_.raw.shape, width);
    return bytes;
  }

  fs::path path_;
  Selector selector_;
  std::vector<std::uint8_t> record_;
  std::uint64_t place_ = 0;
  bool more_ = false;  // another record behind the one that is loaded
  std::optional<std::uint64_t> loaded_;
};

}  // namespace

FeatureSize feature_size(const fs::path& path, const std::string& feature) {
  TfrecordFile file(path);
  const auto record = file.next();
  if (!record) throw Error(ExitCode::data, fmt::format("{} has no record", path.string()));
  const Feature found = require_feature(Example(*record, path, file.record_begin()), path, feature);
  const std::size_t width = found.kind == Feature::Kind::floats ? sizeof(float) : sizeof(std::int64_t);
  return {found.kind == Feature::Kind::bytes, found.text.size(), found.numbers.size() / width};
}

std::unique_ptr<InputReader> open_tfrecord(const fs::path& path, const Selector& selector) {
  return std::make_unique<TfrecordInput>(path, selector);
}

}  // namespace wflow::converters
