// SPDX-License-Identifier: Apache-2.0
// Commands of wflow that are other programs: `wflow shards ...` is `wflow-convert shards ...`.
#pragma once

#include <optional>
#include <string_view>

namespace wflow::cli {

struct Delegate {
  const char* program = "";
  bool is_subcommand = false;  // of the program, which gets its name
};
// No value: wflow runs the command itself.
std::optional<Delegate> delegate_of(std::string_view command);

}  // namespace wflow::cli
