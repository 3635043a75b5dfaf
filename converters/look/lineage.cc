// SPDX-License-Identifier: Apache-2.0
// The origin of a sample: the records of the data set, the input of the conversion, and the records of the
// campaign. The last come from the program wflow, which asks the coordinator if one runs.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "converters/commands.h"
#include "converters/convert/block_record.h"
#include "converters/input/sample.h"
#include "converters/look/look.h"
#include "converters/split.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

struct SamplePlace {
  std::string split;
  std::string shard;
  std::size_t row = 0;
};

std::optional<SamplePlace> find_sample(const fs::path& data, const Manifest& manifest, std::int64_t id) {
  for (const std::string_view split : kSplitNames) {
    const SplitReader reader = SplitReader::open(data, manifest, split);
    std::size_t first = 0;
    for (const ShardEntry& shard : manifest.split(split).shards) {
      for (std::size_t row = 0; row < shard.samples; ++row) {
        if (reader.id(first + row) == id) return SamplePlace{std::string(split), shard.file, row};
      }
      first += shard.samples;
    }
  }
  return std::nullopt;
}

// The shard's name contains the block's number.
std::optional<std::uint64_t> block_of(const SamplePlace& place) {
  const auto number = text::to_integer(place.shard.substr(place.shard.rfind('-') + 1, 5));
  if (!number || *number < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

// The campaign that contains the data set.
std::optional<fs::path> campaign_of(const fs::path& data) {
  fs::path folder = fs::weakly_canonical(data);
  while (folder.has_relative_path()) {
    folder = folder.parent_path();
    if (fs::exists(folder / ".wflow" / "campaign.db")) return folder;
  }
  return std::nullopt;
}

std::string file_line(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return fmt::format("  {} (not there any more)\n", file.string());
  return fmt::format("  {} ({}, changed {:%Y-%m-%d %H:%M:%S})\n", file.string(),
                     text::format_bytes(static_cast<std::uint64_t>(status.st_size)),
                     fmt::localtime(status.st_mtime));
}

// The input of the block's conversion for the sample; nothing if its tables are missing.
struct GivenSample {
  std::string step;  // the step with this output
  std::string text;
  fs::path directory;
};

std::optional<GivenSample> given_sample(const fs::path& data, std::uint64_t block, std::int64_t id) {
  const fs::path folder = fs::weakly_canonical(data) / ".wflow-convert";
  const fs::path table = folder / fmt::format("rows-{:05}.csv", block);
  if (!fs::exists(folder / "config.yaml") || !fs::exists(table)) return std::nullopt;
  const ConvertConfig config = load_config(folder / "config.yaml");
  const SampleTable rows = read_sample_table(table, config, Numbering::by_id);
  const auto row =
      std::find_if(rows.rows.begin(), rows.rows.end(), [&](const SampleRow& r) { return r.id == id; });
  if (row == rows.rows.end()) return std::nullopt;
  GivenSample given{
      config.from, {}, row->directory.empty() ? row->file->parent_path() : row->directory.get()};
  if (!rows.columns.empty()) {
    given.text += "parameters:\n";
    for (std::size_t k = 0; k < rows.columns.size(); ++k)
      given.text += fmt::format("  {} = {}\n", rows.columns[k], text::from_real(row->parameters[k]));
  }
  const auto files = sample_files(config, *row);
  if (!files.empty()) given.text += "files:\n";
  for (const fs::path& file : files) given.text += file_line(file);
  return given;
}

// The file that an imported sample was read from; empty if it was not imported.
std::string imported_from(const fs::path& data, std::int64_t id) {
  std::ifstream lines(data / kSourcesName);
  const std::string start = fmt::format("{},", id);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t comma = line.find(',', start.size());
    if (!line.starts_with(start) || comma == std::string::npos) continue;
    return fmt::format("imported from record {} of\n{}", line.substr(start.size(), comma - start.size()),
                       file_line(line.substr(comma + 1)));
  }
  return {};
}

// The output of wflow, or the reason why it failed.
struct Answer {
  bool good = false;
  std::string text;
};

Answer ask_wflow(const std::vector<std::string>& words) {
  SpawnRequest request;
  request.argv = {sibling_program("wflow")};
  request.argv.insert(request.argv.end(), words.begin(), words.end());
  const CommandResult result = run_command(request);
  if (result.status == 0) return {true, result.out};
  return {false, result.err.empty() ? fmt::format("wflow ended with code {}\n", result.status) : result.err};
}

std::string indented(const std::string& text) {
  std::string out;
  for (const std::string_view line : text::split(text, '\n')) {
    if (!line.empty()) out += fmt::format("  {}\n", line);
  }
  return out;
}

// The sample's task: of several arrays of the step, the one whose folder contains its files.
std::string sample_tasks(const fs::path& campaign, const GivenSample& given, std::int64_t id) {
  const Answer tasks = ask_wflow(
      {"tasks", campaign.string(), "--step", given.step, "--range", fmt::format("{}:{}", id, id), "--json"});
  if (!tasks.good) return indented(tasks.text);
  std::string out;
  for (const auto& task : nlohmann::json::parse(tasks.text, nullptr, false)) {
    const fs::path folder = campaign / task.value("array", "");
    const std::string inside = given.directory.lexically_relative(folder).string();
    if (inside.empty() || inside.starts_with("..")) continue;
    out += indented(ask_wflow({"explain", campaign.string(), task.value("task", "")}).text);
  }
  return out.empty() ? fmt::format("  the campaign has no record of {} {}\n", given.step, id) : out;
}

}  // namespace

std::string show_lineage(const fs::path& data, std::int64_t id) {
  const Manifest manifest = read_manifest(data);
  const auto place = find_sample(data, manifest, id);
  if (!place) throw Error(ExitCode::usage, fmt::format("there is no sample {} in {}", id, data.string()));
  const auto block = block_of(*place);
  std::string out = fmt::format("sample {}: row {} of {} ({})\n", id, place->row, place->shard, place->split);
  out += fmt::format("data set: {}, made by {}, manifest {}\n", manifest.name, manifest.created_by,
                     manifest.hash);
  const auto record = block ? read_block_record(data, *block) : std::nullopt;
  if (record) {
    out +=
        fmt::format("block {}: configuration {}, rows {}\n", *block, record->config_hash, record->rows_hash);
    for (const BlockShard& shard : record->shards) {
      if (shard.entry.file == place->shard)
        out += fmt::format("  {}: {}\n", shard.entry.file, shard.entry.xxh3_128);
    }
  }
  const auto given = block ? given_sample(data, *block, id) : std::nullopt;
  if (const std::string imported = imported_from(data, id); !imported.empty()) return out + imported;
  if (given) out += given->text;
  const auto campaign = campaign_of(data);
  if (!campaign || !given)
    return out + "no campaign is recorded for it: the data set was made outside of one, merged or copied\n";
  out +=
      fmt::format("campaign: {}\nsimulated by:\n{}", campaign->string(), sample_tasks(*campaign, *given, id));
  const std::string step = fs::weakly_canonical(data).lexically_relative(*campaign).string();
  out += fmt::format(
      "converted by:\n{}",
      indented(ask_wflow({"explain", campaign->string(), fmt::format("{}/{}", step, *block)}).text));
  return out +
         fmt::format("versions of the study:\n{}", indented(ask_wflow({"history", campaign->string()}).text));
}

}  // namespace wflow::converters
