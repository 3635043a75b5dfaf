// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/task_event.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/text.h"

namespace wflow::engine::wire {

namespace {

using Json = nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// What SQLite can hold.
constexpr std::uint64_t kMostWhole = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kMaxWord = 256;  // limit for names, units, kinds and types

// At a character's beginning.
std::string clipped(std::string text, std::size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  text.resize(limit);
  return text;
}

// A line's values by key. A value of the wrong type makes the line invalid; one that is absent is its type's
// zero.
class Values {
 public:
  explicit Values(const Json& object) : object_(object) {}
  bool valid() const { return valid_; }

  std::string text(const char* key, std::size_t limit = kMaxEventLine) {
    const auto at = object_.find(key);
    if (at == object_.end()) return {};
    if (!at->is_string()) return invalid<std::string>();
    return clipped(at->get<std::string>(), limit);
  }

  std::uint64_t whole(const char* key, std::uint64_t otherwise = 0) {
    const auto at = object_.find(key);
    if (at == object_.end()) return otherwise;
    if (at->is_number_unsigned()) {
      const auto value = at->get<std::uint64_t>();
      return value <= kMostWhole ? value : invalid<std::uint64_t>();
    }
    if (!at->is_number_float()) return invalid<std::uint64_t>();
    const auto value = at->get<double>();
    // The comparison is false for what is not a number, too.
    if (!(value >= 0 && value < 0x1p63) || value != std::floor(value)) return invalid<std::uint64_t>();
    return static_cast<std::uint64_t>(value);
  }

  double real(const char* key) {
    const auto at = object_.find(key);
    if (at == object_.end()) return invalid<double>();
    if (at->is_number() || at->is_null()) return number_or_nan(*at);
    if (!at->is_string()) return invalid<double>();
    return real_of_word(at->get<std::string>());
  }

  // [{"reason": ..., "samples": ..., "first": ...}, ...]
  std::vector<MissingReason> reasons(const char* key) {
    std::vector<MissingReason> list;
    const auto at = object_.find(key);
    if (at == object_.end()) return list;
    if (!at->is_array() || at->size() > kMaxReasons) return invalid<std::vector<MissingReason>>();
    for (const Json& item : *at) {
      if (!item.is_object()) return invalid<std::vector<MissingReason>>();
      Values values(item);
      list.push_back({values.text("reason", kMaxEventText), values.whole("samples"), values.whole("first")});
      valid_ = valid_ && values.valid();
    }
    return list;
  }

  std::int32_t exit_code(const char* key) {
    const auto at = object_.find(key);
    if (at == object_.end() || !at->is_number_integer()) return 1;
    const bool fits = at->is_number_unsigned() ? std::in_range<std::int32_t>(at->get<std::uint64_t>())
                                               : std::in_range<std::int32_t>(at->get<std::int64_t>());
    const std::int32_t code = fits ? at->get<std::int32_t>() : 1;
    return code == 0 ? 1 : code;
  }

 private:
  template <class T>
  T invalid() {
    valid_ = false;
    return T{};
  }

  // Reads numbers as programs in C, Python and JavaScript print them.
  double real_of_word(std::string word) {
    for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool negative = word.starts_with('-');
    if (negative || word.starts_with('+')) word.erase(0, 1);
    if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (word == "inf" || word == "infinity") return negative ? -kInfinity : kInfinity;
    return invalid<double>();
  }

  const Json& object_;
  bool valid_ = true;
};

// Python's json module writes NaN, Infinity and -Infinity, which JSON does not have: in quotes it does.
std::string with_quoted_words(std::string_view line) {
  constexpr std::array<std::string_view, 3> kWords = {"-Infinity", "Infinity", "NaN"};
  std::string quoted;
  bool in_text = false;
  for (std::size_t at = 0; at < line.size();) {
    const char c = line[at];
    std::size_t length = in_text && c == '\\' ? 2 : 1;
    if (c == '"') in_text = !in_text;
    std::string_view word;
    for (const std::string_view candidate : kWords) {
      if (!in_text && word.empty() && line.substr(at).starts_with(candidate)) word = candidate;
    }
    if (!word.empty()) length = word.size();
    if (!word.empty()) quoted += '"';
    quoted += line.substr(at, length);
    if (!word.empty()) quoted += '"';
    at += length;
  }
  return quoted;
}

// Nesting deeper than this is no event: nlohmann::json compares and writes such values recursively.
constexpr int kDeepest = 64;

Json parse(std::string_view line) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kDeepest; };
  return Json::parse(line, shallow, false);
}

