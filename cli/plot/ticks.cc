// SPDX-License-Identifier: Apache-2.0
#include "cli/plot/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"

namespace wflow::cli::plot {

namespace {

constexpr std::array<double, 22> kElapsedSteps = {0.001, 0.005, 0.01,   0.05,   0.1,    0.5,   1,   2,
                                                  5,     10,    30,     60,     120,    300,   600, 1800,
                                                  3600,  7200,  14'400, 28'800, 43'200, 86'400};

// 1, 2 or 5 times a power of ten, for about `wanted` steps.
double round_step(double span, int wanted) {
  const double rough = span / std::max(wanted, 1);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough * 0.99) return factor * power;
  return 10 * power;
}

double step_of(Scale scale, double span, int wanted) {
  if (scale == Scale::elapsed) {
    const double rough = span / std::max(wanted, 1);
    for (const double step : kElapsedSteps)
      if (step >= rough * 0.99) return step;
    constexpr double kDay = 86'400;
    return kDay * std::max(1.0, round_step(span / kDay, wanted));
  }
  if (scale == Scale::bytes) {
    double unit = 1;
    while (unit * 1024 <= span) unit *= 1024;
    return unit * round_step(span / unit, wanted);
  }
  return round_step(span, wanted);
}

// "0", "30 s", "1 min 30 s", "2 h", "1 d 12 h": at most two units, the second one only if it is not 0.
std::string elapsed_label(double seconds) {
  struct Unit {
    const char* name;
    double seconds;
  };
  static constexpr std::array<Unit, 4> kUnits = {{{"d", 86'400}, {"h", 3600}, {"min", 60}, {"s", 1}}};
  if (seconds == 0) return "0";
  if (seconds < 0) return "-" + elapsed_label(-seconds);
  if (seconds < 1) return fmt::format("{:g} ms", seconds * 1000);
  const double whole = seconds < 10 ? seconds : std::round(seconds);
  for (std::size_t i = 0; i + 1 < kUnits.size(); ++i) {
    if (whole < kUnits[i].seconds) continue;
    const double first = std::floor(whole / kUnits[i].seconds);
    const double second = std::floor((whole - first * kUnits[i].seconds) / kUnits[i + 1].seconds);
    const std::string text = fmt::format("{:g} {}", first, kUnits[i].name);
    return second == 0 ? text : fmt::format("{} {:g} {}", text, second, kUnits[i + 1].name);
  }
  return fmt::format("{:g} s", whole);
}

std::string label_of(Scale scale, double value, double step) {
  if (scale == Scale::elapsed) return elapsed_label(value);
  if (scale == Scale::bytes) return value <= 0 ? "0" : text::format_bytes(static_cast<std::uint64_t>(value));
  constexpr double kGrouped = 1e3, kPlain = 1e9;
  const double size = std::abs(value);
  if (step >= 1 && size >= kGrouped && size < kPlain)
    return (value < 0 ? "-" : "") + text::format_count(static_cast<std::uint64_t>(std::llround(size)));
  if (size >= kPlain || (value != 0 && step < 1e-4)) return fmt::format("{:.3g}", value);
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 6);
  return fmt::format("{:.{}f}", value, digits);
}

// Powers of ten; for few decades also 2 and 5 times these; for many only each second or third one.
std::vector<Tick> logarithmic_ticks(double low, double high, int wanted) {
  std::vector<Tick> found;
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = static_cast<int>(std::ceil(std::log10(high)));
  const int every = std::max(1, (last - first + wanted) / (wanted + 1));
  for (int power = first; power <= last; power += every) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && last - first > 2) break;
      const double value = factor * std::pow(10, power);
      if (value >= low * 0.999 && value <= high * 1.001) found.push_back({value, fmt::format("{:g}", value)});
    }
  }
  return found;
}

}  // namespace

std::vector<Tick> ticks(Scale scale, double low, double high, int wanted) {
  if (!(low < high)) return {{low, label_of(scale, low, 1)}};
  if (scale == Scale::logarithmic) {
    // A range of less than a decade may contain too few of them, but then contains others.
    if (auto found = logarithmic_ticks(low, high, wanted); found.size() > 1) return found;
  }
  const double step = step_of(scale, high - low, wanted);
  const double first = std::ceil(low / step - 1e-9) * step;
  std::vector<Tick> found;
  // The loop is bounded: if values differ only in their last bits, a step may be too small to change them.
  const int most = 4 * std::max(wanted, 1) + 4;
  for (int i = 0; i < most; ++i) {
    const double value = first + i * step;
    if (!(value <= high + step * 1e-9)) break;
    const double shown = std::abs(value) < step * 1e-9 ? 0 : value;
    if (found.empty() || shown > found.back().value) found.push_back({shown, label_of(scale, shown, step)});
  }
  return found;
}

void Bounds::add(double value, Scale scale) {
  if (!std::isfinite(value) || (scale == Scale::logarithmic && value <= 0)) return;
  low = std::min(low, value);
  high = std::max(high, value);
}

bool Bounds::spans_decades() const {
  constexpr double kDecades = 30;
  return low > 0 && high > kDecades * low;
}

double Extent::share(Scale scale, double value) const {
  if (scale != Scale::logarithmic) return (value - low) / (high - low);
  return std::log(value / low) / std::log(high / low);
}

}  // namespace wflow::cli::plot
