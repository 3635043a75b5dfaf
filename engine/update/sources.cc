// SPDX-License-Identifier: Apache-2.0
#include "engine/update/changes.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/file.h"
#include "specs/study/reading.h"
#include "specs/study/study.h"

namespace wflow::engine {

namespace {

namespace fs = std::filesystem;

constexpr const char* kAbsent = "absent";
// A file that a command names and that was not there when it was recorded first: a task writes it, it is no
// source.
constexpr const char* kNoSource = "no source";

// A larger file that a command names is read by its tasks, and not by every command of wflow as well: it is a
// source where the step declares it.
constexpr std::uint64_t kMostNamedBytes = std::uint64_t{256} << 20;

std::string hash_directory(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code none;
  for (fs::recursive_directory_iterator at(directory, none), end; at != end; at.increment(none)) {
    if (at->is_regular_file(none)) files.push_back(at->path());
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files)
    text += file.lexically_relative(directory).string() + "\n" + hash_file(file) + "\n";
  return hash_bytes(text);
}

SourceFile look_at(const fs::path& path, const SourceFile* known) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {kAbsent, 0, 0};
  if (S_ISDIR(status.st_mode)) return {hash_directory(path), 0, 0};
  SourceFile file{"", static_cast<std::uint64_t>(status.st_size),
                  std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
  const bool same = known != nullptr && known->bytes == file.bytes && known->changed_ns == file.changed_ns;
  file.checksum = same ? known->checksum : hash_file(path);
  return file;
}

// The recorded sources of each step in this version of the study, the oldest first.
using Recorded = std::map<std::string, std::vector<std::pair<std::int64_t, SourceFiles>>>;

Recorded recorded(store::Store& store) {
  Recorded all;
  const std::uint64_t study = store.study();
  for (const store::SourcesRow& row : store.sources()) {
    if (row.study == study) all[row.step].emplace_back(row.id, sources_from_json(row.files));
  }
  return all;
}

const SourceFiles* newest(const Recorded& all, const std::string& step) {
  const auto at = all.find(step);
  return at == all.end() || at->second.empty() ? nullptr : &at->second.back().second;
}

const SourceFile* find(const SourceFiles* files, const std::string& path) {
  if (files == nullptr) return nullptr;
  const auto at = files->find(path);
  return at == files->end() ? nullptr : &at->second;
}

const specs::Step* step_named(const specs::Study& study, const std::string& name) {
  const auto at = std::find_if(study.steps.begin(), study.steps.end(),
                               [&](const auto& step) { return step.name == name; });
  return at == study.steps.end() ? nullptr : &*at;
}

bool equal(const SourceFiles& a, const SourceFiles& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](const auto& one, const auto& other) {
           return one.first == other.first && one.second.checksum == other.second.checksum;
         });
}

// Arrays of a step of the study, with the closing one of a conversion: it reads what its blocks left.
template <typename Visit>
void for_each_array(const specs::Plan& plan, std::size_t study_step, Visit visit) {
  for (const specs::PlannedStep& step : plan.steps()) {
    if (step.study_step != study_step || step.elements == 0) continue;
    for (ArrayId array = step.first_array; array < step.first_array + step.arrays; ++array)
      visit(array, step.elements);
  }
}

}  // namespace

