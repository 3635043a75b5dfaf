// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/disk_limit.h"

#include <algorithm>

namespace wflow::engine {

namespace {

// So many elements of an array are measured as fast as they end, the others seldom.
constexpr std::uint64_t kFirstLooks = 32;
constexpr double kMeasureAgain_s = 0.5;

bool has_begun(ElementState state) {
  return state == ElementState::done || state == ElementState::failed || state == ElementState::hard_failed;
}

}  // namespace

DiskLimit::DiskLimit(const std::vector<TaskArray>& arrays) : arrays_(arrays), source_of_(arrays.size(), 0) {
  for (ArrayId id = 0; id < arrays_.size(); ++id) {
    const ArraySpec& spec = arrays_[id].spec;
    if (!spec.deletes_input || spec.max_disk_bytes == 0) continue;
    limit_bytes_ = spec.max_disk_bytes;
    for (const specs::Edge& edge : spec.edges) {
      if (edge.kind != specs::EdgeKind::block) continue;
      Source source;
      source.array = edge.parent;
      source.deleter = id;
      source.edge = edge;
      sources_.push_back(std::move(source));
    }
  }
  std::sort(sources_.begin(), sources_.end(),
            [](const Source& a, const Source& b) { return a.array < b.array; });
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    source_of_[sources_[i].array] = static_cast<std::uint32_t>(i + 1);
    source_of_[sources_[i].deleter] = static_cast<std::uint32_t>(i + 1);
  }
}

const DiskLimit::Source* DiskLimit::find(ArrayId array) const {
  const std::uint32_t place = source_of_[array];
  return place == 0 || sources_[place - 1].array != array ? nullptr : &sources_[place - 1];
}

Range DiskLimit::blocks_of(const Source& source, Range elements) const {
  const Blocks blocks = source.edge.blocks();
  return {blocks.block_of(elements.first), blocks.block_of(elements.last)};
}

Range DiskLimit::elements_of(const Source& source, Range blocks) const {
  const std::uint64_t count = arrays_[source.array].spec.count;
  const Blocks all = source.edge.blocks();
  return {all.items(blocks.first, count).first, all.items(blocks.last, count).end - 1};
}

// Samples of one process start together, whichever blocks they are of.
Range DiskLimit::whole_bundles(const Source& source, Range elements) const {
  const ArraySpec& spec = arrays_[source.array].spec;
  if (spec.bundle <= 1) return elements;
  const Blocks bundles = spec.bundles();
  return {bundles.around(elements.first, spec.count).first,
          bundles.around(elements.last, spec.count).end - 1};
}

// ---- events

void DiskLimit::start() {
  for (Source& source : sources_) {
    const TaskArray& array = arrays_[source.array];
    const TaskArray& deleter = arrays_[source.deleter];
    IntervalSet begun;
    array.states.for_each([&](Range part, ElementState state) {
      if (has_begun(state)) begun.add(blocks_of(source, part));
    });
    for (const auto& [element, attempt] : array.attempts) begun.add(blocks_of(source, {element, element}));
    deleter.states.for_each([&](Range blocks, ElementState state) {
      if (!has_ended(state)) return;
      begun.remove(blocks);
      if (state == ElementState::done) return;
      // Its simulations' files stay.
      array.states.for_each_in(elements_of(source, blocks), [&](Range part, ElementState left) {
        if (left == ElementState::done) source.released.add(part);
      });
    });
    std::vector<Range> blocks;
    begun.for_each([&](Range range) { blocks.push_back(range); });
    for (const Range& range : blocks) {
      source.open.add(range);
      source.released.add(whole_bundles(source, elements_of(source, range)));
    }
    array.states.for_each([&](Range part, ElementState state) {
      if (state != ElementState::done || source.candidate) return;
      source.released.for_each_in(part, [&](Range there) {
        if (!source.candidate) source.candidate = there.first;
      });
    });
  }
}

std::vector<Range> DiskLimit::hold_back(ArrayId id, std::span<const Range> parts) {
  Source& source = *find(id);
  IntervalSet now, later;
  for (const Range& part : parts) {
    later.add(part);
    source.released.for_each_in(part, [&](Range range) { now.add(range); });
    // One that runs again for its own sake, and not for its block.
    arrays_[source.deleter].states.for_each_in(
        blocks_of(source, part), [&](Range blocks, ElementState state) {
          if (state != ElementState::done) return;
          const Range all = elements_of(source, blocks);
          now.add(Range{std::max(all.first, part.first), std::min(all.last, part.last)});
        });
  }
  std::vector<Range> free, held;
  now.for_each([&](Range range) { free.push_back(range); });
  later.remove(free);
  later.for_each([&](Range range) { held.push_back(range); });
  source.held_back.add(held);
  return free;
}

void DiskLimit::forget(ArrayId id, Range range) {
  if (Source* source = find(id); source != nullptr && !source->held_back.empty())
    source->held_back.remove(range);
}

