// SPDX-License-Identifier: Apache-2.0
// Messages as MessagePack arrays: [kind, field, field, ...]; layout in docs/formats/wire.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/wire/messages.h"

namespace wflow::engine::wire {

// Larger messages are refused by both ends (and by the socket: ZMQ_MAXMSGSIZE).
inline constexpr std::size_t kMaxMessageBytes = 64 << 20;

std::string encode(const Message& message);

// Nothing for bytes that are not a message of this protocol; never throws, allocates no more than a small
// multiple of bytes.size() (hostile lengths are checked against what is left).
std::optional<Message> decode(std::string_view bytes);

}  // namespace wflow::engine::wire
