// SPDX-License-Identifier: Apache-2.0
#include "cli/top/words.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <ctime>

#include "base/text.h"

namespace wflow::cli::top {

namespace {

std::tm local_time(double unix_s) {
  const auto seconds = static_cast<std::time_t>(unix_s);
  std::tm result{};
  ::localtime_r(&seconds, &result);
  return result;
}

}  // namespace

std::string brief_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 0.9995) return fmt::format("{:.0f}ms", seconds * 1000);
  if (seconds < 99.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 48 * 3600ULL) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole / 3600 % 24);
}

std::string brief_count(std::uint64_t value) {
  if (value < 10'000) return text::format_count(value);
  const auto number = static_cast<double>(value);
  const auto scaled = [&](double unit, const char* letter) {
    const double shown = number / unit;
    return fmt::format("{:.{}f}{}", shown, shown < 9.995 ? 2 : shown < 99.95 ? 1 : 0, letter);
  };
  if (number < 999'500) return scaled(1e3, "k");
  if (number < 999.5e6) return scaled(1e6, "M");
  return scaled(1e9, "G");
}

std::string brief_rate(double per_s) {
  if (!(per_s > 0)) return {};
  const double per_min = 60 * per_s;
  if (per_min >= 9'999.5) return brief_count(static_cast<std::uint64_t>(std::llround(per_min))) + "/min";
  if (per_min >= 99.95) return text::format_count(static_cast<std::uint64_t>(std::llround(per_min))) + "/min";
  return per_min >= 1 ? fmt::format("{:.1f}/min", per_min) : fmt::format("{:.2g}/min", per_min);
}

std::string counted(std::uint64_t count, std::string_view one) {
  return fmt::format("{} {}{}", text::format_count(count), one, count == 1 ? "" : "s");
}

std::string spaced(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '_', ' ');
  return text;
}

std::string time_of_day(double unix_s) {
  return fmt::format("{:%H:%M:%S}", local_time(unix_s));
}

std::string day_and_time(double unix_s, double now_s) {
  const std::tm then = local_time(unix_s);
  const std::tm now = local_time(now_s);
  const bool today = then.tm_yday == now.tm_yday && then.tm_year == now.tm_year;
  return today ? fmt::format("{:%H:%M}", then) : fmt::format("{:%d %b %H:%M}", then);
}

std::string last_line_of(const std::string& text) {
  std::string_view line = text::trim(text);
  if (const std::size_t at = line.rfind('\n'); at != std::string_view::npos) line.remove_prefix(at + 1);
  return std::string(text::trim(line));
}

std::string failure_sentence(const engine::wire::FailureView& failure, const WorkerNames& names) {
  const std::string line = last_line_of(failure.detail);
  return fmt::format("{} failed after {} on {}: {}{}{}", failure.task, brief_duration(failure.duration_s),
                     failure.worker.empty() ? "no worker" : names.of(failure.worker), failure.reason,
                     line.empty() ? "" : ": ", line);
}

namespace {

// The host in HOST-PID-RANDOM without its domain; empty: it is no identifier of a worker.
std::string_view host_of_worker(std::string_view id) {
  for (int part = 0; part < 2; ++part) {
    const std::size_t dash = id.rfind('-');
    if (dash == std::string_view::npos) return {};
    id = id.substr(0, dash);
  }
  const bool address = std::ranges::all_of(
      id, [](char c) { return c == '.' || std::isdigit(static_cast<unsigned char>(c)) != 0; });
  return address ? id : id.substr(0, id.find('.'));
}

}  // namespace

void WorkerNames::add(const std::string& id) {
  const std::string_view host = host_of_worker(id);
  if (host.empty() || names_.contains(id)) return;
  const int number = ++on_host_[std::string(host)];
  names_.emplace(id, fmt::format("{}#{}", host, number));
}

const std::string& WorkerNames::of(const std::string& id) const {
  const auto found = names_.find(id);
  return found == names_.end() ? id : found->second;
}

std::string WorkerNames::in(std::string text) const {
  constexpr std::string_view kEnds = " ,;:()";
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(kEnds, at), text.size());
    result += of(text.substr(at, end - at));
    if (end < text.size()) result += text[end];
    at = end + 1;
  }
  return result;
}

}  // namespace wflow::cli::top
