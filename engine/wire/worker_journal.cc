// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/worker_journal.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "engine/wire/messages.h"

namespace wflow::engine::wire {

namespace {

static_assert(std::endian::native == std::endian::little, "journals are little endian");

// A record: the mark, u32 length of the payload, u64 XXH3 of the payload, the payload. Its first byte says
// what it is.
constexpr std::string_view kMark = "WfJ1";  // ends with the version, 1 to 9
constexpr std::size_t kFrameBytes = 16;
constexpr char kHeader = 'h';
constexpr char kResults = 'r';

template <class T>
T number_at(std::string_view bytes, std::size_t at) {
  T value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void append_number(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string frame(char kind, std::string_view content) {
  std::string payload(1, kind);
  payload += content;
  std::string record(kMark);
  record.reserve(kFrameBytes + payload.size());
  append_number(record, static_cast<std::uint32_t>(payload.size()));
  append_number(record, static_cast<std::uint64_t>(XXH3_64bits(payload.data(), payload.size())));
  return record += payload;
}

// The payload of the record that `bytes` begin with; empty if there is no whole one.
std::string_view payload_of(std::string_view bytes) {
  if (bytes.size() < kFrameBytes || !bytes.starts_with(kMark)) return {};
  const std::size_t length = number_at<std::uint32_t>(bytes, 4);
  if (length > bytes.size() - kFrameBytes) return {};
  const std::string_view payload = bytes.substr(kFrameBytes, length);
  const bool whole = XXH3_64bits(payload.data(), payload.size()) == number_at<std::uint64_t>(bytes, 8);
  return whole ? payload : std::string_view();
}

bool has_newer_mark(std::string_view bytes) {
  const std::string_view name = kMark.substr(0, kMark.size() - 1);
  if (bytes.size() < kMark.size() || !bytes.starts_with(name)) return false;
  const char version = bytes[name.size()];
  return version > kMark.back() && version <= '9';
}

// Where the next whole record begins, or the end of `bytes`.
std::size_t next_record(std::string_view bytes, std::size_t from) {
  for (std::size_t at = bytes.find(kMark, from); at != std::string_view::npos;
       at = bytes.find(kMark, at + 1)) {
    if (!payload_of(bytes.substr(at)).empty()) return at;
  }
  return bytes.size();
}

// True if `bytes`, up to the end of the file, may be the beginning of one record.
bool is_cut(std::string_view bytes) {
  if (bytes.size() < kFrameBytes) return bytes.substr(0, kMark.size()) == kMark.substr(0, bytes.size());
  return bytes.starts_with(kMark) && number_at<std::uint32_t>(bytes, 4) > bytes.size() - kFrameBytes;
}

nlohmann::json to_json(const ProcessIdentity& process) {
  return {process.host, process.boot, process.namespace_id, process.pid, process.start_ticks};
}

ProcessIdentity identity_from(const nlohmann::json& json) {
  return {json.at(0), json.at(1), json.at(2), json.at(3), json.at(4)};
}

std::optional<JournalHeader> header_from(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    JournalHeader header;
    header.worker = json.at("worker");
    header.group = json.at("group");
    header.guardian = identity_from(json.at("guardian"));
    header.agent = identity_from(json.at("agent"));
    header.started_by = json.at("started_by");
    header.lost_s = json.at("lost_s");
    header.ended = json.value("ended", false);
    for (const auto& task : json.value("running", nlohmann::json::array()))
      header.running.push_back({task.at(0), task.at(1), task.at(2)});
    return header;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

// False for a payload of another version.
bool take(std::string_view payload, Records& records) {
  const std::string_view content = payload.substr(1);
  if (payload.front() == kHeader) {
    auto header = header_from(content);
    if (header) records.header = std::move(header);
    return header.has_value();
  }
  auto message = payload.front() == kResults ? decode(content) : std::nullopt;
  if (!message || !std::holds_alternative<Results>(*message)) return false;
  records.results.push_back(std::get<Results>(std::move(*message)));
  return true;
}

}  // namespace

std::string frame_record(const Results& results) {
  return frame(kResults, encode(results));
}

std::string frame_record(const JournalHeader& header) {
  nlohmann::json json = {{"worker", header.worker},
                         {"group", header.group},
                         {"guardian", to_json(header.guardian)},
                         {"agent", to_json(header.agent)},
                         {"started_by", header.started_by},
                         {"lost_s", header.lost_s},
                         {"ended", header.ended}};
  for (const RunningElement& task : header.running)
    json["running"].push_back({task.array, task.element, task.started_s});
  return frame(kHeader, json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

namespace {

std::string lost_results(std::uint64_t results) {
  if (results == 1) return "1 of its results is lost, so that up to 1 finished task runs again";
  return fmt::format("{0} of its results are lost, so that up to {0} finished tasks run again", results);
}

}  // namespace

std::string JournalDamage::sentence() const {
  if (newer) return "the journal was written by a newer wflow, which alone can read it";
  const std::string lost = missing > 0 ? lost_results(missing) : "tasks whose results stood there run again";
  if (places == 0) return "the journal was cut or replaced: " + lost;
  return fmt::format("{} of the journal {} damaged ({} bytes): {}",
                     places == 1 ? "one place" : fmt::format("{} places", places), places == 1 ? "is" : "are",
                     bytes, lost);
}

std::string missing_journal(std::uint64_t results) {
  return "the journal is missing: " + lost_results(results);
}

std::filesystem::path count_file(std::filesystem::path journal) {
  return journal.replace_extension(".count");
}

std::string frame_count(std::uint64_t count) {
  std::string text;
  append_number(text, count);
  append_number(text, static_cast<std::uint64_t>(XXH3_64bits(text.data(), text.size())));
  return text;
}

std::optional<std::uint64_t> noted_results(const std::filesystem::path& journal) {
  try {
    const std::string text = read_file(count_file(journal));
    if (text.size() < 2 * sizeof(std::uint64_t)) return std::nullopt;
    const auto count = number_at<std::uint64_t>(text, 0);
    if (text != frame_count(count)) return std::nullopt;
    return count;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::uint64_t count_results(const Results& results) {
  std::uint64_t count = results.outcomes.size();
  for (const DoneRun& run : results.done) count += run.count;
  return count;
}

void compare(Records& records, std::optional<std::uint64_t> noted) {
  std::uint64_t held = 0;
  for (const Results& results : records.results) held += count_results(results);
  records.damaged.missing = noted && *noted > held ? *noted - held : 0;
}

Records read_records(const std::filesystem::path& journal) {
  const auto before = noted_results(journal);
  Records records = parse_records(read_file(journal));
  const auto after = noted_results(journal);
  if (before && after) compare(records, std::min(*before, *after));
  return records;
}

Records parse_records(std::string_view bytes) {
  Records records;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::string_view payload = payload_of(bytes.substr(at));
    if (!payload.empty() && take(payload, records)) {
      if (records.results.empty() && !records.damaged)
        records.header_bytes = at + kFrameBytes + payload.size();
      at += kFrameBytes + payload.size();
      records.valid_bytes = at;
      continue;
    }
    const std::size_t next = next_record(bytes, at + 1);
    if (next < bytes.size() || !is_cut(bytes.substr(at))) {
      ++records.damaged.places;
      records.damaged.bytes += next - at;
    }
    at = next;
  }
  records.damaged.newer = !records.header && records.results.empty() && has_newer_mark(bytes);
  return records;
}

}  // namespace wflow::engine::wire
