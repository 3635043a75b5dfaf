// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/messages.h"

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <msgpack.hpp>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/yaml.h"
#include "engine/wire/layout.h"

namespace wflow::engine::wire {

namespace {

// A pull reader of MessagePack that allocates nothing by itself and trusts no length: it never reads past the
// bytes, and checks an array's count against the bytes that are left. Needed because msgpack's unpack()
// allocates by the lengths that the sender claims.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  // Each reads one value of its kind, or returns false and leaves the reader failed.
  bool unsigned_integer(std::uint64_t& value);
  bool signed_integer(std::int64_t& value);
  bool boolean(bool& value);
  bool real(double& value);
  bool text(std::string_view& value);  // str or bin; a view into the bytes
  // The header of an array; false when `count` elements of at least `element_bytes` cannot follow.
  bool array(std::uint64_t& count, std::size_t element_bytes);

  // Around a value that may contain others of its kind: bounds the depth, and so the stack.
  bool enter() { return ++depth_ <= kMostDepth || fail(); }
  void leave() { --depth_; }

  bool at_end() const { return !failed_ && rest_.empty(); }

 private:
  bool fail();
  bool byte(std::uint8_t& value);
  bool big_endian(std::size_t bytes, std::uint64_t& value);
  // The value of an integer of any width: `negative`: `value` is in two's complement.
  bool integer(std::uint64_t& value, bool& negative);

  static constexpr int kMostDepth = 64;

  std::string_view rest_;
  bool failed_ = false;
  int depth_ = 0;
};

// First bytes of MessagePack values (https://github.com/msgpack/msgpack/blob/master/spec.md).
constexpr std::uint8_t kFalse = 0xc2;
constexpr std::uint8_t kTrue = 0xc3;
constexpr std::uint8_t kBin8 = 0xc4;
constexpr std::uint8_t kBin32 = 0xc6;
constexpr std::uint8_t kFloat64 = 0xcb;
constexpr std::uint8_t kUint8 = 0xcc;
constexpr std::uint8_t kUint64 = 0xcf;
constexpr std::uint8_t kInt8 = 0xd0;
constexpr std::uint8_t kInt64 = 0xd3;
constexpr std::uint8_t kStr8 = 0xd9;
constexpr std::uint8_t kStr32 = 0xdb;
constexpr std::uint8_t kArray16 = 0xdc;
constexpr std::uint8_t kArray32 = 0xdd;

bool Reader::fail() {
  failed_ = true;
  return false;
}

bool Reader::byte(std::uint8_t& value) {
  if (failed_ || rest_.empty()) return fail();
  value = static_cast<std::uint8_t>(rest_.front());
  rest_.remove_prefix(1);
  return true;
}

bool Reader::big_endian(std::size_t bytes, std::uint64_t& value) {
  if (failed_ || rest_.size() < bytes) return fail();
  value = 0;
  if (bytes == sizeof value && std::endian::native == std::endian::little) {  // most of what Results have
    std::memcpy(&value, rest_.data(), sizeof value);
    value = __builtin_bswap64(value);
    rest_.remove_prefix(sizeof value);
    return true;
  }
  for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<std::uint8_t>(rest_[i]);
  rest_.remove_prefix(bytes);
  return true;
}

bool Reader::integer(std::uint64_t& value, bool& negative) {
  std::uint8_t first = 0;
  if (!byte(first)) return false;
  negative = false;
  if (first < 0x80) {
    value = first;
    return true;
  }
  if (first >= 0xe0) {
    value = static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int8_t>(first)));
    negative = true;
    return true;
  }
  if (first >= kUint8 && first <= kUint64) return big_endian(std::size_t{1} << (first - kUint8), value);
  if (first < kInt8 || first > kInt64) return fail();
  const std::size_t bytes = std::size_t{1} << (first - kInt8);
  if (!big_endian(bytes, value)) return false;
  const unsigned shift = static_cast<unsigned>(64 - 8 * bytes);
  const auto extended = static_cast<std::int64_t>(value << shift) >> shift;
  value = static_cast<std::uint64_t>(extended);
  negative = extended < 0;
  return true;
}

bool Reader::unsigned_integer(std::uint64_t& value) {
  bool negative = false;
  if (!integer(value, negative)) return false;
  return negative ? fail() : true;
}

