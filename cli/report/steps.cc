// SPDX-License-Identifier: Apache-2.0
// The steps: a graph of their dependencies, and a table of their progress.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "cli/report/report.h"

namespace wflow::cli::report {

namespace {

constexpr std::size_t kDrawnSteps = 60;
constexpr std::size_t kListedSteps = 200;
constexpr double kBoxWidth = 168, kBoxHeight = 52, kGapX = 62, kGapY = 16;

struct Place {
  double x = 0, y = 0;
};

std::string shortened(const std::string& name, std::size_t most) {
  return name.size() <= most ? name : name.substr(0, most - 3) + "...";
}

// The column of each step: its distance from the first steps.
std::vector<std::size_t> columns_of(const specs::Plan& plan) {
  std::vector<std::size_t> column(plan.steps().size());
  for (std::size_t i = 0; i < column.size(); ++i)
    for (const specs::Edge& edge : plan.steps()[i].edges)
      column[i] = std::max(column[i], column[plan.step_of(edge.parent)] + 1);
  return column;
}

std::string box_markup(const engine::StepStatus& step, const Place& at, const Page& page) {
  const double share =
      step.elements == 0 ? 0 : static_cast<double>(step.ended()) / static_cast<double>(step.elements);
  const double bad =
      step.elements == 0 ? 0 : static_cast<double>(step.failed()) / static_cast<double>(step.elements);
  const char* state = step.failed() > 0 ? "failed" : step.ended() == step.elements ? "done" : "open";
  std::string counts =
      fmt::format("{} of {}", text::format_count(step.ended()), text::format_count(step.elements));
  if (step.failed() > 0) counts += fmt::format(", {} failed", text::format_count(step.failed()));
  return fmt::format(
      "<g><title>{0}</title><rect class=\"step-box {1}\" x=\"{2}\" y=\"{3}\" width=\"{4}\" height=\"{5}\" "
      "rx=\"5\"/>"
      "<text x=\"{6}\" y=\"{7}\" font-weight=\"600\">{8}</text><text class=\"quiet\" x=\"{6}\" "
      "y=\"{9}\">{10}</text>"
      "<rect class=\"step-part\" x=\"{6}\" y=\"{11}\" width=\"{12:.1f}\" height=\"4\"/>"
      "<rect class=\"step-part bad\" x=\"{13:.1f}\" y=\"{11}\" width=\"{14:.1f}\" height=\"4\"/></g>\n",
      page.text(fmt::format("{} ({}): {}", step.name, step.kind, counts)), state, at.x, at.y, kBoxWidth,
      kBoxHeight, at.x + 10, at.y + 19, page.text(shortened(step.name, 21)), at.y + 36,
      page.text(shortened(counts, 26)), at.y + kBoxHeight - 9, (share - bad) * (kBoxWidth - 20),
      at.x + 10 + (share - bad) * (kBoxWidth - 20), bad * (kBoxWidth - 20));
}

}  // namespace

std::string graph_markup(const ReportData& data, const Page& page) {
  const auto& steps = data.plan.steps();
  if (steps.size() < 2 || steps.size() > kDrawnSteps || steps.size() != data.status.steps.size()) return {};
  const std::vector<std::size_t> columns = columns_of(data.plan);
  std::map<std::size_t, std::size_t> rows;
  std::vector<Place> places;
  std::size_t most_rows = 0;
  std::size_t most_columns = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::size_t row = rows[columns[i]]++;
    places.push_back({2 + static_cast<double>(columns[i]) * (kBoxWidth + kGapX),
                      2 + static_cast<double>(row) * (kBoxHeight + kGapY)});
    most_rows = std::max(most_rows, row + 1);
    most_columns = std::max(most_columns, columns[i] + 1);
  }
  const double width = static_cast<double>(most_columns) * (kBoxWidth + kGapX) - kGapX + 4;
  const double height = static_cast<double>(most_rows) * (kBoxHeight + kGapY) - kGapY + 4;
  std::string svg = fmt::format(
      "<div class=\"graph\"><svg role=\"img\" aria-label=\"graph of the steps\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\">\n"
      "<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
      "markerHeight=\"7\" orient=\"auto\">"
      "<path class=\"fill s6\" d=\"M0,0L8,4L0,8z\"/></marker></defs>\n",
      width, height);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const specs::Edge& edge : steps[i].edges) {
      const Place& from = places[data.plan.step_of(edge.parent)];
      const Place& to = places[i];
      const double x1 = from.x + kBoxWidth;
      const double y1 = from.y + kBoxHeight / 2;
      const double y2 = to.y + kBoxHeight / 2;
      svg += fmt::format(
          "<path class=\"step-edge\" marker-end=\"url(#arrow)\" d=\"M{0},{1}C{2},{1} {3},{4} {5},{4}\"/>\n",
          x1, y1, x1 + kGapX / 2, to.x - kGapX / 2, y2, to.x - 1);
    }
  }
  for (std::size_t i = 0; i < steps.size(); ++i) svg += box_markup(data.status.steps[i], places[i], page);
  return svg + "</svg></div>\n";
}

void write_steps(const ReportData& data, Page& page) {
  page.section("steps", "Steps");
  page.markup(graph_markup(data, page));
  PageTable table{{"step", "kind", "tasks", "done", "failed", "not ended", "median time", "95 %", "CPU time",
                   "description"},
                  {false, false, true, true, true, true, true, true, true, false},
                  {}};
  const auto& planned = data.plan.steps();
  for (std::size_t i = 0; i < std::min(data.status.steps.size(), kListedSteps); ++i) {
    const engine::StepStatus& step = data.status.steps[i];
    const bool used = step.usage.executions > 0;
    const std::string description =
        i < planned.size() && planned[i].study_step < data.plan.study().steps.size()
            ? data.plan.study().steps[planned[i].study_step].description
            : "";
    table.rows.push_back({step.name, step.kind, text::format_count(step.elements),
                          text::format_count(step.count(engine::ElementState::done)),
                          text::format_count(step.failed()),
                          text::format_count(step.elements - std::min(step.elements, step.ended())),
                          used ? text::format_duration(step.usage.duration_s.median) : "",
                          used ? text::format_duration(step.usage.duration_s.p95) : "",
                          used ? core_time_text(step.usage.cpu_s.sum) : "", description});
  }
  page.table(table);
  if (data.status.steps.size() > kListedSteps)
    page.paragraph(fmt::format("The first {} of {} steps.", kListedSteps, data.status.steps.size()));
}

}  // namespace wflow::cli::report
