// SPDX-License-Identifier: Apache-2.0
#include "converters/deflate/huffman.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace wflow::converters {

namespace {

constexpr unsigned kMostBits = 15;  // limit of any code in deflate

struct Leaf {
  std::uint32_t count = 0;
  std::uint16_t symbol = 0;
};

// Replaces counts in ascending order by the depth of each leaf (Moffat and Katajainen 1995, "In-place
// calculation of minimum-redundancy codes"), deepest first.
void depths_of_sorted(std::uint32_t* a, int n) {
  a[0] += a[1];
  int root = 0;
  int leaf = 2;
  for (int next = 1; next < n - 1; ++next) {
    const auto least = [&] {
      if (leaf >= n || (root < next && a[root] < a[leaf])) {
        const std::uint32_t value = a[root];
        a[root++] = static_cast<std::uint32_t>(next);
        return value;
      }
      return a[leaf++];
    };
    const std::uint32_t first = least();
    a[next] = first + least();
  }
  a[n - 2] = 0;
  for (int next = n - 3; next >= 0; --next) a[next] = a[a[next]] + 1;
  int available = 1;
  int used = 0;
  std::uint32_t depth = 0;
  root = n - 2;
  for (int next = n - 1; available > 0; ++depth) {
    while (root >= 0 && a[root] == depth) {
      ++used;
      --root;
    }
    while (available > used) {
      a[next--] = depth;
      --available;
    }
    available = 2 * used;
    used = 0;
  }
}

// The number of codes of each length, none above `most`, of a complete code.
void limit_lengths(std::span<std::uint32_t> of_length, unsigned most) {
  for (std::size_t k = most + 1; k < of_length.size(); ++k) {
    of_length[most] += of_length[k];
    of_length[k] = 0;
  }
  std::uint64_t total = 0;
  for (unsigned k = 1; k <= most; ++k) total += std::uint64_t{of_length[k]} << (most - k);
  for (; total > std::uint64_t{1} << most; --total) {
    --of_length[most];
    unsigned k = most - 1;
    while (of_length[k] == 0) --k;
    --of_length[k];
    of_length[k + 1] += 2;
  }
}

}  // namespace

LengthSymbol length_symbol(std::size_t length) {
  const auto after = std::upper_bound(kLengthBase.begin(), kLengthBase.end(), length);
  return length_of_symbol(kEndOfBlock + static_cast<std::size_t>(after - kLengthBase.begin()));
}

void code_lengths(std::span<const std::uint32_t> counts, unsigned most, std::span<std::uint8_t> lengths) {
  std::array<Leaf, kLiteralSymbols> leaves;
  std::size_t n = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    lengths[k] = 0;
    if (counts[k] > 0) leaves[n++] = {counts[k], static_cast<std::uint16_t>(k)};
  }
  WFLOW_CHECK(n >= 2 && most <= kMostBits && n <= std::size_t{1} << most);
  std::sort(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(n),
            [](const Leaf& a, const Leaf& b) {
              return a.count != b.count ? a.count < b.count : a.symbol < b.symbol;
            });
  std::array<std::uint32_t, kLiteralSymbols> depths;
  for (std::size_t k = 0; k < n; ++k) depths[k] = leaves[k].count;
  depths_of_sorted(depths.data(), static_cast<int>(n));
  std::array<std::uint32_t, kLiteralSymbols> of_length{};
  for (std::size_t k = 0; k < n; ++k) ++of_length[depths[k]];
  limit_lengths(of_length, most);
  std::size_t k = 0;
  for (unsigned length = most; length > 0; --length) {
    for (std::uint32_t left = of_length[length]; left > 0; --left)
      lengths[leaves[k++].symbol] = static_cast<std::uint8_t>(length);
  }
}

void canonical_codes(std::span<const std::uint8_t> lengths, std::span<std::uint16_t> codes) {
  std::array<std::uint16_t, kMostBits + 1> of_length{};
  for (const std::uint8_t length : lengths) ++of_length[length];
  std::array<std::uint16_t, kMostBits + 2> next{};
  of_length[0] = 0;
  for (unsigned k = 1; k <= kMostBits; ++k)
    next[k] = static_cast<std::uint16_t>((next[k - 1] + of_length[k - 1]) << 1);
  for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
    const unsigned length = lengths[symbol];
    unsigned code = length > 0 ? next[length]++ : 0U;
    unsigned reversed = 0;
    for (unsigned k = 0; k < length; ++k, code >>= 1) reversed = reversed << 1 | (code & 1);
    codes[symbol] = static_cast<std::uint16_t>(reversed);
  }
}

bool is_complete(std::span<const std::uint8_t> lengths, unsigned most) {
  std::uint64_t total = 0;
  for (const std::uint8_t length : lengths) {
    if (length > most) return false;
    if (length > 0) total += std::uint64_t{1} << (most - length);
  }
  return total == std::uint64_t{1} << most;
}

}  // namespace wflow::converters
