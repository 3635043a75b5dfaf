// SPDX-License-Identifier: Apache-2.0
#include "cli/observe/observer.h"

#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/observe/prometheus.h"

namespace wflow::cli {

Observer::Observer(const specs::Plan& plan)
    : hooks_(plan.campaign(), specs::hooks_of(plan.study())),
      metrics_(specs::metrics_file_of(plan.study())) {}

void Observer::look(const engine::CampaignStatus& status) {
  hooks_.look(status);
  if (!metrics_ || steady_now_s() < next_s_) return;
  next_s_ = steady_now_s() + metrics_->every_s;
  write_file(status);
}

void Observer::rest(const engine::CampaignStatus& status) {
  hooks_.look(status);
  if (metrics_) write_file(status);
  hooks_.record();
}

void Observer::ended(const engine::CampaignStatus& status) {
  hooks_.ended(status);
  hooks_.record();
}

void Observer::write_file(const engine::CampaignStatus& status) {
  try {
    write_metrics(metrics_->file, prometheus_text(status));
    trouble_ = false;
  } catch (const Error& error) {
    if (!std::exchange(trouble_, true)) log::write(LogLevel::warning, error.what());
  }
}

}  // namespace wflow::cli
