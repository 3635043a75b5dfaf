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

  // Call first if the campaign is not resumed.
  void begins_anew() { hooks_.begins_anew(); }
  // Call with every status of the running campaign, from the coordinator's thread. Never throws.
  void look(const engine::CampaignStatus& status);
  // The campaign has ended for now, and no process coordinates it. Records the hooks that were started.
  void rest(const engine::CampaignStatus& status);
  // The campaign and those that followed on it have ended for good.
  void ended(const engine::CampaignStatus& status);

 private:
  void write_file(const engine::CampaignStatus& status);

  Hooks hooks_;
  std::optional<specs::MetricsFile> metrics_;
  double next_s_ = 0;
  bool trouble_ = false;  // the file could not be written, and a warning was logged
};

// ---- a campaign's status in the text exposition format of Prometheus, version 0.0.4:
// https://prometheus.io/docs/instrumenting/exposition_formats/

// Every series has the label `campaign` (the directory's name), and `step` if it belongs to one.
std::string prometheus_text(const engine::CampaignStatus& status);

// Writes the file by a rename, so that readers see it whole. Throws Error{system}. Not durable: after a power
// cut, the file is written again.
void write_metrics(const std::filesystem::path& file, const std::string& text);

}  // namespace wflow::cli
