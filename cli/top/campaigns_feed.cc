// SPDX-License-Identifier: Apache-2.0
// Asks a running campaign every other second; reads the record of one at rest when its file changes.
#include <poll.h>

#include <map>
#include <optional>
#include <variant>

#include "base/clock.h"
#include "base/error.h"
#include "cli/campaign/campaigns.h"
#include "cli/top/feed.h"
#include "cli/top/progress.h"
#include "cli/top/words.h"
#include "engine/query/client.h"
#include "engine/store/store.h"
#include "engine/wire/transport.h"

namespace wflow::cli::top {

namespace {

namespace fs = std::filesystem;

constexpr double kAskCampaigns_s = 2;
constexpr std::chrono::milliseconds kAnswer{500};

class CampaignsFeed : public Feed {
 public:
  CampaignsFeed() { look(); }

  bool poll(View) override {
    if (steady_now_s() < next_s_) return false;
    look();
    return true;
  }

  void wait(std::chrono::milliseconds timeout, int fd) override {
    pollfd input{fd, POLLIN, 0};
    ::poll(&input, 1, static_cast<int>(timeout.count()));
  }

  void wish(const Wish&) override {}
  const TopData& data() const override { return data_; }

 private:
  struct Known {
    fs::file_time_type changed;
    wire::StatusAnswer status;
  };

  void look() {
    next_s_ = steady_now_s() + kAskCampaigns_s;
    data_.now_s = unix_now_s();
    data_.campaigns.clear();
    for (const fs::path& campaign : remembered_campaigns())
      data_.campaigns.push_back(row_of_campaign(campaign));
  }

  CampaignRow row_of_campaign(const fs::path& campaign) {
    CampaignRow row;
    row.directory = campaign.string();
    row.name = short_name(campaign);
    row.state = "unreadable";
    const auto status = status_of(campaign);
    if (!status) return row;
    row.state = spaced(name_of(status->state));
    const Overall overall = overall_of(*status);
    row.elements = overall.elements;
    row.done = overall.done;
    row.failed = overall.failed;
    row.skipped = overall.skipped;
    row.started_s = status->started_s;
    if (overall.left) row.left_s = overall.left->seconds;
    return row;
  }

  std::optional<wire::StatusAnswer> status_of(const fs::path& campaign) {
    try {
      if (auto answer = wire::ask(campaign, {wire::WatchRequest{}}, kAnswer)) {
        if (auto* watch = std::get_if<wire::WatchAnswer>(&answer->body)) return std::move(watch->status);
      }
      std::error_code ignored;
      const auto changed = fs::last_write_time(engine::store::database_path(campaign), ignored);
      const auto known = known_.find(campaign);
      if (known != known_.end() && known->second.changed == changed) return known->second.status;
      if (auto record = engine::read_record(campaign, {}, 1)) {
        const auto now = fs::last_write_time(engine::store::database_path(campaign), ignored);
        known_[campaign] = {now, record->watch.status};
        return std::move(record->watch.status);
      }
      return known != known_.end() ? std::optional(known->second.status) : std::nullopt;
    } catch (const Error&) {
      return std::nullopt;  // one damaged campaign must not hide the others
    }
  }

  TopData data_;
  double next_s_ = 0;
  std::map<fs::path, Known> known_;
};

}  // namespace

std::unique_ptr<Feed> campaigns_feed() {
  return std::make_unique<CampaignsFeed>();
}

}  // namespace wflow::cli::top
