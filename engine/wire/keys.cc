// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/keys.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/folders.h"
#include "base/process.h"
#include "engine/wire/addresses.h"

namespace wflow::engine::wire {

namespace {

using nlohmann::json;

constexpr int kKeysFormat = 1;
constexpr std::size_t kZ85Bytes = 41;  // 40 characters and the zero

std::filesystem::path keys_file(const std::filesystem::path& campaign) {
  return campaign / ".wflow" / "keys.json";
}
std::filesystem::path endpoint_file(const std::filesystem::path& campaign) {
  return campaign / ".wflow" / "endpoint.json";
}

KeyPair new_pair() {
  std::array<char, kZ85Bytes> public_key{};
  std::array<char, kZ85Bytes> secret_key{};
  if (::zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
    throw Error(ExitCode::system,
                "this libzmq has no CURVE encryption; install one that has (libzmq5 of Debian)");
  }
  return {public_key.data(), secret_key.data()};
}

json to_json(const KeyPair& pair) {
  return {{"public", pair.public_key}, {"secret", pair.secret_key}};
}

KeyPair pair_from_json(const json& value) {
  KeyPair pair{value.at("public").get<std::string>(), value.at("secret").get<std::string>()};
  if (pair.public_key.size() != kZ85Bytes - 1 || pair.secret_key.size() != kZ85Bytes - 1) {
    throw json::other_error::create(501, "a key is not 40 characters long", &value);
  }
  return pair;
}

void write_keys(const std::filesystem::path& campaign, const CampaignKeys& keys) {
  make_private_folder(campaign / ".wflow");
  const json value = {{"format", kKeysFormat},
                      {"server", to_json(keys.server)},
                      {"client", to_json(keys.client)},
                      {"token", keys.token}};
  write_file_durably(keys_file(campaign), value.dump(2) + "\n", 0600);
}

}  // namespace

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw system_error(errno, "cannot read random bytes");
  }
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

void check_private(const std::filesystem::path& campaign) {
  require_private(campaign / ".wflow", "they could read its keys or keep its database locked");
  require_private(keys_file(campaign),
                  "they could run commands as you (wflow keys --renew if somebody may have read it)");
  require_private(endpoint_file(campaign), "they could keep workers from finding their coordinator");
}

CampaignKeys create_keys(const std::filesystem::path& campaign) {
  const CampaignKeys keys{new_pair(), new_pair(), random_token()};
  write_keys(campaign, keys);
  return keys;
}

CampaignKeys renew_keys(const std::filesystem::path& campaign) {
  // Makes lost or damaged keys again: only living workers have the old ones.
  CampaignKeys keys;
  try {
    keys.token = read_keys(campaign).token;
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) throw;
    keys.token = random_token();
  }
  keys.server = new_pair();
  keys.client = new_pair();
  // Which campaign is the newest is known by this file's time.
  std::error_code ignored;
  const auto made = std::filesystem::last_write_time(keys_file(campaign), ignored);
  write_keys(campaign, keys);
  std::filesystem::last_write_time(keys_file(campaign), made, ignored);
  return keys;
}

CampaignKeys read_keys(const std::filesystem::path& campaign) {
  const auto file = keys_file(campaign);
  check_private(campaign);
  std::error_code none;
  if (!std::filesystem::exists(file, none) && std::filesystem::exists(file.parent_path(), none))
    throw Error(ExitCode::data, fmt::format("{} is missing; wflow keys --renew {} makes new keys",
                                            file.string(), campaign.string()));
  const std::string text = read_file(file);
  try {
    const json value = json::parse(text);
    if (value.at("format").get<int>() > kKeysFormat) {
      throw Error(ExitCode::version, fmt::format("{} is of a newer wflow than this one", file.string()));
    }
    return {pair_from_json(value.at("server")), pair_from_json(value.at("client")),
            value.at("token").get<std::string>()};
  } catch (const json::exception& error) {
    throw Error(ExitCode::data, fmt::format("{} is damaged: {}; wflow keys --renew {} makes new ones",
                                            file.string(), error.what(), campaign.string()));
  }
}

void write_endpoint(const std::filesystem::path& campaign, const Endpoint& endpoint) {
  const json value = {{"format", 1},
                      {"local", endpoint.local},
                      {"remote", endpoint.remote},
                      {"others", endpoint.others},
                      {"host", endpoint.host},
                      {"pid", endpoint.pid},
                      {"epoch", endpoint.epoch}};
  make_private_folder(campaign / ".wflow");
  write_file_durably(endpoint_file(campaign), value.dump(2) + "\n", 0600);
}

bool is_out_of_reach(const Endpoint& endpoint) {
  return endpoint.remote.empty() && endpoint.host != host_name();
}

Endpoint attempt(const Endpoint& endpoint, std::size_t number) {
  Endpoint tried = endpoint;
  if (endpoint.others.empty()) return tried;
  std::vector<std::string> all = {endpoint.remote};
  all.insert(all.end(), endpoint.others.begin(), endpoint.others.end());
  all = nearest_first(std::move(all), networks());
  std::swap(all.front(), all[number % all.size()]);
  tried.remote = all.front();
  tried.others.assign(all.begin() + 1, all.end());
  return tried;
}

std::optional<Endpoint> read_endpoint(const std::filesystem::path& campaign) {
  std::error_code missing;
  if (!std::filesystem::exists(endpoint_file(campaign), missing)) return std::nullopt;
  try {
    const json value = json::parse(read_file(endpoint_file(campaign)));
    return Endpoint{
        value.at("local").get<std::string>(),   value.at("remote").get<std::string>(),
        value.at("host").get<std::string>(),    value.at("pid").get<std::int64_t>(),
        value.at("epoch").get<std::uint64_t>(), value.value("others", std::vector<std::string>{})};
  } catch (const std::exception&) {
    // Read again a second later by whoever asks: a file that is just being replaced, or a stale NFS handle.
    return std::nullopt;
  }
}

}  // namespace wflow::engine::wire
