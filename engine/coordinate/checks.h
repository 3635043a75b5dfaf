// SPDX-License-Identifier: Apache-2.0
// What a peer sends may be anything: here it becomes something that scheduler, database and JSON can take.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/wire/messages.h"

namespace wflow::engine {

// A date or a duration; 0 for what is none (NaN, negative, more than a few hundred years).
double checked_seconds(double seconds);
// Valid UTF-8 without control characters, of at most `limit` bytes.
std::string checked_text(const std::string& text, std::size_t limit);

// Drops what names no element of the campaign, and mends what can be mended. Gives how many were dropped.
std::size_t check(wire::Results& results, const Scheduler& scheduler);
std::size_t check(std::vector<wire::RunningElement>& running, const Scheduler& scheduler);

// Why this is no Hello of a worker, whatever the campaign is.
std::optional<std::string> reason_to_refuse(const wire::Hello& hello);

}  // namespace wflow::engine
