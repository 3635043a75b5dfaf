// SPDX-License-Identifier: Apache-2.0
// Run by mpirun on 2 and 3 ranks. Not a GoogleTest program: all ranks must take the same path, so a failed
// check ends them all.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "trainer/parallel/communicator.h"
#include "trainer/parallel/gradient_exchange.h"

namespace wflow::trainer {
namespace {

void check(Communicator& communicator, bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d: %s\n", communicator.rank(), what);
  communicator.abort(1);
}

float term(int rank, std::size_t i) {
  return 1.0F / static_cast<float>(3 + rank * 7 + static_cast<int>(i % 101));
}

// The additions in the documented order.
float tree_sum(int ranks, std::size_t i) {
  std::vector<float> values;
  for (int rank = 0; rank < ranks; ++rank) values.push_back(term(rank, i));
  for (std::size_t stride = 1; stride < values.size(); stride *= 2) {
    for (std::size_t left = 0; left + stride < values.size(); left += 2 * stride)
      values[left] += values[left + stride];
  }
  return values[0];
}

void all_tests(Communicator& c) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{1000}, std::size_t{3'000'001}}) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = term(c.rank(), i);
    c.all_reduce(values);
    bool exact = true;
    for (std::size_t i = 0; i < count; ++i) exact = exact && values[i] == tree_sum(c.size(), i);
    check(c, exact, "all_reduce is not the tree's sum");
  }
  const std::vector<std::string> parts = c.all_gather(std::string(static_cast<std::size_t>(c.rank()), 'x'));
  check(c, static_cast<int>(parts.size()) == c.size(), "all_gather lost a rank");
  for (int rank = 0; rank < c.size(); ++rank) {
    check(c, parts[static_cast<std::size_t>(rank)].size() == static_cast<std::size_t>(rank),
          "all_gather mixed the ranks");
  }
  std::string text = c.rank() == 0 ? std::string(100'000, 'a') + "end" : "something else";
  c.broadcast(text);
  check(c, text.size() == 100'003 && text.ends_with("end"), "broadcast");

  std::vector<float> values(10'000);
  GradientExchange exchange(c, values, 1000);
  check(c, exchange.buckets() == 10, "number of buckets");
  for (int round = 0; round < 3; ++round) {
    // The last places first; rank 1 leaves everything to finish(), as a rank without samples does.
    std::size_t end = values.size();
    for (const std::size_t from : {9'000, 6'500, 2'000, 0}) {
      std::fill(values.begin() + static_cast<std::ptrdiff_t>(from),
                values.begin() + static_cast<std::ptrdiff_t>(end), 1.0F);
      end = from;
      if (c.rank() != 1) exchange.ready(static_cast<std::int64_t>(from));
    }
    exchange.finish();
    bool summed = true;
    for (const float v : values) summed = summed && v == static_cast<float>(c.size());
    check(c, summed, "gradient exchange");
  }
  c.barrier();
}

}  // namespace
}  // namespace wflow::trainer

int main(int argc, char** argv) {
  wflow::trainer::Communicator communicator(argc, argv);
  if (argc > 1 && communicator.size() != std::stoi(argv[1])) {
    std::fprintf(stderr, "the world has %d ranks, expected %s\n", communicator.size(), argv[1]);
    return 1;
  }
  wflow::trainer::all_tests(communicator);
  return 0;
}
