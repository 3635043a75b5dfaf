// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected), as iSCSI (RFC 3720) and TFRecord have it.
#pragma once

#include <cstdint>
#include <span>

namespace wflow {

std::uint32_t crc32c(std::span<const std::uint8_t> bytes);

}  // namespace wflow
