// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/exact_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace wflow::trainer {
namespace {

__extension__ using Wide = __int128;
__extension__ using Bits = unsigned __int128;

constexpr int kFractionBits = 23;  // of a float
constexpr int kExponentBias = 127;
// Digits of a sum, as floats: the sum of 256 digits below 2^16 is exact.
constexpr int kDigitBits = 16;
constexpr std::size_t kDigits = 8;
constexpr std::size_t kSumsAtOnce = std::size_t{1} << 18;
// Sums of a rank stay below 2^38 in size, so that those of 256 ranks have 127 bits.
constexpr Wide kLargest = Wide{1} << (38 - ExactSums::kQuantum);

// The exponent of 1 in the lowest bit of the fraction.
int exponent_of(std::uint32_t bits) {
  const auto field = static_cast<int>(bits >> kFractionBits & 0xFFU);
  return std::max(field, 1) - kExponentBias - kFractionBits;
}

Wide multiples_of_quantum(float term) {
  const auto bits = std::bit_cast<std::uint32_t>(term);
  std::uint32_t fraction = bits & ((1U << kFractionBits) - 1);
  if ((bits >> kFractionBits & 0xFFU) != 0) fraction |= 1U << kFractionBits;
  const int shift = exponent_of(bits) - ExactSums::kQuantum;
  const Wide size = shift >= 0 ? Wide{fraction} << shift : Wide{shift > -32 ? fraction >> -shift : 0U};
  return std::signbit(term) ? -size : size;
}

// The nearest float, to even.
float rounded(Wide sum) {
  return std::ldexp(static_cast<float>(sum), ExactSums::kQuantum);
}

}  // namespace

void ExactSums::add(std::size_t begin, std::span<const float> terms) {
  WFLOW_CHECK(begin + terms.size() <= sums_.size());
  constexpr float kLargestTerm = 0x1p38F;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (terms[i] == 0) continue;
    if (!(std::abs(terms[i]) < kLargestTerm)) {
      is_finite_ = false;
      continue;
    }
    Wide& sum = sums_[begin + i];
    sum += multiples_of_quantum(terms[i]);
    if (sum >= kLargest || sum <= -kLargest) {
      is_finite_ = false;
      sum = 0;
    }
  }
}

void ExactSums::take(Communicator& ranks, std::span<float> sums) {
  WFLOW_CHECK(sums.size() == sums_.size() && ranks.size() <= kMostRanks);
  for (std::size_t at = 0; at < sums_.size(); at += kSumsAtOnce) {
    const std::span<Wide> piece = std::span(sums_).subspan(at, std::min(kSumsAtOnce, sums_.size() - at));
    if (ranks.size() > 1) add_other_ranks(ranks, piece);
    std::ranges::transform(piece, sums.begin() + static_cast<std::ptrdiff_t>(at), rounded);
    std::ranges::fill(piece, Wide{0});
  }
  float rejected = is_finite_ ? 0.0F : 1.0F;
  ranks.all_reduce({&rejected, 1});
  if (rejected > 0) std::ranges::fill(sums, std::numeric_limits<float>::quiet_NaN());
  is_finite_ = true;
}

// In two's complement, the sum of the digits modulo 2^128 is the sum of the numbers.
void ExactSums::add_other_ranks(Communicator& ranks, std::span<Wide> sums) {
  constexpr Bits kDigit = (Bits{1} << kDigitBits) - 1;
  digits_.resize(sums.size() * kDigits);
  auto digit = digits_.begin();
  for (const Wide sum : sums) {
    auto left = static_cast<Bits>(sum);
    for (std::size_t i = 0; i < kDigits; ++i, left >>= kDigitBits)
      *digit++ = static_cast<float>(static_cast<std::uint32_t>(left & kDigit));
  }
  ranks.all_reduce(digits_);
  digit = digits_.begin();
  for (Wide& sum : sums) {
    Bits total = 0;
    for (std::size_t i = 0; i < kDigits; ++i)
      total += static_cast<Bits>(static_cast<std::uint32_t>(*digit++)) << (kDigitBits * i);
    sum = static_cast<Wide>(total);
  }
}

}  // namespace wflow::trainer
