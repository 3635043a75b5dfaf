// SPDX-License-Identifier: Apache-2.0
// A campaign's CURVE keys and the coordinator's address, as files that only the user can read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace wflow::engine::wire {

// 32 hexadecimal digits from the random source of the system. Error{system}.
std::string random_token();

struct KeyPair {
  std::string public_key;  // Z85, 40 characters
  std::string secret_key;
};

// One pair for the coordinator, one shared by the campaign's workers and status clients.
struct CampaignKeys {
  KeyPair server;
  KeyPair client;
  std::string token;  // random name of the campaign
};

// <campaign>/.wflow/keys.json, mode 0600, in a folder of mode 0700.
CampaignKeys create_keys(const std::filesystem::path& campaign);
CampaignKeys read_keys(const std::filesystem::path& campaign);  // checks as check_private() does
// New pairs under the same token: the next coordinator refuses the old ones. Only while no process
// coordinates the campaign.
CampaignKeys renew_keys(const std::filesystem::path& campaign);
// Error{system} with a sentence unless the folder .wflow, the keys and the endpoint belong to the user alone.
void check_private(const std::filesystem::path& campaign);

// <campaign>/.wflow/endpoint.json, replaced by every coordinator that starts.
struct Endpoint {
  std::string local;   // "ipc://..." for the same host, may be empty
  std::string remote;  // "tcp://host:port"; empty: it accepts connections from its own host only
  std::string host;
  std::int64_t pid = 0;
  std::uint64_t epoch = 0;  // grows with every coordinator of the campaign
  std::vector<std::string> others =
      {};  // as `remote`, at other addresses of its machine: to be tried in turn
};
// `remote` is the address to try at the so many-th attempt from this host, those on its own networks first:
// compute nodes may not reach each of them.
Endpoint attempt(const Endpoint& endpoint, std::size_t number);
// True if it accepts connections from its own host only, and this is another host.
bool is_out_of_reach(const Endpoint& endpoint);
void write_endpoint(const std::filesystem::path& campaign, const Endpoint& endpoint);
std::optional<Endpoint> read_endpoint(const std::filesystem::path& campaign);

}  // namespace wflow::engine::wire