std::vector<Range> DiskLimit::begun(ArrayId id, Range range) {
  std::vector<Range> free;
  Source* source = find(id);
  if (source == nullptr || source->released.contains(range)) return free;  // nearly always
  IntervalSet others;
  others.add(range);
  std::vector<Range> known;
  source->released.for_each_in(range, [&](Range part) { known.push_back(part); });
  others.remove(known);
  IntervalSet blocks;
  others.for_each([&](Range part) { blocks.add(blocks_of(*source, part)); });
  std::vector<Element> begun;
  blocks.for_each([&](Range part) {
    arrays_[source->deleter].states.for_each_in(part, [&](Range run, ElementState state) {
      for (Element block = run.first; state != ElementState::done && block <= run.last; ++block)
        begun.push_back(block);
    });
  });
  for (const Element block : begun) {
    for (const Range& freed : release_block(*source, block)) free.push_back(freed);
  }
  return free;
}

void DiskLimit::ended(ArrayId id, Range range, ElementState state) {
  const std::uint32_t place = source_of_[id];
  if (place == 0) return;
  Source& source = sources_[place - 1];
  if (id == source.array) {
    if (state == ElementState::done && source.released.contains({range.first, range.first}))
      source.candidate = range.first;
    range = blocks_of(source, range);
  } else if (state == ElementState::done) {
    source.released.remove(elements_of(source, range));
    source.open.remove(range);
  }
  // A block is open until its conversion has ended, and, where that was cancelled before, its simulations
  // have.
  std::vector<Range> closed;
  source.open.for_each_in(range, [&](Range part) {
    arrays_[source.deleter].ended.for_each_in(part, [&](Range run) {
      for (Element block = run.first; block <= run.last; ++block) {
        if (arrays_[source.array].ended.contains(elements_of(source, {block, block})))
          closed.push_back({block, block});
      }
    });
  });
  for (const Range& block : closed) source.open.remove(block);
}

// ---- what may begin

std::vector<Range> DiskLimit::release_block(Source& source, Element block) {
  const Range elements = whole_bundles(source, elements_of(source, {block, block}));
  source.open.add(Range{block, block});
  source.released.add(elements);
  std::vector<Range> free;
  source.held_back.for_each_in(elements, [&](Range part) { free.push_back(part); });
  source.held_back.remove(free);
  return free;
}

// Strict order: a block that does not fit blocks later ones, to avoid starvation.
std::vector<std::pair<ArrayId, Range>> DiskLimit::release() {
  std::vector<std::pair<ArrayId, Range>> parts;
  for (Source& source : sources_) {
    while (const auto first = source.held_back.front(1)) {
      const Element block = blocks_of(source, *first).first;
      const bool fitting = fits(source, block);
      if (!fitting && any_open()) return parts;
      for (const Range& part : release_block(source, block)) parts.emplace_back(source.array, part);
      if (!fitting && size_of(source) && !std::exchange(told_, true)) overrun_ = used_bytes();
    }
  }
  return parts;
}

bool DiskLimit::any_open() const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [](const Source& source) { return !source.open.empty(); });
}

bool DiskLimit::fits(const Source& source, Element block) const {
  const auto size = size_of(source);
  if (!size) return false;
  const Range elements = whole_bundles(source, elements_of(source, {block, block}));
  std::uint64_t more = elements.size();
  source.released.for_each_in(elements, [&](Range part) { more -= part.size(); });
  return used_bytes() + static_cast<double>(more) * *size <= static_cast<double>(limit_bytes_);
}

// ---- sizes

// Without a measurement of the source, the largest mean of its step.
std::optional<double> DiskLimit::size_of(const Source& source) const {
  if (source.measured > 0) return source.measured_bytes / static_cast<double>(source.measured);
  std::optional<double> largest;
  for (const Source& other : sources_) {
    if (other.measured == 0 || arrays_[other.array].spec.step != arrays_[source.array].spec.step) continue;
    largest = std::max(largest.value_or(0), other.measured_bytes / static_cast<double>(other.measured));
  }
  return largest;
}

double DiskLimit::used_bytes() const {
  double used = 0;
  for (const Source& source : sources_) {
    if (!source.released.empty())
      used += static_cast<double>(source.released.size()) * size_of(source).value_or(0);
  }
  return used;
}

std::vector<MeasureOutputs> DiskLimit::take_measurements(double now_s) {
  std::vector<MeasureOutputs> wanted;
  for (Source& source : sources_) {
    if (source.asked || !source.candidate) continue;
    if (source.measured >= kFirstLooks && now_s < source.next_look_s) continue;
    source.next_look_s = now_s + kMeasureAgain_s;
    source.asked = true;
    wanted.push_back({source.array, *std::exchange(source.candidate, std::nullopt)});
  }
  return wanted;
}

void DiskLimit::measured(ArrayId id, std::optional<std::uint64_t> bytes) {
  Source* source = id < arrays_.size() ? find(id) : nullptr;
  if (source == nullptr) return;
  source->asked = false;
  if (!bytes) return;
  ++source->measured;
  source->measured_bytes += static_cast<double>(*bytes);
}

std::uint64_t DiskLimit::held_back(ArrayId id) const {
  const Source* source = find(id);
  return source == nullptr ? 0 : source->held_back.size();
}

bool DiskLimit::holds_any() const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [](const Source& source) { return !source.held_back.empty(); });
}

}  // namespace wflow::engine