bool Reader::signed_integer(std::int64_t& value) {
  std::uint64_t bits = 0;
  bool negative = false;
  if (!integer(bits, negative)) return false;
  if (!negative && bits > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return fail();
  value = static_cast<std::int64_t>(bits);
  return true;
}

bool Reader::boolean(bool& value) {
  std::uint8_t first = 0;
  if (!byte(first)) return false;
  if (first != kFalse && first != kTrue) return fail();
  value = first == kTrue;
  return true;
}

bool Reader::real(double& value) {
  std::uint8_t first = 0;
  if (!byte(first)) return false;
  if (first != kFloat64) return fail();
  std::uint64_t bits = 0;
  if (!big_endian(8, bits)) return false;
  value = std::bit_cast<double>(bits);
  return true;
}

bool Reader::text(std::string_view& value) {
  std::uint8_t first = 0;
  if (!byte(first)) return false;
  std::uint64_t length = 0;
  if (first >= 0xa0 && first <= 0xbf) {
    length = first & 0x1fU;
  } else if (first >= kStr8 && first <= kStr32) {
    if (!big_endian(std::size_t{1} << (first - kStr8), length)) return false;
  } else if (first >= kBin8 && first <= kBin32) {
    if (!big_endian(std::size_t{1} << (first - kBin8), length)) return false;
  } else {
    return fail();
  }
  if (length > rest_.size()) return fail();
  value = rest_.substr(0, length);
  rest_.remove_prefix(length);
  return true;
}

bool Reader::array(std::uint64_t& count, std::size_t element_bytes) {
  std::uint8_t first = 0;
  if (!byte(first)) return false;
  if (first >= 0x90 && first <= 0x9f) {
    count = first & 0x0fU;
  } else if (first == kArray16 || first == kArray32) {
    if (!big_endian(first == kArray16 ? 2 : 4, count)) return false;
  } else {
    return fail();
  }
  return count > rest_.size() / element_bytes ? fail() : true;
}

// The output of msgpack::packer.
struct StringSink {
  std::string bytes;
  void write(const char* data, std::size_t size) { bytes.append(data, size); }
};
using Packer = msgpack::packer<StringSink>;

template <class T>
concept Enumeration = std::is_enum_v<T>;

// ---- writing

template <std::integral T>
void put(Packer& out, T value) {
  out.pack(value);
}
// Always as float64: pack_double() makes integers of whole numbers. (The "body" call writes bytes as they
// are.)
void put(Packer& out, double value) {
  constexpr std::size_t kBytes = 9;
  std::array<char, kBytes> bytes{static_cast<char>(0xcb)};
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (std::size_t i = 1; i < kBytes; ++i) bytes[i] = static_cast<char>(bits >> (8 * (kBytes - 1 - i)));
  out.pack_bin_body(bytes.data(), bytes.size());
}
void put(Packer& out, const std::string& value) {
  out.pack_str(static_cast<std::uint32_t>(value.size()));
  out.pack_str_body(value.data(), static_cast<std::uint32_t>(value.size()));
}
void put(Packer& out, const std::filesystem::path& value) {
  put(out, value.native());
}
template <Enumeration T>
void put(Packer& out, T value) {
  out.pack(static_cast<std::uint32_t>(value));
}
void put(Packer& out, const converters::ConvertConfig& config);
void put(Packer& out, const trainer::TrainConfig& config);
void put(Packer& out, const propose::ProposeConfig& config);
template <class First, class Second>
void put(Packer& out, const std::pair<First, Second>& value);
template <Described T>
void put(Packer& out, const T& value);
template <class T>
void put(Packer& out, const std::vector<T>& values);
template <class T, std::size_t N>
void put(Packer& out, const std::array<T, N>& values);
template <class T>
void put(Packer& out, const std::optional<T>& value);
template <class... T>
void put(Packer& out, const std::variant<T...>& value);

template <class First, class Second>
void put(Packer& out, const std::pair<First, Second>& value) {
  out.pack_array(2);
  put(out, value.first);
  put(out, value.second);
}

template <Described T>
void put_fields(Packer& out, const T& value) {
  std::apply([&](auto... field) { (put(out, value.*field), ...); }, Layout<T>::fields);
}

template <Described T>
void put(Packer& out, const T& value) {
  out.pack_array(static_cast<std::uint32_t>(std::tuple_size_v<decltype(Layout<T>::fields)>));
  put_fields(out, value);
}

template <class T>
void put(Packer& out, const std::vector<T>& values) {
  out.pack_array(static_cast<std::uint32_t>(values.size()));
  for (const T& value : values) put(out, value);
}

template <class T, std::size_t N>
void put(Packer& out, const std::array<T, N>& values) {
  out.pack_array(static_cast<std::uint32_t>(N));
  for (const T& value : values) put(out, value);
}

// An array of none or one.
template <class T>
void put(Packer& out, const std::optional<T>& value) {
  out.pack_array(value ? 1 : 0);
  if (value) put(out, *value);
}

template <class... T>
void put(Packer& out, const std::variant<T...>& value) {
  out.pack_array(2);
  out.pack(static_cast<std::uint32_t>(value.index()));
  std::visit([&](const auto& held) { put(out, held); }, value);
}

// The tables of these blocks write and read them, as trees of keys and values.
void put(Packer& out, const converters::ConvertConfig& config) {
  put(out, converters::to_yaml(config));
}
void put(Packer& out, const trainer::TrainConfig& config) {
  put(out, trainer::to_yaml(config));
}
void put(Packer& out, const propose::ProposeConfig& config) {
  put(out, propose::to_yaml(config));
}

// ---- reading

template <class T>
inline constexpr std::size_t kArraySize = 0;
template <class T, std::size_t N>
inline constexpr std::size_t kArraySize<std::array<T, N>> = N;
template <class T>
inline constexpr bool kIsPair = false;
template <class First, class Second>
inline constexpr bool kIsPair<std::pair<First, Second>> = true;
template <class T>
inline constexpr bool kIsVariant = false;
template <class... T>
inline constexpr bool kIsVariant<std::variant<T...>> = true;

// The fewest bytes of a value, to check the counts that a sender claims.
template <class T>
constexpr std::size_t least_bytes() {
  if constexpr (std::is_same_v<T, double>) {
    return 9;
  } else if constexpr (kIsPair<T>) {
    return 3;
  } else if constexpr (kArraySize<T> > 0) {
    return 1 + kArraySize<T> * least_bytes<typename T::value_type>();
  } else if constexpr (kIsVariant<T>) {
    return 3;
  } else if constexpr (Described<T>) {
    return std::apply(
        [](auto... field) {
          return (std::size_t{1} + ... +
                  least_bytes<std::remove_cvref_t<decltype(std::declval<T&>().*field)>>());
        },
        Layout<T>::fields);
  } else {
    return 1;
  }
}

template <std::unsigned_integral T>
bool get(Reader& in, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return in.boolean(value);
  } else {
    std::uint64_t wide = 0;
    if (!in.unsigned_integer(wide) || wide > std::numeric_limits<T>::max()) return false;
    value = static_cast<T>(wide);
    return true;
  }
}
template <std::signed_integral T>
bool get(Reader& in, T& value) {
  std::int64_t wide = 0;
  if (!in.signed_integer(wide) || !std::in_range<T>(wide)) return false;
  value = static_cast<T>(wide);
  return true;
}
bool get(Reader& in, double& value) {
  return in.real(value);
}
bool get(Reader& in, std::string& value) {
  std::string_view view;
  if (!in.text(view)) return false;
  value = view;
  return true;
}
bool get(Reader& in, std::filesystem::path& value) {
  std::string_view view;
  if (!in.text(view)) return false;
  value = view;
  return true;
}
bool get(Reader& in, converters::ConvertConfig& config);
bool get(Reader& in, trainer::TrainConfig& config);
bool get(Reader& in, propose::ProposeConfig& config);
template <class First, class Second>
bool get(Reader& in, std::pair<First, Second>& value);
template <Enumeration T>
bool get(Reader& in, T& value) {
  std::uint64_t number = 0;
  if (!in.unsigned_integer(number) || number > static_cast<std::uint64_t>(kLast<T>)) return false;
  value = static_cast<T>(number);
  return true;
}
template <Described T>
bool get(Reader& in, T& value);
template <class T>
bool get(Reader& in, std::vector<T>& values);
template <class T, std::size_t N>
bool get(Reader& in, std::array<T, N>& values);
template <class T>
bool get(Reader& in, std::optional<T>& value);
template <class... T>
bool get(Reader& in, std::variant<T...>& value);

