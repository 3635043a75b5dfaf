// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/campaigns.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/top/progress.h"
#include "cli/view/terminal.h"
#include "engine/query/client.h"
#include "specs/plan/workspace.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

struct Row {
  fs::path directory;
  engine::CampaignStatus status;
  std::string state;
  std::optional<std::uint64_t> bytes;
};

double now_s() {
  return unix_now_s();
}

// A silent coordinator must not delay the list.
constexpr engine::Waiting kShortly = {.change_s = 1, .answer_s = 2};

Row row_of(const fs::path& campaign, bool sizes) {
  Row row{campaign, {}, "unreadable", {}};  // one damaged campaign must not hide the others
  try {
    specs::require_trusted(campaign);
    row.status = engine::campaign_status(campaign, kShortly);
    row.state = name_of(row.status.state);
    for (const engine::FollowupView& followup : row.status.followups) {
      if (row.state == name_of(engine::CampaignState::finished) && followup.left())
        row.state = engine::state_text(followup);
    }
  } catch (const Error& error) {
    row.status = {};
    if (error.code() == ExitCode::busy) row.state = "no answer";
  }
  if (sizes) row.bytes = bytes_below(campaign);
  return row;
}

// Asks the coordinators in parallel.
std::vector<Row> rows_of(const std::vector<fs::path>& campaigns, bool sizes) {
  constexpr std::size_t kMostAtOnce = 32;
  std::vector<Row> rows(campaigns.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < campaigns.size(); i = next++) rows[i] = row_of(campaigns[i], sizes);
  };
  std::vector<std::jthread> others;
  try {
    while (others.size() + 1 < std::min(campaigns.size(), kMostAtOnce)) others.emplace_back(work);
  } catch (const std::system_error&) {
    // The system allows no more threads: the existing ones do the work.
  }
  work();
  others.clear();  // joins them
  return rows;
}

nlohmann::json json_of(const Row& row) {
  nlohmann::json json = {{"directory", row.directory.string()},
                         {"name", row.status.name},
                         {"state", row.state},
                         {"ended", row.status.ended()},
                         {"elements", row.status.elements()},
                         {"failed", row.status.failed()},
                         {"started", row.status.started_s}};
  if (row.bytes) json["bytes"] = *row.bytes;
  return json;
}

std::vector<Cell> cells_of(const Row& row) {
  const engine::CampaignStatus& status = row.status;
  const Style style = row.state == name_of(engine::CampaignState::finished)  ? Style::green
                      : row.state == name_of(engine::CampaignState::running) ? Style::cyan
                                                                             : Style::yellow;
  std::vector<Cell> cells = {
      {short_name(row.directory)},
      {row.state, style},
      {fmt::format("{}/{}", text::format_count(top::overall_of(status).done),
                   text::format_count(status.elements()))},
      {text::format_count(status.failed())},
      {status.started_s > 0 ? text::format_duration(now_s() - status.started_s) + " ago" : ""}};
  if (row.bytes) cells.push_back({text::format_bytes(*row.bytes)});
  return cells;
}

std::vector<Cell> csv_cells_of(const Row& row) {
  const engine::CampaignStatus& status = row.status;
  std::vector<Cell> cells = {{row.directory.string()},
                             {status.name},
                             {row.state},
                             {std::to_string(status.elements())},
                             {std::to_string(status.ended())},
                             {std::to_string(status.failed())},
                             {text::from_real(status.started_s)}};
  if (row.bytes) cells.push_back({std::to_string(*row.bytes)});
  return cells;
}

}  // namespace

std::string short_name(const fs::path& directory) {
  std::error_code error;
  const std::string relative = fs::relative(directory, error).string();
  return error || relative.starts_with("..") ? directory.string() : relative;
}

std::uint64_t bytes_below(const fs::path& directory) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(directory, fs::directory_options::skip_permission_denied, error),
       end;
       at != end; at.increment(error)) {
    if (error) break;
    std::error_code gone;
    if (at->is_regular_file(gone) && !at->is_symlink(gone)) bytes += at->file_size(gone);
  }
  return bytes;
}

void print_campaigns(const std::vector<fs::path>& campaigns, Format format, bool sizes) {
  std::vector<std::string> headings = {"campaign", "state", "tasks", "failed", "started"};
  if (format == Format::csv)
    headings = {"directory", "name", "state", "elements", "ended", "failed", "started"};
  if (sizes) headings.emplace_back(format == Format::csv ? "bytes" : "size");
  Table table(std::move(headings));
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : rows_of(campaigns, sizes)) {
    if (format == Format::json) {
      rows.push_back(json_of(row));
    } else {
      table.add(format == Format::csv ? csv_cells_of(row) : cells_of(row));
    }
  }
  if (format == Format::json) {
    fmt::print("{}\n", rows.dump(2));
  } else if (format == Format::csv) {
    table.print_csv();
  } else if (campaigns.empty()) {
    fmt::print("no campaign; start one with: wflow run STUDY.yaml\n");
  } else {
    table.print_whole(standard_output());
  }
}

}  // namespace wflow::cli
