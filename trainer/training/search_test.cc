// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

SearchConfig three_rungs() {
  SearchConfig search;
  search.rungs = {1, 2, 4};
  search.keep = 0.5;
  search.rung = 3;
  search.trainings = {"a", "b", "c", "d", "e", "f"};
  return search;
}

std::vector<SearchCurve> curves_of(std::vector<std::vector<double>> values) {
  std::vector<SearchCurve> curves;
  for (std::vector<double>& of_one : values) curves.push_back({std::move(of_one), false});
  return curves;
}

std::string order(const SearchConfig& search, const std::vector<SearchStanding>& standings) {
  std::string names;
  for (const SearchStanding& s : standings) names += search.trainings[s.training] + std::to_string(s.rung);
  return names;
}

TEST(Search, ReadsTheMetricOfEveryEpoch) {
  const std::string text =
      "{\"epoch\": 1, \"validation_loss\": 0.5, \"validation\": {\"y\": {\"mae_ratio\": 0.9}}}\n"
      "{\"epoch\": 2, \"validation_loss\": null}\n{\"epo";
  const std::vector<double> losses = search_curve(text, "validation_loss", {}).values;
  ASSERT_EQ(losses.size(), 2U) << "a line that is not whole is no epoch";
  EXPECT_EQ(losses[0], 0.5);
  EXPECT_TRUE(std::isnan(losses[1]));
  EXPECT_EQ(search_curve(text, "validation_mae_ratio/y", {}).values[0], 0.9);
}

TEST(Search, ReadsMetricsOfOneTargetAndMeansOfAll) {
  const std::string text =
      R"({"validation_loss": 1, "validation": {"a": {"mean_iou": 0.5, "iou_1": 0.25}, "b": {"mean_iou": 0.75}, "c": {}}})";
  const auto value = [&](const char* metric) { return search_curve(text, metric, {}).values.at(0); };
  EXPECT_EQ(value("mean_iou"), 0.625);
  EXPECT_EQ(value("validation_mean_iou"), 0.625);
  EXPECT_EQ(value("mean_iou/b"), 0.75);
  EXPECT_EQ(value("iou_1"), 0.25);
  EXPECT_EQ(value("loss"), 1);
  const std::string own = R"({"validation": {"a": {"spectrum": 0.5}, "b": {"spectrum": 1.5}}})";
  EXPECT_EQ(search_curve(own, "spectrum", {}).values.at(0), 1);
  EXPECT_EQ(search_curve(own, "spectrum/b", {}).values.at(0), 1.5);
  EXPECT_TRUE(std::isnan(value("iou_1/b")));
}

TEST(Search, TheLargerIsBetterForScores) {
  SearchConfig search = three_rungs();
  search.trainings = {"a", "b", "c", "d"};
  const std::vector<SearchCurve> curves = curves_of({{0.1}, {0.4}, {0.2}, {std::nan("")}});
  EXPECT_EQ(order(search, search_standings(search, 1, curves)), "a1c1b1d1");
  search.metric = "mean_iou";
  EXPECT_EQ(order(search, search_standings(search, 1, curves)), "b1c1a1d1");
}

TEST(Search, SeesWhoStoppedEarly) {
  const auto ended = [](const std::vector<double>& losses, EarlyStop early_stop) {
    std::string text;
    for (const double loss : losses) text += fmt::format("{{\"validation_loss\": {}}}\n", loss);
    return search_curve(text, "validation_loss", early_stop).ended_early;
  };
  EXPECT_TRUE(ended({3, 2, 2, 4}, {2}));
  EXPECT_FALSE(ended({3, 2, 2, 1}, {2}));
  EXPECT_FALSE(ended({3, 2, 2, 4}, {0}));
  // Improvements by 1 % are no progress if they must be more than 5 %; 1.5 is.
  EXPECT_FALSE(ended({3, 2, 1.98, 1.96}, {2}));
  EXPECT_TRUE(ended({3, 2, 1.98, 1.96}, {2, 0.05}));
  EXPECT_FALSE(ended({3, 2, 1.98, 1.5, 1.49}, {2, 0.05}));
  EXPECT_TRUE(ended({-1, -1.02, -1.04}, {2, 0.05})) << "losses may be negative";
  EXPECT_FALSE(ended({-1, -1.02, -1.06}, {2, 0.05})) << "small steps add up";
  EXPECT_TRUE(search_curve("{\"train_loss\": 1}\n{\"train_loss\": 2}\n", "train_loss", {1}).ended_early)
      << "no validation split";
  EXPECT_FALSE(search_curve("", "train_loss", {1}).ended_early);
  // An epoch with a loss of NaN is never the best.
  const auto with_null = [](int epochs_after) {
    std::string text = "{\"validation_loss\": 2}\n{\"validation_loss\": null}\n";
    for (int i = 0; i < epochs_after; ++i) text += "{\"validation_loss\": 3}\n";
    return search_curve(text, "validation_loss", {3}).ended_early;
  };
  EXPECT_FALSE(with_null(1));
  EXPECT_TRUE(with_null(2));
}

