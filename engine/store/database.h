// SPDX-License-Identifier: Apache-2.0
// Opening the campaign database, for the store's sources only.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <filesystem>

#include "engine/store/store.h"

namespace wflow::engine::store {

// Exclusive, write-ahead log, full durability. Errors as Store's constructor.
SQLite::Database open_database(const std::filesystem::path& campaign, const DatabaseOptions& options);

// Turns a library error into ours: full disk, damage, locked. `doing` completes "cannot ... <path>". With
// `system_error`, the errno of the call that failed where it is known, is_disk_trouble() tells.
[[noreturn]] void throw_database_error(const SQLite::Exception& error, const char* doing,
                                       const std::filesystem::path& path, int system_error = 0);
// Of the connection's last failure.
int system_error_of(const SQLite::Database& database);

}  // namespace wflow::engine::store