template <class First, class Second>
bool get(Reader& in, std::pair<First, Second>& value) {
  std::uint64_t count = 0;
  return in.array(count, 1) && count == 2 && get(in, value.first) && get(in, value.second);
}

template <Described T>
bool get_fields(Reader& in, T& value) {
  return std::apply([&](auto... field) { return (get(in, value.*field) && ...); }, Layout<T>::fields);
}

template <Described T>
bool get(Reader& in, T& value) {
  std::uint64_t count = 0;
  if (!in.enter() || !in.array(count, 1) || count != std::tuple_size_v<decltype(Layout<T>::fields)>)
    return false;
  const bool is_read = get_fields(in, value);
  in.leave();
  return is_read;
}

template <class T>
bool get(Reader& in, std::vector<T>& values) {
  std::uint64_t count = 0;
  if (!in.array(count, least_bytes<T>())) return false;
  values.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!get(in, values.emplace_back())) return false;
  }
  return true;
}

template <class T, std::size_t N>
bool get(Reader& in, std::array<T, N>& values) {
  std::uint64_t count = 0;
  if (!in.array(count, 1) || count != N) return false;
  return std::ranges::all_of(values, [&](T& value) { return get(in, value); });
}

template <class T>
bool get(Reader& in, std::optional<T>& value) {
  std::uint64_t count = 0;
  if (!in.array(count, 1) || count > 1) return false;
  return count == 0 || get(in, value.emplace());
}