TEST(Search, KeepsTheBestOfEveryRung) {
  const SearchConfig search = three_rungs();
  // e would be the best at the end but stopped before: only the first rung decided.
  const auto curves = curves_of({{3, 9}, {1, 5, 5, 5}, {2, 6}, {1.5, 4, 4, 4}, {8, 0, 0, 0}, {7}});
  const auto standings = search_standings(search, 3, curves);
  EXPECT_EQ(order(search, standings), "d3b2c2a1f1e1");
  EXPECT_EQ(standings[0].of, 1U);
  EXPECT_EQ(standings[1].place, 2U);
  EXPECT_EQ(standings[1].of, 3U);
  EXPECT_EQ(describe(search, standings[1]), "place 2 of 3 at 2 epochs, validation_loss 5");
  EXPECT_EQ(order(search, search_standings(search, 1, curves)), "b1d1c1a1f1e1");
}

TEST(Search, TiesGoByTheirOrderAndWhatHasNoValueIsLast) {
  const SearchConfig search = three_rungs();
  const auto curves = curves_of({{NAN}, {2}, {2}, {}, {1}, {INFINITY}});
  EXPECT_EQ(order(search, search_standings(search, 1, curves)), "e1b1c1a1d1f1");
  const auto infinite = curves_of({{-INFINITY}, {2}, {NAN}, {INFINITY}, {1}, {3}});
  EXPECT_EQ(order(search, search_standings(search, 1, infinite)), "e1b1f1a1c1d1");
}

TEST(Search, ATrainingThatHasFailedHasNoValue) {
  const SearchConfig search = three_rungs();
  auto curves = curves_of({{5, 5}, {1}, {6, 6}, {7}, {8}, {9}});
  const auto standings = search_standings(search, 2, curves);
  EXPECT_EQ(order(search, standings), "a2c2b2d1e1f1");
  EXPECT_TRUE(std::isnan(standings[2].value)) << "it ended in the second epoch";
  curves[1].ended_early = true;
  EXPECT_EQ(order(search, search_standings(search, 2, curves)), "b2a2c2d1e1f1");
}

class SearchFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "wflow-search-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    search_ = three_rungs();
    search_.trainings = {"a", "b", "c"};
    for (const char* rung : {"s.rung_1", "s.rung_2", "s"})
      search_.folders.push_back((folder_ / rung).string());
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& file, const std::string& text) const {
    make_directories((folder_ / file).parent_path());
    write_file_durably(folder_ / file, text);
  }
  void write_losses(const std::string& training, const std::vector<double>& losses) const {
    std::string text;
    for (const double loss : losses) text += fmt::format("{{\"validation_loss\": {}}}\n", loss);
    write(training + "/metrics.jsonl", text);
  }
  nlohmann::json search_json() const { return nlohmann::json::parse(read_file(folder_ / "s/search.json")); }

  fs::path folder_;
  SearchConfig search_;
};

TEST_F(SearchFiles, ARungIsRankedByWhatTheRungsBeforeHaveLeft) {
  write_losses("s.rung_1/a", {3});
  write_losses("s.rung_1/b", {2});
  write_losses("s.rung_2/b", {2, 1});
  write_losses("s/b", {2, 1, 1, 1});  // left by an earlier run
  const auto curves = read_search_curves(search_, 2, {});
  EXPECT_EQ(curves[0].values, std::vector<double>({3}));
  EXPECT_EQ(curves[1].values, std::vector<double>({2, 1}));
  EXPECT_TRUE(curves[2].values.empty());
}

TEST_F(SearchFiles, TheBestOneHasAModel) {
  search_.keep = 0.9;  // two of three go on
  search_.rungs = {1, 4};
  search_.folders.erase(search_.folders.begin() + 1);
  for (const char* training : {"s.rung_1/a", "s.rung_1/b", "s.rung_1/c"}) write_losses(training, {1});
  write_losses("s/a", {1, 1, 1, 1});  // it failed while it wrote its results
  write_losses("s/b", {1, 2, 2, 2});
  write("s/b/result.json", "{}");
  write_search(search_, {});
  EXPECT_EQ(search_json()["best"], "b");
  write("s/a/result.json", "{}");
  write_search(search_, {});
  EXPECT_EQ(search_json()["model"], "a/model.pt");
  EXPECT_EQ(search_json()["trainings"].size(), 3U);
}

TEST_F(SearchFiles, ATrainingGoesOnFromTheRungBefore) {
  write("s.rung_2/b/checkpoints/step-10.wfck", "ten");
  write("s.rung_2/b/checkpoints/best.wfck", "best");
  write("s.rung_2/b/checkpoints/.step-11.wfck.tmp", "half");
  search_.training = 1;
  const fs::path own = folder_ / "s/b/checkpoints";
  take_over_checkpoints(search_, own);
  EXPECT_EQ(read_file(own / "step-10.wfck"), "ten");
  EXPECT_EQ(read_file(own / "best.wfck"), "best");
  EXPECT_EQ(std::distance(fs::directory_iterator(own), {}), 2);
  fs::remove(own / "best.wfck");
  take_over_checkpoints(search_, own);
  EXPECT_FALSE(fs::exists(own / "best.wfck")) << "it has its own already";
  search_.training = 0;
  take_over_checkpoints(search_, folder_ / "s/a/checkpoints");  // there are none
}

TEST(Search, CountsThoseThatGoOn) {
  SearchConfig search;
  EXPECT_EQ(trainings_in_rung(search, 9, 1), 9U);
  EXPECT_EQ(trainings_in_rung(search, 9, 2), 3U);
  EXPECT_EQ(trainings_in_rung(search, 9, 3), 1U);
  EXPECT_EQ(trainings_in_rung(search, 9, 4), 1U) << "one goes on at least";
  EXPECT_EQ(trainings_in_rung(search, 10, 2), 3U);
}

}  // namespace
}  // namespace wflow::trainer
