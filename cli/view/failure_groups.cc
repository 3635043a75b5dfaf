// SPDX-License-Identifier: Apache-2.0
#include "cli/view/failure_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "cli/top/words.h"

namespace wflow::cli {

namespace {

using engine::CampaignStatus;
using engine::FailureView;

constexpr std::size_t kShownAtEnd = 5;     // groups
constexpr std::size_t kShownLive = 3;      // groups
constexpr std::size_t kKinds = 1000;       // groups that a reporter remembers
constexpr std::size_t kDetailAtEnd = 400;  // bytes of a task's output
constexpr std::size_t kDetail = 2000;

std::string_view last_line(std::string_view text) {
  const std::string_view whole = text::trim(text);
  const std::size_t at = whole.rfind('\n');
  return at == std::string_view::npos ? whole : text::trim(whole.substr(at + 1));
}

std::string key_of(const FailureView& failure) {
  return failure.step + '\n' + failure.reason + '\n' + without_numbers(last_line(failure.detail));
}

std::string other_kinds(std::size_t count) {
  return count == 1 ? "1 other kind of failure" : fmt::format("{} other kinds of failure", count);
}

// "simulate/3 after 2 executions: exit code 1", "20 tasks like simulate/3 after 2 executions: exit code 1"
std::string headline(const FailureGroup& group, const Terminal& terminal) {
  const std::string task = styled(terminal, Style::red, group.first.task);
  const std::string who =
      group.count == 1 ? task : fmt::format("{} like {}", top::counted(group.count, "task"), task);
  return fmt::format("  {} after {}: {}", who,
                     top::counted(std::uint64_t{group.first.attempt} + 1, "execution"), group.first.reason);
}

}  // namespace

std::string without_numbers(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit) result += c;
    if (digit && (result.empty() || result.back() != '#')) result += '#';
  }
  return result;
}

std::vector<FailureGroup> group_failures(const std::vector<FailureView>& failures) {
  std::vector<FailureGroup> groups;
  std::map<std::string, std::size_t> known;
  for (const FailureView& failure : failures) {
    std::string key = key_of(failure);
    const auto [at, is_new] = known.try_emplace(key, groups.size());
    if (is_new) groups.push_back({std::move(key), failure, 0});
    ++groups[at->second].count;
  }
  return groups;
}

std::vector<std::string> failure_lines(const CampaignStatus& status, const Terminal& terminal,
                                       bool everything) {
  const std::vector<FailureGroup> groups = group_failures(status.failures);
  if (groups.empty()) return {};
  std::string head = top::counted(status.failed(), "task") + " failed";
  if (status.failures.size() < status.failed())
    head += fmt::format("; the newest {} of them", text::format_count(status.failures.size()));
  std::vector<std::string> lines = {"", head + ":"};
  const std::size_t shown = everything ? groups.size() : std::min(groups.size(), kShownAtEnd);
  for (std::size_t i = 0; i < shown; ++i) {
    lines.push_back(headline(groups[i], terminal));
    const std::string detail = text::tail(groups[i].first.detail, everything ? kDetail : kDetailAtEnd);
    for (const std::string& line : text::split(text::trim(detail), '\n')) {
      if (!line.empty()) lines.push_back("      " + line);
    }
  }
  if (shown < groups.size()) lines.push_back("  and " + other_kinds(groups.size() - shown));
  lines.push_back(
      fmt::format("  one task's output: wflow logs {} {}", status.directory, groups.front().first.task));
  if (status.failed() > groups.size() || shown < groups.size())
    lines.push_back(fmt::format("  all that failed: wflow tasks {} --failed", status.directory));
  lines.push_back(
      fmt::format("  once it is mended: wflow retry {}; where the study has changed: wflow resume --update",
                  status.directory));
  return lines;
}

std::vector<std::string> failure_overview(const CampaignStatus& status, const Terminal& terminal) {
  const std::vector<FailureGroup> groups = group_failures(status.failures);
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < std::min(groups.size(), kShownLive); ++i) {
    const std::string_view said = last_line(groups[i].first.detail);
    std::string line = headline(groups[i], terminal);
    if (!said.empty()) line += fmt::format(": {}", said);
    lines.push_back(shortened(terminal, line, terminal.width));
  }
  if (groups.size() > kShownLive) lines.push_back("  and " + other_kinds(groups.size() - kShownLive));
  return lines;
}

std::vector<std::string> FailureReporter::news(const CampaignStatus& status) {
  std::vector<FailureView> fresh;
  for (const FailureView& failure : status.failures) {
    // Compare numbers, not times: a task that ends now may have begun before one that was reported.
    if (failure.number > reported_) fresh.push_back(failure);
  }
  for (const FailureView& failure : fresh) reported_ = std::max(reported_, failure.number);
  std::vector<std::string> lines;
  for (const FailureGroup& group : group_failures(fresh)) {
    if (seen_.size() >= kKinds && !seen_.contains(group.key)) continue;
    auto [at, is_new] = seen_.try_emplace(group.key);
    Seen& seen = at->second;
    seen.count += group.count;
    const bool again = seen.count >= seen.next;
    while (seen.next <= seen.count) seen.next *= 10;
    if (is_new) {
      const std::string more =
          group.count > 1 ? fmt::format(" ({} more like it)", text::format_count(group.count - 1)) : "";
      lines.push_back(fmt::format("{} failed: {}{}", group.first.task, group.first.reason, more));
    } else if (again) {
      lines.push_back(fmt::format("{} of the step {} have failed so: {}", top::counted(seen.count, "task"),
                                  group.first.step, group.first.reason));
    }
  }
  return lines;
}

}  // namespace wflow::cli
