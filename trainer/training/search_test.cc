// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/search.h"

#include <gtest/gtest.h>

#include <cmath>

namespace wflow::trainer {
namespace {

SearchConfig three_rungs() {
  SearchConfig search;
  search.rungs = {1, 2, 4};
  search.keep = 0.5;
  search.rung = 3;
  search.trainings = {"a", "b", "c", "d", "e", "f"};
  return search;
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
  const SearchCurve losses = search_curve(text, "validation_loss");
  ASSERT_EQ(losses.size(), 2U) << "a line that is not whole is no epoch";
  EXPECT_EQ(losses[0], 0.5);
  EXPECT_TRUE(std::isnan(losses[1]));
  EXPECT_EQ(search_curve(text, "validation_mae_ratio/y")[0], 0.9);
}

TEST(Search, KeepsTheBestOfEveryRung) {
  const SearchConfig search = three_rungs();
  // e is the best in the end and stopped before: the first rung alone decided.
  const std::vector<SearchCurve> curves = {{3, 9}, {1, 5, 5, 5}, {2, 6}, {1.5, 4, 4, 4}, {8, 0, 0, 0}, {7}};
  const auto standings = search_standings(search, 3, curves, false);
  EXPECT_EQ(order(search, standings), "d3b2c2a1f1e1");
  EXPECT_EQ(standings[0].of, 1U);
  EXPECT_EQ(standings[1].place, 2U);
  EXPECT_EQ(standings[1].of, 3U);
  EXPECT_EQ(describe(search, standings[1]), "place 2 of 3 at 2 epochs, validation_loss 5");
  EXPECT_EQ(order(search, search_standings(search, 1, curves, false)), "b1d1c1a1f1e1");
}

TEST(Search, TiesGoByTheirOrderAndWhatHasNoValueIsLast) {
  const SearchConfig search = three_rungs();
  const std::vector<SearchCurve> curves = {{NAN}, {2}, {2}, {}, {1}, {INFINITY}};
  EXPECT_EQ(order(search, search_standings(search, 1, curves, false)), "e1b1c1a1d1f1");
}

TEST(Search, ATrainingThatHasFailedHasNoValue) {
  const SearchConfig search = three_rungs();
  const std::vector<SearchCurve> curves = {{5, 5}, {1}, {6, 6}, {7}, {8}, {9}};
  const auto standings = search_standings(search, 2, curves, false);
  EXPECT_EQ(order(search, standings), "a2c2b2d1e1f1");
  EXPECT_TRUE(std::isnan(standings[2].value)) << "it ended in the second epoch";
  EXPECT_EQ(order(search, search_standings(search, 2, curves, true)), "b2a2c2d1e1f1") << "it stopped early";
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
