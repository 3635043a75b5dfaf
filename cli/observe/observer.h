// SPDX-License-Identifier: Apache-2.0
// Hooks and metrics of a study, which the process that coordinates the campaign serves.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/observe/hooks.h"
#include "engine/monitor/status.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

class Observer {
 public:
  explicit Observer(const specs::Plan& plan);

  // Before all else, of a campaign that is not resumed.
  void begins_anew() { hooks_.begins_anew(); }
  // Every status of the running campaign, from the coordinator's thread. Never throws.
  void look(const engine::CampaignStatus& status);
  // It has ended for now: nobody coordinates it. The hooks that were started are recorded.
  void rest(const engine::CampaignStatus& status);
  // It has ended for good, with what followed on it.
  void ended(const engine::CampaignStatus& status);

 private:
  void write_file(const engine::CampaignStatus& status);

  Hooks hooks_;
  std::optional<specs::MetricsFile> metrics_;
  double next_s_ = 0;
  bool trouble_ = false;  // with the file, and it was told
};

// ---- a campaign's status in the text exposition format of Prometheus, version 0.0.4:
// https://prometheus.io/docs/instrumenting/exposition_formats/

// Every series has the labels `campaign` (the directory's name) and, where it is of one, `step`.
std::string prometheus_text(const engine::CampaignStatus& status);

// In one piece for its readers: by a rename. Throws Error{system}. Not durable: a file that a power cut takes
// is written again.
void write_metrics(const std::filesystem::path& file, const std::string& text);

}  // namespace wflow::cli
