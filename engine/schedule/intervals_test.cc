// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/intervals.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace wflow::engine {
namespace {

TEST(IntervalSet, AgreesWithASimpleSet) {
  constexpr std::size_t kCount = 60;
  std::mt19937 random(7);
  IntervalSet set;
  std::vector<bool> reference(kCount);
  for (int step = 0; step < 20000; ++step) {
    Element a = random() % kCount;
    Element b = random() % kCount;
    if (a > b) std::swap(a, b);
    const bool add = random() % 2 == 0;
    add ? set.add({a, b}) : set.remove({a, b});
    for (Element i = a; i <= b; ++i) reference[i] = add;
    std::vector<bool> seen(kCount);
    std::size_t runs = 0;
    set.for_each_in({0, kCount - 1}, [&](Range r) {
      ++runs;
      for (Element i = r.first; i <= r.last; ++i) seen[i] = true;
    });
    ASSERT_EQ(seen, reference);
    ASSERT_EQ(set.run_count(), runs);
    ASSERT_EQ(set.size(), static_cast<std::uint64_t>(std::count(reference.begin(), reference.end(), true)));
    bool all = true;
    for (Element i = a; i <= b; ++i) all = all && reference[i];
    ASSERT_EQ(set.contains({a, b}), all);
  }
}

// Ranges of elements below `count`, in order and disjoint; some touch each other.
std::vector<Range> random_parts(std::mt19937& random, Element count) {
  std::vector<Range> parts;
  for (Element next = random() % 5; next < count;) {
    const Element last = std::min<Element>(next + random() % 6, count - 1);
    parts.push_back({next, last});
    next = last + 1 + (random() % 8 == 0 ? 15 : random() % 4);
  }
  return parts;
}

TEST(IntervalSet, ManyPartsAtOnceAreAsOneByOne) {
  constexpr Element kCount = 90;
  std::mt19937 random(11);
  IntervalSet set, reference;
  for (int step = 0; step < 4000; ++step) {
    const std::vector<Range> parts = random_parts(random, kCount);
    const bool add = random() % 2 == 0;
    add ? set.add(parts) : set.remove(parts);
    for (const Range& part : parts) add ? reference.add(part) : reference.remove(part);
    std::vector<Range> runs, expected;
    set.for_each([&](Range run) { runs.push_back(run); });
    reference.for_each([&](Range run) { expected.push_back(run); });
    ASSERT_EQ(runs, expected);
    ASSERT_EQ(set.size(), reference.size());
  }
}

TEST(IntervalMap, AgreesWithAVectorAndStaysMerged) {
  constexpr std::size_t kCount = 50;
  std::mt19937 random(9);
  IntervalMap<int> map;
  std::vector<int> reference(kCount, 0);  // 0: no value
  for (int step = 0; step < 20000; ++step) {
    Element a = random() % kCount;
    Element b = random() % kCount;
    if (a > b) std::swap(a, b);
    const int value = static_cast<int>(random() % 3);
    value == 0 ? map.erase({a, b}) : map.set({a, b}, value);
    for (Element i = a; i <= b; ++i) reference[i] = value;
    std::vector<int> seen(kCount, 0);
    map.for_each([&](Range r, int v) {
      for (Element i = r.first; i <= r.last; ++i) seen[i] = v;
    });
    ASSERT_EQ(seen, reference);
    std::size_t runs = reference[0] != 0;
    for (std::size_t i = 1; i < kCount; ++i) runs += reference[i] != 0 && reference[i] != reference[i - 1];
    ASSERT_EQ(map.is({a, b}, value), value != 0);
    ASSERT_EQ(map.run_count(), runs);
    const Element at = random() % kCount;
    const int* found = map.find(at);
    ASSERT_EQ(found == nullptr ? 0 : *found, reference[at]);
  }
}

enum class Colour : std::uint8_t { red, green, blue };

TEST(RunMap, AgreesWithAVectorAndStaysMerged) {
  constexpr std::size_t kCount = 50;
  std::mt19937 random(8);
  RunMap<Colour, 3> map(kCount, Colour::red);
  std::vector<Colour> reference(kCount, Colour::red);
  for (int step = 0; step < 20000; ++step) {
    Element a = random() % kCount;
    Element b = random() % kCount;
    if (a > b) std::swap(a, b);
    const auto colour = static_cast<Colour>(random() % 3);
    map.set({a, b}, colour);
    for (Element i = a; i <= b; ++i) reference[i] = colour;
    std::size_t runs = 1;
    for (std::size_t i = 1; i < kCount; ++i) runs += reference[i] != reference[i - 1];
    ASSERT_EQ(map.run_count(), runs);
    std::uint64_t reds = 0;
    for (Element i = 0; i < kCount; ++i) {
      ASSERT_EQ(map.at(i), reference[i]);
      reds += reference[i] == Colour::red;
    }
    ASSERT_EQ(map.total(Colour::red), reds);
  }
}

TEST(RunMap, ManyPartsAtOnceAreAsOneByOne) {
  constexpr Element kCount = 90;
  std::mt19937 random(12);
  RunMap<Colour, 3> map(kCount, Colour::red), reference(kCount, Colour::red);
  using Runs = std::vector<std::pair<Range, Colour>>;
  for (int step = 0; step < 4000; ++step) {
    const std::vector<Range> parts = random_parts(random, kCount);
    const auto colour = static_cast<Colour>(random() % 3);
    Runs seen, expected;
    const bool all = random() % 2 == 0;
    if (all) {
      map.set(parts, colour);
    } else {
      map.change(parts, [&](Range, Colour c) { return c == Colour::red ? c : colour; });
    }
    for (const Range& part : parts) {
      std::vector<Range> changed;
      reference.for_each_in(part, [&](Range run, Colour c) {
        if (all || c != Colour::red) changed.push_back(run);
      });
      for (const Range& run : changed) reference.set(run, colour);
    }
    map.for_each([&](Range run, Colour c) { seen.emplace_back(run, c); });
    reference.for_each([&](Range run, Colour c) { expected.emplace_back(run, c); });
    ASSERT_EQ(seen, expected);
    ASSERT_EQ(map.total(Colour::green), reference.total(Colour::green));
  }
}

TEST(RunMap, HundredMillionElementsAreOneRun) {
  RunMap<Colour, 3> map(100'000'000, Colour::red);
  for (Element first = 0; first < 100'000'000; first += 1'000'000)
    map.set({first, first + 999'999}, Colour::green);
  EXPECT_EQ(map.run_count(), 1u);
  EXPECT_EQ(map.total(Colour::green), 100'000'000u);
}

}  // namespace
}  // namespace wflow::engine
