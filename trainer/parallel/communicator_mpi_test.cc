// SPDX-License-Identifier: Apache-2.0
// mpirun runs this on 1 to 8 ranks, with WFLOW_RANKS_PER_GROUP for several nodes. Not a GoogleTest program:
// all ranks must take the same path, so a failed check ends all ranks.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "trainer/parallel/communicator.h"
#include "trainer/parallel/gradient_exchange.h"

namespace wflow::trainer {
namespace {

void check(Communicator& communicator, bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d: %s\n", communicator.rank(), what);
  communicator.abort(1);
}

// Values of such different sizes that every other order of the additions gives other bits.
float term(int rank, std::size_t i) {
  const float size = (i + static_cast<std::size_t>(rank)) % 3 == 0 ? 1e4F : 1.0F;
  return size / static_cast<float>(3 + rank * 7 + static_cast<int>(i % 101));
}

std::vector<float> terms_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = term(rank, i);
  return values;
}

float tree_sum(std::vector<float> values) {
  for (std::size_t stride = 1; stride < values.size(); stride *= 2) {
    for (std::size_t left = 0; left + stride < values.size(); left += 2 * stride)
      values[left] += values[left + stride];
  }
  return values[0];
}

// Number of ranks that act as a node. Open MPI's component for shared windows may be switched off.
int group_size(const Communicator& c) {
  const char* windows = std::getenv("OMPI_MCA_osc");
  if (windows != nullptr && std::string(windows) == "^sm") return 1;
  const char* text = std::getenv("WFLOW_RANKS_PER_GROUP");
  return text == nullptr ? c.size() : std::stoi(text);
}

// A node's sums, in the documented order.
std::vector<float> group_sums(const Communicator& c, std::size_t i) {
  std::vector<float> sums;
  for (int first = 0; first < c.size(); first += group_size(c)) {
    std::vector<float> values;
    for (int rank = first; rank < std::min(c.size(), first + group_size(c)); ++rank)
      values.push_back(term(rank, i));
    sums.push_back(tree_sum(values));
  }
  return sums;
}

bool same_on_all_ranks(Communicator& c, std::span<const float> values) {
  const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  const std::vector<std::string> all = c.all_gather(bytes);
  return std::ranges::all_of(all, [&](const std::string& other) { return other == bytes; });
}

void sums_are_the_trees(Communicator& c) {
  const int groups = (c.size() + group_size(c) - 1) / group_size(c);
  check(c, c.groups() == groups, "number of groups");
  for (const std::size_t count : {0U, 1U, 2U, 3U, 7U, 1000U, 262'144U, 1'700'001U}) {
    std::vector<float> values = terms_of(c.rank(), count);
    c.all_reduce(values);
    bool exact = true;
    // A part of a large array.
    for (std::size_t i = 0; i < count; i += i < 5000 ? 1 : 13)
      exact = exact && values[i] == tree_sum(group_sums(c, i));
    check(c, exact, "all_reduce is not the tree's sum");
  }
}

// Starts many sums at once without waiting between them.
void sums_follow_each_other(Communicator& c) {
  std::vector<std::vector<float>> arrays;
  for (std::size_t i = 0; i < 40; ++i) arrays.emplace_back(i * 37 % 11, static_cast<float>(i));
  Communicator::Ticket last = 0;
  for (std::vector<float>& array : arrays) last = c.start_all_reduce(array);
  c.wait(last);
  bool exact = true;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    for (const float value : arrays[i])
      exact = exact && value == static_cast<float>(i) * static_cast<float>(c.size());
  }
  check(c, exact, "sums that follow each other");
}

void half_is_close(Communicator& c) {
  constexpr std::size_t kCount = 70'001;
  constexpr std::size_t kExact = 5;
  std::vector<float> values = terms_of(c.rank(), kCount);
  c.all_reduce(values, {true, 7, 0, kExact});
  bool exact = true;
  bool close = true;
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::vector<float> sums = group_sums(c, i);
    const float sum = tree_sum(sums);
    if (c.groups() == 1 || i < kExact) {
      exact = exact && values[i] == sum;
      continue;
    }
    // Each node's sum and the total are off by less than the last of 8 bits.
    float most = std::abs(sum);
    for (const float part : sums) most += std::abs(part);
    close = close && std::abs(values[i] - sum) <= most * 0x1.02p-7F;
    error += static_cast<double>(values[i]) - static_cast<double>(sum);
    size += static_cast<double>(sum);
  }
  check(c, exact, "half: values that travel whole");
  check(c, close, "half: not within its tolerance");
  check(c, std::abs(error) <= 1e-4 * size, "half: the rounding is biased");
  check(c, same_on_all_ranks(c, values), "half: the ranks have different bits");
  const auto again = [&](std::uint64_t seed) {
    std::vector<float> other = terms_of(c.rank(), kCount);
    c.all_reduce(other, {true, seed, 0, kExact});
    return other;
  };
  check(c, again(7) == values, "half: another result the second time");
  check(c, c.groups() == 1 || again(8) != values, "half: the seed is not used");
  // One sum and several give the same bits.
  std::vector<float> parts = terms_of(c.rank(), kCount);
  const std::span<float> all(parts);
  c.all_reduce(all.first(3), {true, 7, 0, kExact});
  c.all_reduce(all.subspan(3, 1000), {true, 7, 3, kExact});
  c.all_reduce(all.subspan(1003), {true, 7, 1003, kExact});
  check(c, parts == values, "half: depends on how the array is cut");
}

