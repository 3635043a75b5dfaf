// SPDX-License-Identifier: Apache-2.0
// The addresses of a simulator's draws, and the types of its traces: addresses.json beside recorded traces
// and in data sets made of them. Sorted by address, so that two builds of a simulator give the same table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "traces/distribution.h"

namespace wflow::traces {

inline constexpr int kAddressFormat = 1;
inline constexpr const char* kAddressFile = "addresses.json";

// 48 bits, which two numbers of 24 bits hold in a row of a trace.
std::uint64_t address_hash(std::string_view address);
inline double high_half(std::uint64_t hash) {
  return static_cast<double>(hash >> 24);
}
inline double low_half(std::uint64_t hash) {
  return static_cast<double>(hash & 0xffffff);
}
inline std::uint64_t hash_of_halves(double high, double low) {
  return (static_cast<std::uint64_t>(high) << 24) | static_cast<std::uint64_t>(low);
}

// Names a sequence of addresses: the type of a trace, 48 bits.
class TypeHash {
 public:
  void add(std::uint64_t address) { hash_ = hash64(hash_, address); }
  std::uint64_t value() const { return hash_ >> 16; }

 private:
  std::uint64_t hash_ = 0;
};

struct Address {
  std::string name;
  Kind kind = Kind::none;
  std::uint32_t categories = 0;  // categorical: the most that a draw had
  bool proposed = true;          // false: drawn from the prior, as in a simulator's own rejection loops
  std::uint64_t count = 0;       // draws
};

struct TraceType {
  std::uint64_t draws = 0;
  std::uint64_t count = 0;  // traces
};

class AddressTable {
 public:
  // Counts draws at the address. Error{data} if it was there with another kind, or if another address has its
  // hash.
  void add(const Address& address);
  // Counts a trace: `type` is the hash of its addresses in order.
  void add_type(std::uint64_t type, std::uint64_t draws, std::uint64_t count = 1);
  void add_tag(const std::string& name) { tags_.insert(name); }
  void merge(const AddressTable& other);

  std::size_t size() const { return addresses_.size(); }
  std::vector<Address> addresses() const;  // sorted by name
  // Number in addresses(), by the hash.
  std::map<std::uint64_t, std::size_t> numbers() const;
  const std::map<std::uint64_t, TraceType>& types() const { return types_; }
  const std::set<std::string>& tags() const { return tags_; }
  std::uint64_t traces() const;
  // Identifies addresses and kinds, whatever their counts.
  std::string identity() const;
  // "traces of 12 types, 41 to 1780 draws, at 523 addresses"
  std::string summary() const;

  nlohmann::json to_json() const;

 private:
  struct Entry {
    Address address;
    std::uint64_t hash = 0;
  };
  std::map<std::string, Entry, std::less<>> addresses_;
  std::map<std::uint64_t, std::string> names_;
  std::map<std::uint64_t, TraceType> types_;
  std::set<std::string> tags_;
};

// Error{data} with `name` if the text is no such table.
AddressTable parse_address_table(const std::string& text, const std::string& name);
AddressTable read_address_table(const std::filesystem::path& file);

}  // namespace wflow::traces