template <std::size_t Index = 0, class... T>
bool get_alternative(Reader& in, std::uint64_t index, std::variant<T...>& value) {
  if constexpr (Index == sizeof...(T)) {
    return false;
  } else {
    if (index != Index) return get_alternative<Index + 1>(in, index, value);
    return get(in, value.template emplace<Index>());
  }
}

template <class... T>
bool get(Reader& in, std::variant<T...>& value) {
  std::uint64_t count = 0;
  std::uint64_t index = 0;
  return in.array(count, 1) && count == 2 && in.unsigned_integer(index) && get_alternative(in, index, value);
}

// The program of the block reports values that its table refuses: a message is not dropped for them.
template <class Config>
bool get_block(Reader& in, Config& config, Config (*read)(const yaml::Node&, yaml::Diagnostics&)) {
  yaml::Node block;
  yaml::Diagnostics ignored("");
  if (!get(in, block)) return false;
  config = read(block, ignored);
  return true;
}

bool get(Reader& in, converters::ConvertConfig& config) {
  return get_block(in, config, converters::read_convert_config);
}
bool get(Reader& in, trainer::TrainConfig& config) {
  return get_block(in, config, trainer::read_train_config);
}
bool get(Reader& in, propose::ProposeConfig& config) {
  return get_block(in, config, propose::read_propose_config);
}

template <std::size_t Kind = 0>
bool get_kind(Reader& in, std::uint64_t kind, std::uint64_t count, Message& message) {
  if constexpr (Kind == std::variant_size_v<Message>) {
    return false;
  } else {
    if (kind != Kind) return get_kind<Kind + 1>(in, kind, count, message);
    using T = std::variant_alternative_t<Kind, Message>;
    return count == 1 + std::tuple_size_v<decltype(Layout<T>::fields)> &&
           get_fields(in, message.emplace<Kind>());
  }
}

}  // namespace

std::string encode(const Message& message) {
  StringSink sink;
  Packer out(sink);
  std::visit(
      [&]<class T>(const T& value) {
        out.pack_array(static_cast<std::uint32_t>(1 + std::tuple_size_v<decltype(Layout<T>::fields)>));
        out.pack(static_cast<std::uint32_t>(message.index()));
        put_fields(out, value);
      },
      message);
  return std::move(sink.bytes);
}

std::optional<Message> decode(std::string_view bytes) {
  if (bytes.size() > kMaxMessageBytes) return std::nullopt;
  Reader in(bytes);
  std::uint64_t count = 0;
  std::uint64_t kind = 0;
  if (!in.array(count, 1) || count == 0 || !in.unsigned_integer(kind)) return std::nullopt;
  Message message;
  if (!get_kind(in, kind, count, message) || !in.at_end()) return std::nullopt;
  return message;
}

}  // namespace wflow::engine::wire
