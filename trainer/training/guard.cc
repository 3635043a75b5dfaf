// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kSettleSteps = 20;  // before, the mean is not reliable
constexpr double kMemory = 0.05;           // weight of the newest loss
constexpr double kLeastRise = 0.5;         // relative to the mean
// Losses of small batches have heavy tails: a batch with the one sample that is not learned yet lies a
// hundred deviations above the mean of 20 others. It also came in earlier epochs and is then no reason for an
// alarm.
constexpr std::size_t kRecent = 200;
constexpr double kRecentRise = 8;         // relative to the rise of the largest recent loss
constexpr double kGradientRise = 1e4;     // gradients may grow a hundred times from one batch to the next
constexpr double kAbsurdGradient = 1e20;  // its square overflows a float: Adam would stop for good
constexpr double kSame = 1e-3;            // relative: a GPU's sums differ in the last bits each time

bool alike(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return std::isfinite(a) == std::isfinite(b);
  return std::abs(a - b) <= kSame * std::max(std::abs(a), std::abs(b));
}

constexpr std::pair<const char*, BitFlip::Where> kPlaces[] = {{"weights", BitFlip::Where::weights},
                                                              {"activations", BitFlip::Where::activations},
                                                              {"gradients", BitFlip::Where::gradients},
                                                              {"optimizer", BitFlip::Where::optimizer}};

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ExitCode::usage,
              fmt::format("--inject-bit-flips '{}' is not weights|activations|gradients|optimizer, then "
                          "step=N, bit=0..31, seed=N, rank=N after commas",
                          text));
}

}  // namespace

bool Guard::came_again(Alarms& alarms, std::int64_t step, double value, const char* what) {
  const auto before = alarms.find(step);
  if (before != alarms.end() && alike(before->second, value)) {
    raised_ *= 2;
    if (std::isfinite(value) && !std::exchange(noted_, true)) {
      note_ = fmt::format(
          "step {} gives the same {} again: a hard batch, or a learning rate that is high; the training goes "
          "on",
          step + 1, what);
    }
    return true;
  }
  alarms[step] = value;
  return false;
}

// After a rollback, for a step that is sound now. The same value again is no error: since the first alarm the
// limit has risen.
void Guard::look_back(Alarms& alarms, std::int64_t step, double value, const char* what) {
  const auto before = alarms.find(step);
  if (before == alarms.end() || alike(before->second, value)) return;
  warning_ = fmt::format(
      "the {} of step {} was {:.3g}, and is {:.3g} when computed again: memory or a processor has failed",
      what, step + 1, before->second, value);
  alarms.erase(before);
}

bool Guard::is_spike(double loss) const {
  if (losses_seen_ < kSettleSteps) return false;
  const double rise = loss - mean_;
  const double before = *std::ranges::max_element(recent_) - mean_;
  return rise > raised_ * config_.deviations * deviation_ + kLeastRise * std::abs(mean_) &&
         rise > raised_ * kRecentRise * before;
}

std::string Guard::look_at_loss(std::int64_t step, double loss) {
  const bool finite = std::isfinite(loss);
  if ((!finite || is_spike(loss)) && !came_again(losses_, step, loss, "loss")) {
    return finite ? fmt::format("the loss rose to {:.3g} from about {:.3g}", loss, mean_)
                  : std::string("the loss is not finite");
  }
  if (!finite) return {};
  if (!is_spike(loss)) look_back(losses_, step, loss, "loss");
  const double weight = std::max(kMemory, 1.0 / static_cast<double>(losses_seen_ + 1));
  if (losses_seen_ > 0) deviation_ += weight * (std::abs(loss - mean_) - deviation_);
  mean_ += weight * (loss - mean_);
  ++losses_seen_;
  recent_.push_back(loss);
  if (recent_.size() > kRecent) recent_.pop_front();
  return {};
}

std::string Guard::look_at_gradient(std::int64_t step, double largest) {
  const bool finite = std::isfinite(largest);
  const bool settled = gradients_seen_ >= kSettleSteps;
  const bool rose = largest > kAbsurdGradient || (settled && largest > raised_ * kGradientRise * gradient_);
  if ((!finite || rose) && !came_again(gradients_, step, largest, "gradient")) {
    return finite ? fmt::format("the gradient rose to {:.3g} from about {:.3g}", largest, gradient_)
                  : std::string("the gradient is not finite");
  }
  if (!finite) return {};
  if (!rose) look_back(gradients_, step, largest, "gradient");
  gradient_ += std::max(kMemory, 1.0 / static_cast<double>(gradients_seen_ + 1)) * (largest - gradient_);
  ++gradients_seen_;
  return {};
}

double largest_of(std::span<const float> values) {
  // Floats without their signs have the order of their bits; infinity and NaN are above all.
  std::uint32_t most = 0;
  for (const float value : values) most = std::max(most, std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
  const double largest = std::bit_cast<float>(most);
  return std::isfinite(largest) ? largest : std::numeric_limits<double>::infinity();
}

std::vector<int> disagreeing(const std::vector<std::string>& hashes) {
  std::map<std::string, std::size_t> votes;
  for (const std::string& hash : hashes) ++votes[hash];
  if (votes.size() < 2) return {};
  const auto most = std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; });
  const bool majority = most->second * 2 > hashes.size();
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < hashes.size(); ++rank) {
    if (!majority || hashes[rank] != most->first) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

BitFlip read_bit_flip(const std::string& text) {
  BitFlip what;
  const std::vector<std::string> parts = text::split(text, ',');
  const auto* place = std::ranges::find(kPlaces, parts.at(0), [](const auto& p) { return p.first; });
  if (place == std::end(kPlaces)) refuse(text);
  what.where = place->second;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::size_t equals = parts[i].find('=');
    const auto value = text::to_integer(equals == std::string::npos ? "" : parts[i].substr(equals + 1));
    const std::string key = parts[i].substr(0, equals);
    if (!value || *value < 0) refuse(text);
    if (key == "step") {
      what.step = *value;
    } else if (key == "bit" && *value < 32) {
      what.bit = static_cast<int>(*value);
    } else if (key == "seed") {
      what.seed = static_cast<std::uint64_t>(*value);
    } else if (key == "rank" && *value < 1 << 20) {
      what.rank = static_cast<int>(*value);
    } else {
      refuse(text);
    }
  }
  return what;
}

std::string flip(const BitFlip& what, std::span<float> values) {
  if (values.empty()) return {};
  const auto place = static_cast<std::size_t>(hash64(what.seed, 11) % values.size());
  const float before = values[place];
  values[place] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(before) ^ (1U << what.bit));
  const auto* name = std::ranges::find(kPlaces, what.where, [](const auto& p) { return p.second; });
  return fmt::format("{}[{}]: {:.6g} -> {:.6g}", name->first, place, before, values[place]);
}

}  // namespace wflow::trainer