std::string to_json_text(const SourceFiles& files) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [path, file] : files)
    json[path] = {{"checksum", file.checksum}, {"bytes", file.bytes}, {"changed_ns", file.changed_ns}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

SourceFiles sources_from_json(const std::string& text) {
  SourceFiles files;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return files;
  for (const auto& [path, file] : json.items()) {
    if (!file.is_object()) continue;
    files[path] = {file.value("checksum", ""), file.value("bytes", std::uint64_t{0}),
                   file.value("changed_ns", std::int64_t{0})};
  }
  return files;
}

SourceFiles read_sources(const specs::Study& study, const specs::Step& step, const SourceFiles* known) {
  SourceFiles files;
  for (const std::string& path : step.sources)
    files[path] = look_at(specs::locate(study, path), find(known, path));
  // Those that are there when they are named first: what tasks make later is no source, in no version of the
  // study.
  for (const std::string& path : specs::named_files(study, step)) {
    if (files.contains(path)) continue;
    const fs::path file = study.file.parent_path() / path;
    const SourceFile* before = find(known, path);
    std::error_code none;
    const bool source = before != nullptr
                            ? before->checksum != kNoSource
                            : fs::is_regular_file(file, none) && fs::file_size(file, none) <= kMostNamedBytes;
    files[path] = source ? look_at(file, before) : SourceFile{kNoSource, 0, 0};
  }
  return files;
}

bool has_sources(const specs::Study& study, const specs::Step& step) {
  return !step.sources.empty() || !specs::named_files(study, step).empty();
}

std::vector<store::SourcesRow> rows_of_sources(const specs::Study& study, store::Store& store,
                                               std::uint64_t version) {
  Recorded known;  // in all versions
  for (const store::SourcesRow& row : store.sources())
    known[row.step].emplace_back(row.id, sources_from_json(row.files));
  std::vector<store::SourcesRow> rows;
  for (const specs::Step& step : study.steps) {
    if (!has_sources(study, step)) continue;
    rows.push_back({0, step.name, unix_now_s(), version,
                    to_json_text(read_sources(study, step, newest(known, step.name)))});
  }
  return rows;
}

std::vector<std::string> differing_files(const SourceFiles& from, const SourceFiles& to) {
  std::vector<std::string> names;
  for (const auto& [path, file] : to) {
    const auto was = from.find(path);
    if (was != from.end() && was->second.checksum != file.checksum) names.push_back(path);
  }
  return names;
}

ArrayParts made_with_others(const specs::Plan& from, const specs::Study& to, store::Store& store) {
  ArrayParts parts;
  const Recorded known = recorded(store);
  if (known.empty()) return parts;
  std::map<ArrayId, std::vector<store::MadeRow>> made;
  for (const store::MadeRow& row : store.made()) made[row.array].push_back(row);
  for (std::size_t i = 0; i < from.study().steps.size(); ++i) {
    const std::string& name = from.study().steps[i].name;
    const auto rows = known.find(name);
    const specs::Step* step = step_named(to, name);
    if (rows == known.end() || step == nullptr || !has_sources(to, *step)) continue;
    const SourceFiles now = read_sources(to, *step, &rows->second.back().second);
    std::map<std::int64_t, bool> stale;
    for (const auto& [id, files] : rows->second) stale[id] = !differing_files(files, now).empty();
    const bool first_stale = stale.at(rows->second.front().first);
    for_each_array(from, i, [&](ArrayId array, std::uint64_t elements) {
      IntervalSet others;
      if (first_stale) others.add(Range{0, elements - 1});
      for (const store::MadeRow& row : made[array]) {
        const auto at = stale.find(row.sources);
        at != stale.end() && at->second ? others.add(row.range) : others.remove(row.range);
      }
      others.for_each([&](Range range) { parts.emplace_back(array, range); });
    });
  }
  return parts;
}

std::vector<std::string> changed_sources(const specs::Study& study, store::Store& store) {
  std::vector<std::string> changed;
  const Recorded known = recorded(store);
  for (const specs::Step& step : study.steps) {
    const SourceFiles* before = newest(known, step.name);
    if (before == nullptr || !has_sources(study, step)) continue;
    for (const std::string& path : differing_files(*before, read_sources(study, step, before)))
      changed.push_back(fmt::format("{} of {}", path, step.name));
  }
  return changed;
}

void record_sources(const specs::Plan& plan, store::Store& store) {
  std::optional<Recorded> known;
  for (std::size_t i = 0; i < plan.study().steps.size(); ++i) {
    const specs::Step& step = plan.study().steps[i];
    if (!has_sources(plan.study(), step)) continue;
    if (!known) known = recorded(store);
    const SourceFiles now = read_sources(plan.study(), step, newest(*known, step.name));
    auto& rows = (*known)[step.name];
    const auto same =
        std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return equal(row.second, now); });
    if (same != rows.end() && same == rows.begin()) continue;
    const std::int64_t id =
        same != rows.end()
            ? same->first
            : store.add_sources({0, step.name, unix_now_s(), store.study(), to_json_text(now)});
    if (rows.empty()) continue;  // the first ones
    for_each_array(plan, i, [&](ArrayId array, std::uint64_t) { store.set_sources(array, id); });
  }
}

}  // namespace wflow::engine
