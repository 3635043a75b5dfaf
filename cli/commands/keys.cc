// SPDX-License-Identifier: Apache-2.0
// wflow keys: shows which keys may connect to a campaign's coordinator, and makes new ones.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "engine/store/campaign_lock.h"
#include "engine/wire/keys.h"

namespace wflow::cli {

namespace {

namespace wire = engine::wire;

struct KeysOptions {
  std::string campaign;
  bool renew = false;
  bool json = false;
};

std::string listens_at(const std::filesystem::path& campaign) {
  const auto endpoint = wire::read_endpoint(campaign);
  if (!endpoint) return {};
  return endpoint->remote.empty() ? endpoint->host + " only" : endpoint->remote;
}

int show_or_renew(const KeysOptions& options) {
  const std::filesystem::path campaign = find_campaign(options.campaign);
  if (options.renew) engine::store::refuse_if_held(campaign);
  const wire::CampaignKeys keys = options.renew ? wire::renew_keys(campaign) : wire::read_keys(campaign);
  const std::string listens = listens_at(campaign);
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"directory", campaign.string()},
                                      {"coordinator", keys.server.public_key},
                                      {"workers", keys.client.public_key},
                                      {"renewed", options.renew},
                                      {"listens", listens}}
                           .dump(2));
    return 0;
  }
  fmt::print("public key of the coordinator  {}\n", keys.server.public_key);
  fmt::print("public key of workers          {}\n", keys.client.public_key);
  if (!listens.empty()) fmt::print("takes connections of           {}\n", listens);
  fmt::print("{}\n", options.renew ? "These are new: whoever has the old ones is refused."
                                   : "The secret keys are readable for you alone.");
  return 0;
}

}  // namespace

void add_keys(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<KeysOptions>();
  CLI::App* command = app.add_subcommand("keys", "the keys of a campaign, and new ones");
  command->footer(
      "Whoever has the keys can run commands as you. Renew them if somebody may have read them.\n"
      "Workers that are left of an earlier coordinator read the new keys by themselves.\n"
      "Examples:\n  wflow keys\n  wflow keys cosmoflow --renew");
  command->add_option("campaign", options->campaign,
                      "its directory, or the beginning of its name (default: the newest here)");
  command->add_flag("--renew", options->renew, "make new keys; only while no coordinator runs");
  command->add_flag("--json", options->json, "as JSON");
  command->callback([options, &chosen] { chosen = [options] { return show_or_renew(*options); }; });
}

}  // namespace wflow::cli
