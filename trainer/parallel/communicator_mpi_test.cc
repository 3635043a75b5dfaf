// SPDX-License-Identifier: Apache-2.0
// mpirun runs this on 1 to 8 ranks, with WFLOW_RANKS_PER_GROUP for several nodes. Not a GoogleTest program:
// all ranks must take the same path, so a failed check ends all ranks.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numeric>
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

// The sums of each `node` ranks over these ranks of the world, in the documented order.
std::vector<float> node_sums(const std::vector<int>& ranks, std::size_t node, std::size_t i) {
  std::vector<float> sums;
  for (std::size_t first = 0; first < ranks.size(); first += node) {
    std::vector<float> values;
    for (std::size_t at = first; at < std::min(ranks.size(), first + node); ++at)
      values.push_back(term(ranks[at], i));
    sums.push_back(tree_sum(values));
  }
  return sums;
}

std::vector<int> all_ranks(const Communicator& c) {
  std::vector<int> ranks(static_cast<std::size_t>(c.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<float> group_sums(const Communicator& c, std::size_t i) {
  return node_sums(all_ranks(c), static_cast<std::size_t>(group_size(c)), i);
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

// Parts of uneven lengths, in turn of the ranks and out of order; some values belong to all.
OwnedParts uneven_parts(const Communicator& c, std::size_t count) {
  OwnedParts parts;
  std::size_t at = 3;
  for (std::size_t i = 0; at < count; ++i) {
    const std::size_t end = std::min(count, at + 1 + i * i * 97 % 70'000);
    parts.push_back({static_cast<int>((i * 5 + 2) % static_cast<std::size_t>(c.size())), at, end});
    at = end + (i % 4 == 0 ? 16 : 0);
  }
  return parts;
}

// The rank that owns each value; -1: all ranks.
std::vector<int> owners_of(const OwnedParts& parts, std::size_t count) {
  std::vector<int> owners(count, -1);
  for (const OwnedPart& part : parts)
    for (std::size_t i = part.begin; i < part.end; ++i) owners[i] = part.rank;
  return owners;
}

void owned_sums_are_those_of_all(Communicator& c) {
  for (const std::size_t count : {0U, 2U, 7U, 1000U, 262'144U, 1'700'001U}) {
    for (const bool half : {false, true}) {
      const Wire wire = {half, 7, 0, 5};
      std::vector<float> all = terms_of(c.rank(), count);
      c.all_reduce(all, wire);
      std::vector<float> own = terms_of(c.rank(), count);
      const OwnedParts parts = uneven_parts(c, count);
      c.wait(c.start_reduce_scatter(own, parts, wire));
      const std::vector<int> owners = owners_of(parts, count);
      bool same = true;
      for (std::size_t i = 0; i < count; ++i)
        same = same && (own[i] == all[i] || (owners[i] >= 0 && owners[i] != c.rank()));
      check(c, same, "a reduce-scatter has other bits than the sum");
    }
  }
}

void parts_are_gathered(Communicator& c) {
  for (const std::size_t count : {0U, 2U, 7U, 1000U, 262'144U, 1'700'001U}) {
    const OwnedParts parts = uneven_parts(c, count);
    const std::vector<int> owners = owners_of(parts, count);
    std::vector<float> values(count, -1.0F);
    for (std::size_t i = 0; i < count; ++i)
      if (owners[i] == c.rank()) values[i] = term(owners[i], i);
    c.wait(c.start_gather(values, parts));
    bool right = true;
    for (std::size_t i = 0; i < count; ++i)
      right = right && values[i] == (owners[i] < 0 ? -1.0F : term(owners[i], i));
    check(c, right, "gathered parts are not those of their owners");
  }
}

void numbers_of_single_ranks_are_added_up(Communicator& c) {
  std::vector<double> values(static_cast<std::size_t>(3 * c.size()), 0.0);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i % static_cast<std::size_t>(c.size()) == static_cast<std::size_t>(c.rank()))
      values[i] = 0.1 * static_cast<double>(i);
  c.add_up(values);
  bool exact = true;
  for (std::size_t i = 0; i < values.size(); ++i) exact = exact && values[i] == 0.1 * static_cast<double>(i);
  check(c, exact, "add_up");
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

// Parts that are 0 on all ranks are not sent; the sums are those of all values.
void sparse_sums_are_the_same(Communicator& c) {
  constexpr std::size_t kParts = 40, kLength = 250, kBefore = 1000;
  ValueParts parts;
  for (std::size_t i = 0; i < kParts; ++i)
    parts.emplace_back(kBefore + i * kLength, kBefore + (i + 1) * kLength);
  std::vector<float> all(kBefore + kParts * kLength + 77);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = std::sin(static_cast<float>(i * 7 + 13) * (1.0F + static_cast<float>(c.rank())));
  // Part i is used by rank i % 10, if there is one: with at most 9 ranks there are parts that no rank uses.
  for (std::size_t i = 0; i < kParts; ++i) {
    if (i % 10 == static_cast<std::size_t>(c.rank())) continue;
    for (std::size_t k = parts[i].first; k < parts[i].second; ++k) all[k] = k % 2 == 0 ? 0.0F : -0.0F;
  }
  for (const std::int64_t bucket : {std::int64_t{1} << 20, std::int64_t{4500}}) {
    std::vector<float> dense = all;
    std::vector<float> sparse = all;
    GradientExchange(c, dense, bucket).finish();
    const std::uint64_t before = c.summed_values();
    GradientExchange exchange(c, sparse, bucket);
    exchange.send_used(parts);
    exchange.finish();
    bool same = true;
    for (std::size_t i = 0; i < all.size(); ++i) same = same && dense[i] == sparse[i];
    check(c, same, "sums without the parts that nobody uses");
    if (c.size() == 1 || c.size() > 9) continue;
    const std::uint64_t values = c.summed_values() - before;
    const std::size_t unused = kParts / 10 * (10 - static_cast<std::size_t>(c.size())) * kLength;
    check(c, values >= all.size() - unused && values <= all.size() - unused + 4 * kParts,
          "parts that are 0 are sent");
  }
}

void values_that_are_left_out_stay(Communicator& c) {
  std::vector<float> values(10'000, 1.0F);
  GradientExchange exchange(c, values, 1000);
  exchange.leave_out(300, 4500, 8200);
  exchange.ready(6'500);
  exchange.finish();
  bool right = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool summed = i < 300 || (i >= 4500 && i < 8200);
    right = right && values[i] == (summed ? static_cast<float>(c.size()) : 1.0F);
  }
  check(c, right, "gradients that are left out");
}

std::vector<std::byte> message(int from, int to, std::size_t bytes) {
  std::vector<std::byte> text(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    text[i] = static_cast<std::byte>(static_cast<std::size_t>(from * 31 + to * 7) + i * 13);
  return text;
}

// Every rank sends two messages to every rank, itself too: of other lengths, the first one also empty, and
// one longer than the messages that MPI sends at once.
void messages_reach_their_ranks(Communicator& c) {
  const auto length = [](int from, int to) { return static_cast<std::size_t>((from * 5 + to) % 3) * 1000; };
  for (const std::size_t more : {std::size_t{1}, std::size_t{300'001}}) {
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> received;
    for (const int other : all_ranks(c)) {
      for (const std::size_t bytes : {length(c.rank(), other), more})
        sent.push_back(message(c.rank(), other, bytes));
      for (const std::size_t bytes : {length(other, c.rank()), more}) received.emplace_back(bytes);
    }
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      outgoing.push_back({static_cast<int>(i / 2), sent[i]});
      incoming.push_back({static_cast<int>(i / 2), received[i]});
    }
    c.exchange(outgoing, incoming);
    for (std::size_t i = 0; i < received.size(); ++i)
      check(c, received[i] == message(static_cast<int>(i / 2), c.rank(), received[i].size()),
            "a message is wrong");
  }
  c.exchange({}, {});
}

std::optional<std::string> exchange_error(Communicator& c, const std::vector<Outgoing>& outgoing,
                                          const std::vector<Incoming>& incoming) {
  try {
    c.exchange(outgoing, incoming);
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

// The last rank sends `sent` bytes to rank 0, which expects 8.
void lengths_of_messages_are_compared(Communicator& c) {
  const int last = c.size() - 1;
  const std::vector<std::byte> text(16);
  std::vector<std::byte> buffer(8);
  for (const std::size_t sent : {std::size_t{8}, std::size_t{3}, std::size_t{16}}) {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    if (c.rank() == last) outgoing.push_back({0, std::span(text).first(sent)});
    if (c.rank() == 0) incoming.push_back({last, buffer});
    const std::optional<std::string> error = exchange_error(c, outgoing, incoming);
    const bool receives = c.rank() == 0;
    check(c, error.has_value() == (receives && sent != 8), "the length of a message is not compared");
    if (!error) continue;
    const std::string start = "rank " + std::to_string(last) + " of the group sent ";
    check(c, error->starts_with(start) && error->find("where 8 bytes were expected") != std::string::npos,
          "the sentence does not name the lengths");
  }
}

// The last rank begins its sum after the exchange. Rank 0 has begun its own before: if the exchange waited
// for it, this test would never end.
void exchanges_overtake_sums(Communicator& c) {
  const int last = c.size() - 1;
  std::vector<float> values(100'000, 1.0F);
  const bool late = c.size() > 1 && c.rank() == last;
  Communicator::Ticket sum = 0;
  if (!late) sum = c.start_all_reduce(values);
  for (int round = 0; round < 20; ++round) {
    const std::vector<std::byte> sent = message(c.rank(), round, 5000);
    std::vector<std::byte> received(5000);
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    if (c.rank() == 0) {
      outgoing.push_back({last, sent});
      incoming.push_back({last, received});
    }
    if (c.rank() == last && c.size() > 1) {
      outgoing.push_back({0, sent});
      incoming.push_back({0, received});
    }
    c.exchange(outgoing, incoming);
    if (!incoming.empty())
      check(c, received == message(incoming[0].from, round, 5000), "a message beside a sum is wrong");
  }
  if (late) sum = c.start_all_reduce(values);
  c.wait(sum);
  check(c, values.front() == static_cast<float>(c.size()), "the sum behind exchanges is wrong");
}

double double_term(int rank, std::size_t i) {
  return static_cast<double>(term(rank, i)) / 3;
}

void doubles_are_summed_by_rank(Communicator& c) {
  std::vector<double> values(77);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = double_term(c.rank(), i);
  c.sum_by_rank(values);
  bool exact = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::vector<double> terms;
    for (const int rank : all_ranks(c)) terms.push_back(double_term(rank, i));
    for (std::size_t stride = 1; stride < terms.size(); stride *= 2) {
      for (std::size_t left = 0; left + stride < terms.size(); left += 2 * stride)
        terms[left] += terms[left + stride];
    }
    exact = exact && values[i] == terms[0];
  }
  check(c, exact, "the sum of doubles is not the tree in order of rank");
}

// Sums over a group of these ranks of the world, in this order, while the other ranks do the same.
void check_group(Communicator& c, Communicator& group, const std::vector<int>& members) {
  check(c, group.size() == static_cast<int>(members.size()), "size of a group");
  check(c, members[static_cast<std::size_t>(group.rank())] == c.rank(), "order of a group");
  const auto node = static_cast<std::size_t>(std::min(group_size(c), group.size()));
  for (const std::size_t count : {0U, 1U, 1000U, 100'001U}) {
    std::vector<float> values = terms_of(c.rank(), count);
    group.all_reduce(values);
    bool exact = true;
    for (std::size_t i = 0; i < count; i += i < 5000 ? 1 : 13)
      exact = exact && values[i] == tree_sum(node_sums(members, node, i));
    check(c, exact, "a group's sum is not the tree's");
  }
  const std::vector<std::string> names = group.all_gather(std::to_string(c.rank()));
  for (std::size_t i = 0; i < members.size(); ++i)
    check(c, names[i] == std::to_string(members[i]), "a group's all_gather");
  std::string first = std::to_string(c.rank());
  group.broadcast(first);
  check(c, first == std::to_string(members[0]), "a group's broadcast");
  std::vector<double> sum = {static_cast<double>(c.rank())};
  group.sum_by_rank(sum);
  check(c, sum[0] == static_cast<double>(std::accumulate(members.begin(), members.end(), 0)),
        "a group's doubles");
  group.barrier();
}

void groups_sum_at_the_same_time(Communicator& c) {
  // Even and odd ranks, the last one first.
  std::vector<int> members;
  for (int rank = c.size() - 1; rank >= 0; --rank)
    if (rank % 2 == c.rank() % 2) members.push_back(rank);
  const std::unique_ptr<Communicator> half = c.split(c.rank() % 2, -c.rank());
  check_group(c, *half, members);
  // Sums of the world and of the groups in turn, without waits between them.
  std::vector<float> wide = terms_of(c.rank(), 5000);
  std::vector<float> narrow = wide;
  const Communicator::Ticket first = c.start_all_reduce(wide);
  const Communicator::Ticket second = half->start_all_reduce(narrow);
  c.wait(first);
  half->wait(second);
  const auto node = static_cast<std::size_t>(std::min(group_size(c), half->size()));
  for (const std::size_t i : {0U, 77U, 4999U}) {
    check(c, wide[i] == tree_sum(group_sums(c, i)), "the world's sum beside a group's");
    check(c, narrow[i] == tree_sum(node_sums(members, node, i)), "a group's sum beside the world's");
  }
  // A group of a group.
  const std::unique_ptr<Communicator> part = half->split(half->rank() / 2);
  const auto begin = static_cast<std::size_t>(half->rank() / 2 * 2);
  check_group(c, *part,
              {members.begin() + static_cast<std::ptrdiff_t>(begin),
               members.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 2, members.size()))});
}

void lists_make_groups(Communicator& c) {
  std::vector<int> list = {c.size() - 1};
  if (c.size() > 1) list.push_back(0);
  const std::unique_ptr<Communicator> ends = c.group(list);
  const bool member = c.rank() == 0 || c.rank() == c.size() - 1;
  check(c, (ends != nullptr) == member, "members of a list");
  if (ends) check_group(c, *ends, list);
}

void groups_of_one_work_alone(Communicator& c) {
  const std::unique_ptr<Communicator> alone = c.split(c.rank());
  check_group(c, *alone, {c.rank()});
  check(c, alone->groups() == 1 && alone->ranks_on_node() == 1, "nodes of a group of one");
  const std::vector<std::byte> sent = message(0, 0, 100);
  std::vector<std::byte> received(100);
  alone->exchange({{0, sent}}, {{0, received}});
  check(c, received == sent, "a message of a group of one");
  check(c,
        exchange_error(*alone, {{0, sent}}, {}).has_value() &&
            exchange_error(*alone, {}, {{0, received}}).has_value(),
        "a message to itself that has no receiver or sender");
}

void groups_have_errors_of_their_own(Communicator& c) {
  const std::unique_ptr<Communicator> all = c.split(0);
  std::vector<float> values(c.rank() == 0 ? 3 : 4);
  const Communicator::Ticket wrong = all->start_all_reduce(values);
  c.barrier();
  std::vector<float> right(5, 1.0F);
  c.all_reduce(right);
  check(c, right[0] == static_cast<float>(c.size()), "the world after a group's error");
  bool refused = false;
  try {
    all->wait(wrong);
  } catch (const Error&) {
    refused = true;
  }
  check(c, refused == (c.size() > 1), "a group's error does not appear in its wait");
}

void all_tests(Communicator& c) {
  sums_are_the_trees(c);
  owned_sums_are_those_of_all(c);
  parts_are_gathered(c);
  numbers_of_single_ranks_are_added_up(c);
  sums_follow_each_other(c);
  half_is_close(c);
  half_keeps_what_is_not_finite(c);
  different_lengths_are_refused(c);
  bytes_reach_all(c);
  sparse_sums_are_the_same(c);
  values_that_are_left_out_stay(c);
  buckets_are_summed(c);
  messages_reach_their_ranks(c);
  lengths_of_messages_are_compared(c);
  exchanges_overtake_sums(c);
  doubles_are_summed_by_rank(c);
  groups_sum_at_the_same_time(c);
  lists_make_groups(c);
  groups_of_one_work_alone(c);
  groups_have_errors_of_their_own(c);
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
