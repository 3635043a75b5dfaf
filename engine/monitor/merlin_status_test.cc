// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/merlin_status.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace wflow::engine {
namespace {

using Json = nlohmann::json;

ArrayStatus of_samples() {
  ArrayStatus status;
  status.key = "sim_P.1";
  status.path = "sim/P.1";
  status.cmd_parameters = {{"P", "1", true}};
  status.samples = 30;
  status.sample_dependent = true;
  status.mean_s = 3661.2;
  return status;
}

TEST(MerlinStatus, SaysOfEveryLeafHowItEnded) {
  ArrayStatus status = of_samples();
  status.states = {{{0, 1}, ElementState::done},        {{2, 5}, ElementState::failed},
                   {{6, 6}, ElementState::hard_failed}, {{7, 7}, ElementState::skipped},
                   {{8, 8}, ElementState::cancelled},   {{9, 9}, ElementState::done}};
  status.failures = {{1, 3, 2, 100, "exited", "", 0, 1, {}},    {2, 1, 0, 1, "exited", "", 0, 61, {}},
                     {3, 4, 4, 104, "exited", "", 0, 1, {}},    {4, 1, 0, 106, "exited", "", 0, 1, {}},
                     {5, 1, 0, 100, "signalled", "", 0, 1, {}}, {6, 1, 0, 102, "exited", "", 0, 1, {}},
                     {9, 1, 0, 105, "exited", "", 0, 1, {}}};
  const Json all = Json::parse(merlin_status_text(status));
  ASSERT_EQ(all.size(), 1U);
  const Json& array = all.at("sim_P.1");
  EXPECT_EQ(array.at("parameters"), Json::parse(R"({"cmd": {"P": "1"}, "restart": null})"));
  EXPECT_EQ(array.size(), 1U + 10U);
  const auto leaf = [&](const char* path) { return array.at(std::string("sim/P.1/00/") + path); };
  EXPECT_EQ(leaf("00"), Json::parse(R"({"status": "FINISHED", "return_code": "MERLIN_SUCCESS",
      "elapsed_time": "0d:01h:01m:01s", "run_time": "0d:01h:01m:01s", "restarts": 0})"));
  EXPECT_EQ(leaf("01").at("restarts"), 2) << "a lost worker is no restart";
  EXPECT_EQ(leaf("02").at("status"), "FAILED");
  EXPECT_EQ(leaf("02").at("return_code"), "MERLIN_SOFT_FAIL");
  EXPECT_EQ(leaf("02").at("run_time"), "0d:00h:01m:01s");
  EXPECT_EQ(leaf("03").at("return_code"), "MERLIN_SOFT_FAIL (MAX RETRIES REACHED)");
  EXPECT_EQ(leaf("03").at("restarts"), 4) << "the last one, which was refused, counts";
  EXPECT_EQ(leaf("04").at("status"), "UNKNOWN");
  EXPECT_EQ(leaf("04").at("return_code"), "MERLIN_UNRECOGNIZED");
  EXPECT_EQ(leaf("05").at("return_code"), "MERLIN_SOFT_FAIL") << "killed by signal 100 is no request";
  EXPECT_EQ(leaf("06").at("return_code"), "MERLIN_HARD_FAIL");
  EXPECT_EQ(leaf("07").at("status"), "INITIALIZED");
  EXPECT_TRUE(leaf("07").at("return_code").is_null());
  EXPECT_EQ(leaf("08").at("status"), "CANCELLED");
  EXPECT_EQ(leaf("09").at("status"), "CANCELLED");
  EXPECT_EQ(leaf("09").at("return_code"), "MERLIN_STOP_WORKERS");
}

TEST(MerlinStatus, ParametersKeepTheirTypes) {
  ArrayStatus status = of_samples();
  status.cmd_parameters = {{"F", "0.5"},     {"I", "3"},   {"B", "True"},  {"N", "None"},  {"W", "a b"},
                           {"Q", "3", true}, {"E", "1e3"}, {"G", "1.0e3"}, {"H", "2.0e+1"}};
  const Json all = Json::parse(merlin_status_text(status));
  EXPECT_EQ(all.at("sim_P.1").at("parameters").at("cmd"),
            Json::parse(R"({"F": 0.5, "I": 3, "B": true, "N": null, "W": "a b", "Q": "3",
                             "E": "1e3", "G": "1.0e3", "H": 20.0})"));
}

TEST(MerlinStatus, LeavesHaveTheirOwnFiles) {
  ArrayStatus status = of_samples();
  status.file = "/campaign/sim/P.1/MERLIN_STATUS.json";
  status.states = {{{0, 1}, ElementState::done}};
  const auto leaves = leaf_status_texts(status);
  ASSERT_EQ(leaves.size(), 2U);
  EXPECT_EQ(leaves[1].first, "/campaign/sim/P.1/00/01/MERLIN_STATUS.json");
  const Json one = Json::parse(leaves[1].second);
  EXPECT_EQ(one.at("sim_P.1").size(), 2U) << "the parameters and the leaf";
  EXPECT_EQ(one.at("sim_P.1").at("sim/P.1/00/01").at("status"), "FINISHED");
}

TEST(MerlinStatus, NamesTheDirectoryOfASingleTask) {
  ArrayStatus status;
  status.key = status.path = "all";
  status.samples = 30;
  status.states = {{{0, 0}, ElementState::done}};
  const Json all = Json::parse(merlin_status_text(status));
  EXPECT_TRUE(all.at("all").contains("all"));
  EXPECT_EQ(all.at("all").at("parameters"), Json::parse(R"({"cmd": null, "restart": null})"));
}

TEST(MerlinStatus, IsCappedAndKeepsItsOrder) {
  ArrayStatus status = of_samples();
  status.samples = 10 * kMostStatusElements;
  status.states = {{{0, status.samples - 1}, ElementState::done}};
  const std::string text = merlin_status_text(status);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), kMostStatusElements + 5) << "a line for each";
  EXPECT_LT(text.find("\"parameters\""), text.find("\"sim/P.1/00/00/00/00/00\""));
}

TEST(MerlinStatus, TakesOddNames) {
  ArrayStatus status;
  status.key = "a \"b\"_\xff";
  status.path = "a_b";
  status.states = {{{0, 0}, ElementState::done}};
  EXPECT_EQ(Json::parse(merlin_status_text(status)).size(), 1U);
}

}  // namespace
}  // namespace wflow::engine
