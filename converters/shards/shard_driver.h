// SPDX-License-Identifier: Apache-2.0
// HDF5's way to the file of a shard while it is written, in place of its own driver for POSIX files. It
// gathers writes, and it sees where each chunk goes: of that HDF5 1.10 tells only by going through all
// chunks, for every one of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "converters/input/hdf5_handle.h"

namespace wflow::converters {

// Files that are created with this access list have the driver. It opens none that exists.
void use_shard_driver(hid_t access);

// Where these bytes went, if they were the last that `file` got of any data set, as they stand in memory.
// Once for each write. Nothing where HDF5 made other ones of them (a filter, a cache) or kept them: then it
// must be asked.
std::optional<std::uint64_t> take_place_of_write(hid_t file, std::span<const std::uint8_t> bytes);

}  // namespace wflow::converters
