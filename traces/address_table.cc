// SPDX-License-Identifier: Apache-2.0
#include "traces/address_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace wflow::traces {
namespace {

Kind kind_called(const std::string& name) {
  for (std::uint8_t kind = 1; kind < kKinds; ++kind)
    if (name == name_of(static_cast<Kind>(kind))) return static_cast<Kind>(kind);
  return Kind::none;
}

}  // namespace

// FNV-1a with a finaliser.
std::uint64_t address_hash(std::string_view address) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : address) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix64(hash) >> 16;
}

void AddressTable::add(const Address& address) {
  const auto found = addresses_.find(address.name);
  if (found == addresses_.end()) {
    const std::uint64_t hash = address_hash(address.name);
    const auto [name, is_new] = names_.emplace(hash, address.name);
    if (!is_new)
      throw Error(ExitCode::data,
                  fmt::format("the addresses '{}' and '{}' have the same hash: give one of them another name",
                              name->second, address.name));
    addresses_.emplace(address.name, Entry{address, hash});
    return;
  }
  Address& known = found->second.address;
  if (known.kind != address.kind)
    throw Error(ExitCode::data, fmt::format("the address '{}' was {} and now is {}: each distribution needs "
                                            "an address of its own",
                                            address.name, name_of(known.kind), name_of(address.kind)));
  known.categories = std::max(known.categories, address.categories);
  known.proposed = known.proposed && address.proposed;
  known.count += address.count;
}

void AddressTable::add_type(std::uint64_t type, std::uint64_t draws, std::uint64_t count) {
  TraceType& entry = types_[type];
  entry.draws = draws;
  entry.count += count;
}

void AddressTable::merge(const AddressTable& other) {
  for (const auto& [name, entry] : other.addresses_) add(entry.address);
  tags_.insert(other.tags_.begin(), other.tags_.end());
  for (const auto& [type, entry] : other.types_) add_type(type, entry.draws, entry.count);
}

std::vector<Address> AddressTable::addresses() const {
  std::vector<Address> all;
  for (const auto& [name, entry] : addresses_) all.push_back(entry.address);
  return all;
}

std::map<std::uint64_t, std::size_t> AddressTable::numbers() const {
  std::map<std::uint64_t, std::size_t> numbers;
  std::size_t number = 0;
  for (const auto& [name, entry] : addresses_) numbers[entry.hash] = number++;
  return numbers;
}

std::uint64_t AddressTable::traces() const {
  std::uint64_t traces = 0;
  for (const auto& [type, entry] : types_) traces += entry.count;
  return traces;
}

std::string AddressTable::identity() const {
  std::string text;
  for (const auto& [name, entry] : addresses_)
    text += fmt::format("{} {} {} {}\n", name, name_of(entry.address.kind), entry.address.categories,
                        entry.address.proposed);
  return hash_bytes(text);
}

std::string AddressTable::summary() const {
  std::uint64_t least = types_.empty() ? 0 : ~std::uint64_t{0};
  std::uint64_t most = 0;
  for (const auto& [type, entry] : types_) {
    least = std::min(least, entry.draws);
    most = std::max(most, entry.draws);
  }
  return fmt::format("{} traces of {} types, {} to {} draws, at {} addresses", traces(), types_.size(), least,
                     most, addresses_.size());
}

nlohmann::json AddressTable::to_json() const {
  nlohmann::json json = {{"wflow_format", kAddressFormat},
                         {"addresses", nlohmann::json::array()},
                         {"types", nlohmann::json::array()}};
  for (const auto& [name, entry] : addresses_) {
    nlohmann::json one = {
        {"address", name}, {"kind", name_of(entry.address.kind)}, {"draws", entry.address.count}};
    if (entry.address.kind == Kind::categorical) one["categories"] = entry.address.categories;
    if (!entry.address.proposed) one["proposed"] = false;
    json["addresses"].push_back(std::move(one));
  }
  for (const auto& [type, entry] : types_)
    json["types"].push_back({{"type", type}, {"draws", entry.draws}, {"traces", entry.count}});
  if (!tags_.empty()) json["tags"] = tags_;
  return json;
}

AddressTable parse_address_table(const std::string& text, const std::string& name) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  try {
    if (json.at("wflow_format").get<int>() != kAddressFormat)
      throw Error(ExitCode::data, fmt::format("{} is of another version of wflow", name));
    AddressTable table;
    for (const nlohmann::json& one : json.at("addresses")) {
      Address address = {one.at("address"), kind_called(one.at("kind")), one.value("categories", 0U),
                         one.value("proposed", true), one.value("draws", std::uint64_t{0})};
      if (address.kind == Kind::none)
        throw Error(ExitCode::data,
                    fmt::format("{}: the address '{}' has no kind of distribution", name, address.name));
      table.add(address);
    }
    for (const nlohmann::json& one : json.at("types"))
      table.add_type(one.at("type"), one.at("draws"), one.at("traces"));
    for (const std::string tag : json.value("tags", nlohmann::json::array())) table.add_tag(tag);
    return table;
  } catch (const nlohmann::json::exception&) {
    throw Error(ExitCode::data, fmt::format("{} is no table of addresses", name));
  }
}

AddressTable read_address_table(const std::filesystem::path& file) {
  return parse_address_table(read_file(file), file.string());
}

}  // namespace wflow::traces
