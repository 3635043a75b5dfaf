// SPDX-License-Identifier: Apache-2.0
// The manifest as text. Reading it is read_manifest() of shard_reader.h.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "converters/shards/shard_reader.h"

namespace wflow::converters {

inline constexpr int kFormatVersion = 2;
inline constexpr const char* kManifestName = "manifest.json";

// Derives the view of a volume and labels from the fields.
void derive_flat_view(Manifest& manifest);

std::string manifest_text(const Manifest& manifest);

// Parses one of our JSON files and checks its checksum (base/checksum.h) and its wflow_format; `what` names it in
// messages ("the manifest"). `hash`: takes the XXH3-128 of its text without the checksum.
nlohmann::json read_json(const std::filesystem::path& path, const std::string& what, std::string* hash = nullptr);

}  // namespace wflow::converters