SampleReport sample_report(Values& values, bool done) {
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  SampleReport report;
  report.done = done;
  report.first = values.whole("sample", kNone);
  if (report.first == kNone) report.first = values.whole("first", kNone);
  report.count = values.whole("count", 1);
  report.error = done ? std::string() : values.text("error", kMaxEventText);
  report.exit_code = values.exit_code("exit_code");
  return report;
}

// In the order of EventBody.
constexpr std::array<std::string_view, std::variant_size_v<EventBody> - 1> kTypes = {
    "metric", "progress", "note", "artifact", "checkpoint", "submit", "converged", "missing", "converted"};

EventBody known_body(std::string_view type, Values& v) {
  if (type == "metric") {
    return Metric{v.text("name", kMaxWord), v.whole("epoch"), v.whole("step"), v.real("value")};
  }
  if (type == "progress") return Progress{v.whole("done"), v.whole("total"), v.text("unit", kMaxWord)};
  if (type == "note") return Note{clipped(printable(v.text("text")), kMaxEventText)};
  if (type == "artifact") return Artifact{v.text("kind", kMaxWord), v.text("path", kMaxEventText)};
  if (type == "checkpoint") {
    return Checkpoint{v.text("path", kMaxEventText), v.text("hash", kMaxWord), v.whole("epoch"),
                      v.whole("step")};
  }
  if (type == "submit") {
    return Submission{v.text("kind", kMaxWord), v.text("id", kMaxEventText), v.text("spec", kMaxEventText),
                      v.text("options"), v.text("directory", kMaxEventText)};
  }
  if (type == "missing") return MissingSample{v.whole("sample"), v.text("reason", kMaxEventText)};
  if (type == "converted") return Converted{v.whole("samples"), v.reasons("missing")};
  return Convergence{};
}

bool is_text(const std::string& text, std::size_t limit) {
  return text.size() <= limit && is_utf8(text);
}

}  // namespace

std::optional<EventLine> parse_event_line(std::string_view line) {
  if (line.size() > kMaxEventLine) return std::nullopt;
  std::string mended(line);
  if (!is_utf8(mended)) mended = printable(mended);
  Json object = parse(mended);
  if (object.is_discarded()) {
    mended = with_quoted_words(mended);
    object = parse(mended);
  }
  if (!object.is_object() || mended.size() > kMaxEventLine) return std::nullopt;
  Values values(object);
  const std::string type = values.text("type", kMaxWord);
  if (type == "sample_done" || type == "sample_failed") {
    SampleReport report = sample_report(values, type == "sample_done");
    return values.valid() ? std::optional<EventLine>(std::move(report)) : std::nullopt;
  }
  for (const std::string_view known : kTypes) {
    if (type != known) continue;
    EventBody body = known_body(type, values);
    if (values.valid()) return body;
  }
  return OtherEvent{type, std::move(mended)};
}

std::string_view type_of(const EventBody& body) {
  const auto* other = std::get_if<OtherEvent>(&body);
  return other != nullptr ? std::string_view(other->type) : kTypes[body.index()];
}

