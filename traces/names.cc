// SPDX-License-Identifier: Apache-2.0
#include "traces/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace wflow::traces {
namespace {

constexpr std::size_t kFirstSlots = 256;  // a power of two

}  // namespace

void NameTable::grow() {
  std::vector<Name*> larger(slots_.empty() ? kFirstSlots : 2 * slots_.size(), nullptr);
  for (Name& name : names_) {
    std::size_t at = name.hash & (larger.size() - 1);
    while (larger[at] != nullptr) at = (at + 1) & (larger.size() - 1);
    larger[at] = &name;
  }
  slots_ = std::move(larger);
}

Name& NameTable::find(std::string_view text) {
  const std::uint64_t hash = address_hash(text);
  if (2 * names_.size() >= slots_.size()) grow();
  std::size_t at = hash & (slots_.size() - 1);
  while (slots_[at] != nullptr) {
    if (slots_[at]->hash == hash) {
      if (slots_[at]->text == text) return *slots_[at];
      throw Error(ExitCode::data,
                  fmt::format("the addresses '{}' and '{}' have the same hash: give one of them another name",
                              slots_[at]->text, text));
    }
    at = (at + 1) & (slots_.size() - 1);
  }
  Name& name = names_.emplace_back();
  name.text = text;
  name.hash = hash;
  slots_[at] = &name;
  return name;
}

Name& NameTable::next(std::string_view address, std::uint64_t run) {
  Name& first = find(address);
  if (first.run != run) {
    first.run = run;
    first.draws_of_run = 0;
  }
  const std::uint32_t number = ++first.draws_of_run;
  if (number == 1) return first;
  while (first.again.size() + 1 < number)
    first.again.push_back(&find(fmt::format("{}#{}", address, first.again.size() + 2)));
  return *first.again[number - 2];
}

AddressTable NameTable::addresses() const {
  AddressTable table = types_;
  for (const Name& name : names_)
    if (name.draws > 0) table.add({name.text, name.kind, name.categories, name.proposed, name.draws});
  return table;
}

void note_kind(NameTable& names, Name& name, const Distribution& prior, bool proposed) {
  const auto categories = prior.kind == Kind::categorical ? static_cast<std::uint32_t>(prior.p.size()) : 0U;
  if (name.kind == prior.kind && categories <= name.categories && (proposed || !name.proposed)) return;
  if (name.kind != Kind::none && name.kind != prior.kind)
    throw Error(ExitCode::data, fmt::format("the address '{}' was {} and now is {}: each distribution needs "
                                            "an address of its own",
                                            name.text, name_of(name.kind), name_of(prior.kind)));
  name.kind = prior.kind;
  name.categories = std::max(name.categories, categories);
  name.proposed = name.proposed && proposed;
  names.changed();
}

}  // namespace wflow::traces
