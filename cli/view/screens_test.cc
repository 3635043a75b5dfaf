// SPDX-License-Identifier: Apache-2.0
// Whole screens of `wflow status`, `wflow run` and `wflow top` for one campaign, in four sizes, beside the
// text expected of them (screens/*.txt). WFLOW_RENEW=1 rewrites the expected texts: read them before you
// commit them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "cli/campaign/trainings.h"
#include "cli/top/render.h"
#include "cli/top/state.h"
#include "cli/top/test_data.h"
#include "cli/view/display.h"
#include "cli/view/status.h"

namespace wflow::cli {
namespace {

namespace fs = std::filesystem;
using engine::ElementState;

constexpr std::array<std::pair<int, int>, 4> kSizes = {{{60, 20}, {80, 24}, {100, 30}, {200, 60}}};

void count(engine::StepStatus& step, ElementState state, std::uint64_t tasks) {
  auto& waiting = step.counts[static_cast<std::size_t>(ElementState::blocked)];
  step.counts[static_cast<std::size_t>(state)] += tasks;
  waiting -= std::min(waiting, tasks);
}

void add_failures(engine::CampaignStatus& status) {
  constexpr std::array<std::string_view, 3> kLines = {
      "RuntimeError: no root of the growth factor in cell {} of the grid, omega_m = 0.31, sigma_8 = 0.82",
      "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.{}", "cannot read input deck {}"};
  constexpr std::array<std::string_view, 3> kReasons = {"exit code 3", "killed for want of memory",
                                                        "time limit"};
  status.failures.clear();
  for (std::uint64_t number = 1; number <= 12; ++number) {
    const std::size_t kind = number % 4 == 0 ? 1 : number == 7 ? 2 : 0;
    auto failure =
        top::test_failure(number, fmt::format("simulate/OMEGA.0.31.SIGMA.0.82/{}", 1000 * number + 17),
                          std::string(kReasons[kind]));
    failure.worker = number % 2 == 0 ? "n3.cluster.example.org-48213-9f3c01d2aa77be10"
                                     : "n12.cluster.example.org-1177-0c44ff0199aabb21";
    failure.detail = "reading parameters\n" + fmt::format(fmt::runtime(kLines[kind]), number) + "\n";
    status.failures.push_back(std::move(failure));
  }
}

void add_metrics(engine::CampaignStatus& status) {
  for (specs::Element element = 0; element < 3; ++element) {
    const std::string task = fmt::format("train/LR.0.{}.SEED.{}", element + 1, 40 + element);
    const double scale = 1 + 0.4 * static_cast<double>(element);
    for (const auto& [name, factor] :
         std::vector<std::pair<std::string, double>>{{"train_loss", 1.0},
                                                     {"validation_loss", 1.4},
                                                     {"validation_mae_ratio/omega_m", 0.9},
                                                     {"validation_mae_ratio/sigma_8", 1.1},
                                                     {"learning_rate", 0.01},
                                                     {"samples_per_second", 400}})
      status.metrics.push_back(top::test_curve(task, element, name, scale * factor));
  }
}

// A campaign of a million simulations with tasks in every state.
top::TopData campaign() {
  top::TopData data = top::test_data();
  auto& status = data.status;
  engine::StepStatus& simulate = status.steps[0];
  count(simulate, ElementState::failed, 9);
  count(simulate, ElementState::hard_failed, 1);
  count(simulate, ElementState::cancelled, 40);
  engine::StepStatus& convert = status.steps[1];
  convert.name = "data_set_of_all_universes";
  convert.kind = "convert";
  convert.samples = 32'000;
  convert.missing = {{"its task of simulate failed", 12, 17},
                     {"density.npy holds NaN or infinite values", 3, 512}};
  count(convert, ElementState::skipped, 4);
  engine::StepStatus& train = status.steps[2];
  train.counts = {};
  train.elements = 5;
  train.counts[static_cast<std::size_t>(ElementState::done)] = 1;
  train.counts[static_cast<std::size_t>(ElementState::leased)] = 2;
  train.counts[static_cast<std::size_t>(ElementState::delayed)] = 1;
  train.counts[static_cast<std::size_t>(ElementState::blocked)] = 1;
  train.mean_s = 1860;
  engine::StepStatus evaluate = top::test_step("evaluate", 0, 1, 0, 0, 0);
  evaluate.progress_done = 17;
  evaluate.progress_total = 40;
  evaluate.progress_unit = "epochs";
  status.steps.push_back(evaluate);
  status.metrics.clear();
  add_metrics(status);
  add_failures(status);
  const std::vector<std::string> ids = {"n3.cluster.example.org-48213-9f3c01d2aa77be10",
                                        "n12.cluster.example.org-1177-0c44ff0199aabb21"};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string host = ids[i].substr(0, ids[i].find('-'));
    status.workers[i].id = data.workers[i].id = ids[i];
    status.workers[i].host = data.workers[i].host = host;
    status.allocations.allocations[i].node_names = {host};
  }
  status.allocations.pools = {{"cpu", "slurm", 1, 64, 0, 8, 14'400, 4.25, 11.5, std::nullopt, 2, ""}};
  data.running = {
      {0, 612'350, "simulate/OMEGA.0.31.SIGMA.0.82/612350", ids[0], top::kNow_s - 14.5, 1900ULL << 20},
      {0, 612'377, "simulate/OMEGA.0.31.SIGMA.0.82/612377", ids[1], top::kNow_s - 0.4, 0},
      {2, 0, "train/LR.0.1.SEED.40", ids[1], top::kNow_s - 600, 3100ULL << 20}};
  data.worker_rates = {{ids[0], 12.34}};
  data.cores_used = {93.4, {{ids[0], 58.7}}};
  data.training_parameters = {
      {{2, 0}, "LR 0.1, SEED 40"}, {{2, 1}, "LR 0.2, SEED 41"}, {{2, 2}, "LR 0.3, SEED 42"}};
  top::StepTasks tasks;
  tasks.step = "simulate";
  tasks.failed = status.failures;
  for (std::uint64_t i = 0; i < 9; ++i) {
    const double seconds = 90.0 - 7.5 * static_cast<double>(i);
    tasks.slowest.push_back({top::TaskRow::Kind::ended,
                             {0, 5000 + i},
                             fmt::format("simulate/OMEGA.0.31.SIGMA.0.82/{}", 5000 + i),
                             ids[i % 2],
                             top::kNow_s - 900 + 60.0 * static_cast<double>(i),
                             seconds,
                             ""});
  }
  tasks.compared = 200'000;
  tasks.complete = tasks.loading = false;
  data.tasks = tasks;
  status.slow = {{"simulate/OMEGA.0.31.SIGMA.0.82/612350", ids[0], 140, 9}};
  status.slow_total = 1;
  status.history.clear();
  const std::vector<std::pair<std::string, std::string>> events = {
      {"started", "coordinator 1 on login1 (pid 30210)"},
      {"worker", "worker " + ids[0] + " joined with 64 cores"},
      {"worker", "worker " + ids[1] + " joined with 64 cores"},
      {"note", "train: epoch 40 of 90"},
      {"retry", "7 tasks run again"},
      {"allocation", "allocation 4712 submitted"},
      {"note", "data_set_of_all_universes: shard 12 of 31 is written"}};
  for (std::uint64_t i = 0; i < events.size(); ++i)
    status.history.push_back(
        {i + 41, top::kNow_s - 700 + 100.0 * static_cast<double>(i), events[i].first, events[i].second});
  status.artifacts = {
      {"data_set_of_all_universes", "data set", "/campaigns/cosmoflow_20261122-190000/data/manifest.json"}};
  return data;
}

TrainingRows trainings_of(const top::TopData& data) {
  TrainingRows rows;
  const top::Ranking ranking = top::ranking_of(data.status.metrics);
  rows.metric = ranking.metric;
  rows.quality = ranking.quality;
  for (const top::RankedTraining& ranked : ranking.trainings) {
    TrainingRow row{ranked, {}, std::nullopt, 61.0};
    row.parameters = {{"LR", fmt::format("0.{}", ranked.element + 1)},
                      {"SEED", std::to_string(40 + ranked.element)}};
    rows.rows.push_back(std::move(row));
  }
  return rows;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

class Screens : public ::testing::Test {
 protected:
  // Clock times are those of the zone.
  static void SetUpTestSuite() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }

  // `draw` gives the text on a screen of so many columns and rows.
  template <class Draw>
  void compare(const std::string& name, Draw draw) {
    std::string found;
    for (const auto& [columns, rows] : kSizes) {
      const std::string screen = draw(columns, rows);
      for (const std::string& line : text::split(screen, '\n')) {
        // A word that is longer than the line stays whole, so that one can copy it.
        const bool one_word = text::trim(line).find(' ') == std::string::npos;
        EXPECT_TRUE(columns_of(line) <= columns || one_word) << name << ": " << line;
        EXPECT_FALSE(line.ends_with(' ')) << name << ": '" << line << "'";
      }
      found += fmt::format("==== {} x {}\n{}", columns, rows, screen);
    }
    const fs::path file = fs::path(WFLOW_SCREENS) / (name + ".txt");
    if (std::getenv("WFLOW_RENEW") != nullptr) return write_file_durably(file, found);
    ASSERT_TRUE(fs::exists(file)) << file << " is missing; WFLOW_RENEW=1 writes it";
    EXPECT_EQ(read_file(file), found) << "WFLOW_RENEW=1 rewrites " << file;
  }

  void compare_view(const std::string& name, top::View view, int sort = 0) {
    compare(name, [&](int columns, int rows) {
      top::ViewState state;
      state.view = view;
      state.sort[static_cast<std::size_t>(view)] = sort;
      state.selected_here() = 1;
      return top::render(campaign(), state, columns, rows, top::Charset::utf8).text();
    });
  }

  static Terminal terminal_of(int columns, int rows) {
    Terminal terminal;
    terminal.interactive = true;
    terminal.unicode = true;
    terminal.width = columns;
    terminal.height = rows;
    return terminal;
  }
};

TEST_F(Screens, Status) {
  compare("status", [](int columns, int rows) {
    const top::TopData data = campaign();
    return joined(
        status_lines(data.status, trainings_of(data), top::worker_names(data), terminal_of(columns, rows)));
  });
}

TEST_F(Screens, StatusTable) {
  compare("status-table", [](int columns, int rows) {
    const top::TopData data = campaign();
    return joined(status_table(data, trainings_of(data), terminal_of(columns, rows)));
  });
}

TEST_F(Screens, Run) {
  compare("run", [](int columns, int rows) {
    const Display display(false, Display::Interrupt::ends_campaign);
    return joined(display.picture(campaign().status, terminal_of(columns, rows), false));
  });
}

TEST_F(Screens, EndOfARun) {
  compare("run-end", [](int columns, int rows) {
    engine::CampaignStatus status = campaign().status;
    for (engine::StepStatus& step : status.steps) {
      for (const ElementState state : {ElementState::leased, ElementState::delayed, ElementState::blocked}) {
        auto& open = step.counts[static_cast<std::size_t>(state)];
        step.counts[static_cast<std::size_t>(ElementState::done)] += std::exchange(open, 0);
      }
    }
    status.state = engine::CampaignState::finished_with_failures;
    status.slow.clear();
    status.slow_total = 0;
    status.workers.clear();
    status.allocations = {};
    const Terminal terminal = terminal_of(columns, rows);
    return joined(overview(status, terminal, 305)) + joined(details(status, terminal, false, {}));
  });
}

TEST_F(Screens, Top) {
  compare_view("top", top::View::steps);
}
TEST_F(Screens, TopWorkers) {
  compare_view("top-workers", top::View::workers);
}
TEST_F(Screens, TopFailures) {
  compare_view("top-failures", top::View::failures);
}
TEST_F(Screens, TopTraining) {
  compare_view("top-training", top::View::training);
}
TEST_F(Screens, TopTasks) {
  compare_view("top-tasks", top::View::tasks);
}
TEST_F(Screens, TopTasksByNode) {
  compare_view("top-tasks-node", top::View::tasks, 4);
}
TEST_F(Screens, TopHelp) {
  compare_view("top-help", top::View::help);
}

}  // namespace
}  // namespace wflow::cli