std::string json_of(const EventBody& body) {
  struct Fields {
    Json operator()(const Metric& m) const {
      return {{"name", m.name}, {"epoch", m.epoch}, {"step", m.step}, {"value", m.value}};
    }
    Json operator()(const Progress& p) const {
      return {{"done", p.done}, {"total", p.total}, {"unit", p.unit}};
    }
    Json operator()(const Note& n) const { return {{"text", n.text}}; }
    Json operator()(const Artifact& a) const { return {{"kind", a.kind}, {"path", a.path}}; }
    Json operator()(const Checkpoint& c) const {
      return {{"path", c.path}, {"hash", c.hash}, {"epoch", c.epoch}, {"step", c.step}};
    }
    Json operator()(const Submission& s) const {
      return {{"kind", s.kind},
              {"id", s.id},
              {"spec", s.spec},
              {"options", s.options},
              {"directory", s.directory}};
    }
    Json operator()(const Convergence&) const { return Json::object(); }
    Json operator()(const MissingSample& m) const { return {{"sample", m.sample}, {"reason", m.reason}}; }
    Json operator()(const Converted& c) const {
      Json missing = Json::array();
      for (const MissingReason& m : c.missing)
        missing.push_back({{"reason", m.reason}, {"samples", m.samples}, {"first", m.first}});
      return {{"samples", c.samples}, {"missing", std::move(missing)}};
    }
    Json operator()(const OtherEvent&) const { return Json::object(); }
  };
  if (const auto* other = std::get_if<OtherEvent>(&body)) return other->json;
  Json fields = std::visit(Fields{}, body);
  fields["type"] = type_of(body);
  return fields.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::size_t bytes_of(const TaskEvent& event) {
  struct Texts {
    std::size_t operator()(const Metric& m) const { return m.name.size(); }
    std::size_t operator()(const Progress& p) const { return p.unit.size(); }
    std::size_t operator()(const Note& n) const { return n.text.size(); }
    std::size_t operator()(const Artifact& a) const { return a.kind.size() + a.path.size(); }
    std::size_t operator()(const Checkpoint& c) const { return c.path.size() + c.hash.size(); }
    std::size_t operator()(const Submission& s) const {
      return s.kind.size() + s.id.size() + s.spec.size() + s.options.size() + s.directory.size();
    }
    std::size_t operator()(const Convergence&) const { return 0; }
    std::size_t operator()(const MissingSample& m) const { return m.reason.size(); }
    std::size_t operator()(const Converted& c) const {
      std::size_t bytes = 0;
      for (const MissingReason& m : c.missing) bytes += sizeof m + m.reason.size();
      return bytes;
    }
    std::size_t operator()(const OtherEvent& o) const { return o.type.size() + o.json.size(); }
  };
  return sizeof(TaskEvent) + std::visit(Texts{}, event.body);
}

bool is_wellformed(const TaskEvent& event) {
  struct Check {
    bool operator()(const Metric& m) const { return is_text(m.name, kMaxWord); }
    bool operator()(const Progress& p) const { return is_text(p.unit, kMaxWord); }
    bool operator()(const Note& n) const { return is_text(n.text, kMaxEventText); }
    bool operator()(const Artifact& a) const {
      return is_text(a.kind, kMaxWord) && is_text(a.path, kMaxEventText);
    }
    bool operator()(const Checkpoint& c) const {
      return is_text(c.path, kMaxEventText) && is_text(c.hash, kMaxWord);
    }
    bool operator()(const Submission& s) const {
      return is_text(s.kind, kMaxWord) && is_text(s.id, kMaxEventText) && is_text(s.spec, kMaxEventText) &&
             is_text(s.options, kMaxEventLine) && is_text(s.directory, kMaxEventText);
    }
    bool operator()(const Convergence&) const { return true; }
    bool operator()(const MissingSample& m) const { return is_text(m.reason, kMaxEventText); }
    bool operator()(const Converted& c) const {
      return c.missing.size() <= kMaxReasons &&
             std::all_of(c.missing.begin(), c.missing.end(),
                         [](const auto& m) { return is_text(m.reason, kMaxEventText); });
    }
    bool operator()(const OtherEvent& o) const {
      return is_text(o.type, kMaxWord) && is_text(o.json, kMaxEventLine);
    }
  };
  return std::isfinite(event.time_s) && std::visit(Check{}, event.body);
}

}  // namespace wflow::engine::wire
