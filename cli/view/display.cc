// SPDX-License-Identifier: Apache-2.0
#include "cli/view/display.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/text.h"
#include "cli/view/report.h"

namespace wflow::cli {

namespace {

void print(const std::string& text) {
  // A reader that went away (| head) must not end the campaign: failures to print are ignored.
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

Display::Display(bool quiet) : quiet_(quiet) {}

void Display::show(const engine::CampaignStatus& status) {
  if (quiet_) return;
  const Terminal terminal = standard_output();
  terminal.interactive ? draw(status, failure_overview(status, terminal)) : print_changes(status);
}

void Display::draw(const engine::CampaignStatus& status, const std::vector<std::string>& below) {
  // The width is asked for every time: windows are resized.
  auto lines = overview(status, standard_output());
  lines.insert(lines.end(), below.begin(), below.end());
  std::string picture;
  if (drawn_lines_ > 0) picture += fmt::format("\x1b[{}A", drawn_lines_);
  for (const std::string& line : lines) picture += line + "\x1b[K\n";
  picture += "\x1b[J";
  drawn_lines_ = static_cast<int>(lines.size());
  print(picture);
}

void Display::print_changes(const engine::CampaignStatus& status) {
  const std::string stamp = "[" + text::format_duration(status.elapsed_s) + "] ";
  for (const auto& step : status.steps) {
    if (step.elements == 0) continue;
    const int tenths = static_cast<int>(10 * step.ended() / step.elements);
    auto [reported, first] = tenths_.try_emplace(step.name, 0);
    if (tenths <= reported->second) continue;
    reported->second = tenths;
    std::string line = fmt::format("{}{}: {}/{}", stamp, step.name, text::format_count(step.ended()),
                                   text::format_count(step.elements));
    if (step.failed() > 0) line += fmt::format(", {} failed", text::format_count(step.failed()));
    if (step.rate_per_s > 0 && step.left_s) {
      line += fmt::format(", {:.1f}/s, {} left", step.rate_per_s, text::format_duration(*step.left_s));
    }
    print(line + "\n");
  }
  for (const std::string& line : failures_.news(status)) print(stamp + line + "\n");
  if (const std::uint64_t epoch = newest_epoch(status); epoch > reported_epoch_) {
    reported_epoch_ = epoch;
    print(stamp + training_line(status) + "\n");
  }
  for (const auto& row : status.history) {
    if (row.number <= reported_history_) continue;
    reported_history_ = row.number;
    if (row.kind == "stop" || row.kind == "error" || row.kind == "retry" || row.kind == "note")
      print(stamp + row.text + "\n");
  }
}

void Display::finish(const engine::CampaignStatus& status) {
  if (quiet_) return;
  const Terminal terminal = standard_output();
  if (terminal.interactive) {
    draw(status, {});
  } else {
    print_changes(status);
    for (const std::string& line : overview(status, terminal)) print(line + "\n");
  }
  for (const std::string& line : details(status, terminal, false)) print(line + "\n");
}

}  // namespace wflow::cli
