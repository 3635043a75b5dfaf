// SPDX-License-Identifier: Apache-2.0
// A campaign's status in the text exposition format of Prometheus, version 0.0.4:
// https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once

#include <filesystem>
#include <string>

#include "engine/monitor/status.h"

namespace wflow::cli {

// Every series has the labels `campaign` (the directory's name) and, where it is of one, `step`.
std::string prometheus_text(const engine::CampaignStatus& status);

// In one piece for its readers: by a rename. Throws Error{system}. Not durable: a file that a power cut takes
// is written again.
void write_metrics(const std::filesystem::path& file, const std::string& text);

}  // namespace wflow::cli
