// SPDX-License-Identifier: Apache-2.0
// Events in a task's $WFLOW_EVENTS file (docs/formats/events.md). The worker parses every line once;
// from there on it is a typed value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "specs/plan/template.h"

namespace wflow::engine::wire {

using specs::ArrayId;
using specs::Element;

// Texts of a line that are longer are cut; the whole line has at most 64 KiB.
inline constexpr std::size_t kMaxEventText = 4096;
inline constexpr std::size_t kMaxEventLine = 64 << 10;

struct Metric {
  std::string name;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  double value = 0;  // may be infinite or not a number
};
struct Progress {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  std::string unit;
};
struct Note {
  std::string text;
};
struct Artifact {
  std::string kind;  // model, predictions, manifest, shard
  std::string path;
};
struct Checkpoint {
  std::string path;
  std::string hash;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
};
struct Submission {  // a campaign that is to come after this one (engine/followups/)
  std::string kind;
  std::string id;
  std::string spec;
  std::string options;  // JSON: what the study is read with
  std::string directory;
};
// A sample that a conversion could not use.
struct MissingSample {
  std::uint64_t sample = 0;
  std::string reason;
};
// Why so many samples could not be used, with the first of them.
struct MissingReason {
  std::string reason;
  std::uint64_t samples = 0;
  std::uint64_t first = 0;
};
inline constexpr std::size_t kMaxReasons = 8;
// A block of samples has been converted: what its MissingSamples come to. Those of another execution of the
// same task do not count any more.
struct Converted {
  std::uint64_t samples = 0;           // usable ones
  std::vector<MissingReason> missing;  // at most kMaxReasons; the last one may stand for several
};
struct Convergence {};  // no further iteration, where the study says nothing else in `until`
// Any other type, and lines of the types above whose values are of another type: kept as they are.
struct OtherEvent {
  std::string type;
  std::string json;  // the line
};

using EventBody = std::variant<Metric, Progress, Note, Artifact, Checkpoint, Submission, Convergence,
                               MissingSample, Converted, OtherEvent>;

struct TaskEvent {
  ArrayId array = 0;
  Element element = 0;
  std::uint32_t attempt = 0;
  double time_s = 0;  // Unix time
  EventBody body;
};

// A bundle process's report of a single sample: the worker converts it to results; it is never sent.
struct SampleReport {
  bool done = false;  // or failed
  Element first = 0;
  std::uint64_t count = 1;
  std::string error;
  std::int32_t exit_code = 1;  // for a failed sample, never 0
};

using EventLine = std::variant<EventBody, SampleReport>;

// Nothing for a line that is no JSON object. Bytes that are no UTF-8 become U+FFFD. Never throws.
std::optional<EventLine> parse_event_line(std::string_view line);

// The value of the line's key "type".
std::string_view type_of(const EventBody& body);
// The line again, as the database keeps it.
std::string json_of(const EventBody& body);

// About how many bytes the event takes in memory or in a message.
std::size_t bytes_of(const TaskEvent& event);

// True if every text in it is valid UTF-8 and not too long. True for all results of parse_event_line(); check
// the events of a peer.
bool is_wellformed(const TaskEvent& event);

}  // namespace wflow::engine::wire
