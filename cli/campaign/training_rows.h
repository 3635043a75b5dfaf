// SPDX-License-Identifier: Apache-2.0
// The trainings of a campaign, ranked, with what differs between them.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/campaign/searches.h"
#include "cli/top/ranking.h"
#include "cli/view/table.h"
#include "engine/query/client.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

using TrainingPlace = std::pair<specs::ArrayId, specs::Element>;
using NamedValues = std::vector<std::pair<std::string, std::string>>;

struct TrainingRow : top::RankedTraining {
  NamedValues parameters;  // of the study and of its sample; those that differ between the trainings
  std::optional<SearchProgress> search;
  std::optional<double> seconds;  // that its executions took; nothing: none has ended, or has a record
};

struct TrainingRows {
  std::string metric;  // that they are ranked by; empty: there are no trainings
  std::vector<TrainingRow> rows;
};

// Of each of the tasks, in their order: parameters and values of its sample whose values are not the same for
// all.
std::vector<NamedValues> differing_parameters(const specs::Plan& plan,
                                              const std::vector<TrainingPlace>& tasks);

// "learning_rate 0.01, seed 3" of each.
std::map<TrainingPlace, std::string> parameter_texts(const specs::Plan& plan,
                                                     const std::vector<TrainingPlace>& tasks);
std::string values_text(const NamedValues& values);

// Of a search, who trains on comes before who was stopped, and a later rung before an earlier one. `client`
// answers for the campaign of `plan`; `metric` as in top::ranking_of().
TrainingRows training_rows(const specs::Plan& plan, engine::Client& client,
                           const engine::CampaignStatus& status, const std::string& metric = {});

Table training_table(const TrainingRows& trainings);
nlohmann::json to_json(const TrainingRows& trainings);

}  // namespace wflow::cli