void half_keeps_what_is_not_finite(Communicator& c) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 0.0F, 3.0F};
  c.all_reduce(values, {true, 1, 0, 0});
  check(c, values[0] == kInfinity && values[1] == -kInfinity && std::isnan(values[2]), "half: infinities");
  check(c, values[3] == 0 && values[4] == 3.0F * static_cast<float>(c.size()), "half: small whole numbers");
}

std::optional<std::string> refusal(Communicator& c, std::size_t count, const Wire& wire = {}) {
  std::vector<float> values(count);
  try {
    c.all_reduce(values, wire);
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

void different_lengths_are_refused(Communicator& c) {
  if (c.size() == 1) return;
  const auto last = c.rank() == c.size() - 1;
  for (const auto& [most, other] :
       {std::pair<std::size_t, std::size_t>{10, 9}, {0, 1}, {3'500'000, 3}, {1, 0}}) {
    const std::optional<std::string> sentence = refusal(c, last ? other : most);
    check(c, sentence.has_value(), "different lengths are summed");
    const std::string range =
        "from " + std::to_string(std::min(most, other)) + " to " + std::to_string(std::max(most, other));
    check(c, sentence->find(range) != std::string::npos, "the sentence does not name the lengths");
  }
  check(c, refusal(c, last ? 16 : 17, {true, 0, 0, 16}).has_value(), "half: different lengths are summed");
  check(c, !refusal(c, 5).has_value(), "after a refusal nothing works");
}

void bytes_reach_all(Communicator& c) {
  const std::vector<std::string> parts = c.all_gather(std::string(static_cast<std::size_t>(c.rank()), 'x'));
  check(c, static_cast<int>(parts.size()) == c.size(), "all_gather lost a rank");
  for (int rank = 0; rank < c.size(); ++rank) {
    check(c, parts[static_cast<std::size_t>(rank)] == std::string(static_cast<std::size_t>(rank), 'x'),
          "all_gather mixed the ranks");
  }
  std::string text = c.rank() == 0 ? std::string(100'000, 'a') + "end" : "something else";
  c.broadcast(text);
  check(c, text.size() == 100'003 && text.ends_with("end"), "broadcast");
}

void buckets_are_summed(Communicator& c) {
  std::vector<float> values(10'000);
  GradientExchange exchange(c, values, 1000);
  check(c, exchange.buckets() == 10, "number of buckets");
  for (int round = 0; round < 3; ++round) {
    // The last positions first; rank 1 leaves everything to finish(), as a rank without samples does.
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
}

void all_tests(Communicator& c) {
  check(c, c.grid().ranks() == c.size() && c.grid().space == 1, "grid");
  sums_are_the_trees(c);
  sums_follow_each_other(c);
  half_is_close(c);
  half_keeps_what_is_not_finite(c);
  different_lengths_are_refused(c);
  bytes_reach_all(c);
  buckets_are_summed(c);
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
