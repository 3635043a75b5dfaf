// SPDX-License-Identifier: Apache-2.0
// mpirun runs this on 1 to 8 ranks: sums and parts whose bits do not depend on the number of ranks. All ranks
// take the same path, so a failed check ends all ranks.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "trainer/parallel/exact_sums.h"
#include "trainer/parallel/sample_parts.h"

namespace wflow::trainer {
namespace {

constexpr int kTerms = 40;  // of each sum
constexpr std::size_t kSums = 3000;
constexpr int kParts = 8;

void check(Communicator& communicator, bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d: %s\n", communicator.rank(), what);
  communicator.abort(1);
}

// Sizes from 1e-13 to 1e8, of both signs.
float term(int number, std::size_t at) {
  const std::uint64_t random = hash64(static_cast<std::uint64_t>(number), at);
  const double size = std::pow(10.0, 21 * unit_real(random) - 13);
  return static_cast<float>(random % 2 == 0 ? size : -size);
}

std::vector<float> terms(int number) {
  std::vector<float> all(kSums);
  for (std::size_t at = 0; at < kSums; ++at) all[at] = term(number, at);
  return all;
}

// The terms of a sum need 92 bits at most; a long double has 64.
float reference(std::size_t at) {
  __extension__ __int128 sum = 0;
  for (int number = 0; number < kTerms; ++number)
    sum += static_cast<decltype(sum)>(std::ldexp(static_cast<long double>(term(number, at)), 67));
  return std::ldexp(static_cast<float>(sum), -67);
}

void sums_do_not_depend_on_the_order(Communicator& c) {
  std::vector<float> expected(kSums);
  for (std::size_t at = 0; at < kSums; ++at) expected[at] = reference(at);
  ExactSums sums(kSums);
  std::vector<float> found(kSums);
  for (const int turn : {0, 7, 23}) {
    // Each rank adds some of the terms, forwards or backwards, and one array in two pieces.
    for (int i = 0; i < kTerms; ++i) {
      const int number = (turn % 2 == 0 ? i : kTerms - 1 - i);
      if (hash64(static_cast<std::uint64_t>(number + turn), 1) % static_cast<std::uint64_t>(c.size()) !=
          static_cast<std::uint64_t>(c.rank()))
        continue;
      const std::vector<float> all = terms(number);
      sums.add(100, std::span(all).subspan(100));
      sums.add(0, std::span(all).first(100));
    }
    sums.take(c, found);
    check(c, found == expected, "an exact sum depends on the order of its terms or on the ranks");
  }
}

void small_and_wrong_terms(Communicator& c) {
  ExactSums sums(3);
  std::vector<float> found(3);
  const float tiny = std::ldexp(1.0F, ExactSums::kQuantum);
  sums.add(0, std::array{tiny, tiny / 2, -0.0F});
  sums.take(c, found);
  check(c, found == std::vector{tiny * static_cast<float>(c.size()), 0.0F, 0.0F}, "a quantum is not exact");
  for (const float wrong : {std::numeric_limits<float>::infinity(), std::nanf(""), 1e13F}) {
    if (c.rank() == c.size() - 1) sums.add(1, {&wrong, 1});
    sums.take(c, found);
    check(c, std::ranges::all_of(found, [](float value) { return std::isnan(value); }),
          "a sum with an infinite term is not NaN on all ranks");
    sums.take(c, found);
    check(c, found == std::vector(3, 0.0F), "a wrong term is in the next sum, too");
  }
}

// Each part passes numbers round the ring, both ways at once and out of order, and adds up.
double number_of_part(RankGroup& group) {
  const int size = group.size();
  const int next = (group.rank() + 1) % size;
  const int last = (group.rank() + size - 1) % size;
  const std::array<double, 2> own = {1.0 / (group.rank() + 3), 1e6 / (group.rank() + 7)};
  std::array<double, 4> got = {};
  const auto bytes = [](double& number) { return std::as_writable_bytes(std::span(&number, 1)); };
  const auto sent = [](const double& number) { return std::as_bytes(std::span(&number, 1)); };
  const auto first = group.start_exchange({{next, sent(own[0])}, {last, sent(own[1])}},
                                          {{last, bytes(got[0])}, {next, bytes(got[1])}});
  const auto second = group.start_exchange({{next, sent(own[1])}}, {{last, bytes(got[2])}});
  group.wait(second);
  group.wait(first);
  group.exchange({{group.rank(), sent(own[0])}}, {{group.rank(), bytes(got[3])}});
  std::array<double, 3> sums = {own[0], got[0] * got[1], got[2] - got[3]};
  group.sum_by_rank(sums);
  return sums[0] + sums[1] * sums[2];
}

void parts_are_ranks(Communicator& c) {
  std::vector<int> owners;
  for (int part = 0; part < kParts; ++part) owners.push_back(part * c.size() / kParts);
  // The parts of one rank, in a world of its own.
  const std::unique_ptr<Communicator> alone = c.split(c.rank());
  SampleParts here(*alone, std::vector<int>(kParts, 0), 3);
  SampleParts shared(c, owners, 1);
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<double> expected(kParts);
    here.run([&](std::size_t i) { expected[i] = number_of_part(here.group(i)); });
    std::vector<double> found(shared.own().size());
    shared.run([&](std::size_t i) { found[i] = number_of_part(shared.group(i)); });
    for (std::size_t i = 0; i < found.size(); ++i)
      check(c, found[i] == expected[static_cast<std::size_t>(shared.own()[i])],
            "a part's number depends on the ranks");
  }
}

void errors_of_parts_are_thrown(Communicator& c) {
  const std::unique_ptr<Communicator> alone = c.split(c.rank());
  SampleParts parts(*alone, std::vector<int>(kParts, 0), 2);
  for (const bool all : {false, true}) {
    std::string found;
    try {
      parts.run([&](std::size_t i) {
        if (all || i == 3) throw Error(ExitCode::data, "part 3 is wrong");
        number_of_part(parts.group(i));
      });
    } catch (const Error& error) {
      found = error.what();
    }
    check(c, found == "part 3 is wrong", "an error of a part is lost");
  }
}

// Part 0 fails, part 4 on another rank waits for it, and part 1, on the first rank, for part 4: ends all
// ranks.
void an_error_ends_ranks_that_wait(Communicator& c) {
  std::vector<int> owners;
  for (int part = 0; part < kParts; ++part) owners.push_back(part * c.size() / kParts);
  SampleParts parts(c, owners, 2);
  parts.run([&](std::size_t i) {
    const int part = parts.own()[i];
    double number = 0;
    if (part == 0) throw Error(ExitCode::data, "part 0 is wrong");
    if (part == 1 || part == kParts / 2)
      parts.group(i).exchange({},
                              {{part == 1 ? kParts / 2 : 0, std::as_writable_bytes(std::span(&number, 1))}});
  });
}

}  // namespace
}  // namespace wflow::trainer

int main(int argc, char** argv) {
  wflow::trainer::Communicator communicator(argc, argv);
  if (argc > 1) {  // with an error
    wflow::trainer::an_error_ends_ranks_that_wait(communicator);
    return 0;
  }
  wflow::trainer::sums_do_not_depend_on_the_order(communicator);
  wflow::trainer::small_and_wrong_terms(communicator);
  wflow::trainer::parts_are_ranks(communicator);
  wflow::trainer::errors_of_parts_are_thrown(communicator);
  communicator.barrier();
  return 0;
}
