// SPDX-License-Identifier: Apache-2.0
// wflow top: the dashboard. The loop between a feed, which gives data, and a screen, which gives keys.
#include <unistd.h>

#include <chrono>
#include <memory>

#include "base/error.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "cli/top/feed.h"
#include "cli/top/render.h"

namespace wflow::cli {

namespace {

constexpr std::chrono::milliseconds kTick{125};

struct TopOptions {
  std::string campaign;
  bool all = false;
  bool replay = false;
  double speed = 0;
};

class Dashboard {
 public:
  explicit Dashboard(const TopOptions& options) {
    if (options.all) {
      campaigns_ = top::campaigns_feed();
      state_.view = top::View::campaigns;
      state_.many = true;
    } else {
      const std::filesystem::path campaign = find_campaign(options.campaign);
      feed_ = options.replay ? top::replay_feed(campaign, options.speed)
                             : top::live_feed(working_campaign(campaign));
    }
  }

  int run() {
    top::Screen screen;
    std::pair<int, int> size;
    for (bool draw = true; !top::Screen::asked_to_end();) {
      draw = feed().poll(state_.view) || draw;
      const auto before = std::exchange(size, screen.size());
      if (size != before) draw = true;
      if (draw) draw = screen.show(render(feed().data(), state_, size.first, size.second, screen.charset()));
      feed().wait(kTick, STDIN_FILENO);
      while (const auto key = screen.key()) {
        if (!press(*key, size.second)) return 0;
        draw = true;
      }
    }
    return 0;
  }

 private:
  top::Feed& feed() { return feed_ ? *feed_ : *campaigns_; }

  // False: end the dashboard.
  bool press(top::Key key, int height) {
    const auto wish = on_key(state_, key, feed().data(), top::page_rows(height));
    if (!wish) return true;
    if (wish->kind == top::Wish::Kind::quit) return false;
    if (wish->kind == top::Wish::Kind::open) {
      feed_ = top::live_feed(wish->title);
    } else if (wish->kind == top::Wish::Kind::close) {
      feed_.reset();
    } else {
      feed().wish(*wish);
    }
    return true;
  }

  top::ViewState state_;
  std::unique_ptr<top::Feed> campaigns_;  // for --all
  std::unique_ptr<top::Feed> feed_;       // the campaign that is shown
};

int top_of(const TopOptions& options) {
  if (::isatty(STDOUT_FILENO) == 0 || ::isatty(STDIN_FILENO) == 0)
    throw Error(ExitCode::usage, "wflow top needs a terminal; wflow status prints the same facts");
  return Dashboard(options).run();
}

}  // namespace

void add_top(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<TopOptions>();
  CLI::App* command = app.add_subcommand("top", "a dashboard: steps, workers, failures, training curves");
  command->footer(
      "Works while the campaign runs and after it has ended; ? lists the keys. Leaving it changes nothing in "
      "the "
      "campaign.\n"
      "Examples:\n  wflow top\n  wflow top campaigns/cosmoflow_20261121-160001 --replay\n  wflow top --all");
  auto* campaign = command->add_option("campaign", options->campaign, kCampaign);
  auto* all =
      command->add_flag("--all", options->all, "all of your campaigns in one list")->excludes(campaign);
  auto* replay =
      command->add_flag("--replay", options->replay, "play a campaign at rest back from its record")
          ->excludes(all);
  command
      ->add_option("--speed", options->speed,
                   "of the replay: seconds of the campaign a second (default: the whole takes a minute)")
      ->check(CLI::PositiveNumber)
      ->needs(replay);
  command->callback([options, &chosen] { chosen = [options] { return top_of(*options); }; });
}

}  // namespace wflow::cli
