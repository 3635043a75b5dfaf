// SPDX-License-Identifier: Apache-2.0
#include "base/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "base/text.h"

namespace wflow::yaml {

// Not in the class: clang would look into pairs of nodes before a node is complete.
Node::Node() = default;
Node::Node(const Node& other) = default;
Node::Node(Node&& other) noexcept = default;
Node& Node::operator=(const Node& other) = default;
Node& Node::operator=(Node&& other) noexcept = default;
Node::~Node() = default;

const Node* Node::find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.text == key) return &value;
  }
  return nullptr;
}

Node* Node::find(std::string_view key) {
  return const_cast<Node*>(std::as_const(*this).find(key));
}

std::string Node::describe() const {
  switch (kind) {
    case Kind::null:
      return "nothing";
    case Kind::sequence:
      return "a list";
    case Kind::map:
      return "a mapping";
    case Kind::scalar:
      break;
  }
  if (!quoted && text::to_real(text)) return "the number " + text;
  std::string shown = text.substr(0, text.find('\n'));
  if (shown.size() > 40) shown = shown.substr(0, 40) + "...";
  return "the text '" + shown + "'";
}

std::string Diagnostic::to_string() const {
  const char* word = severity == Severity::error ? "error" : "warning";
  if (mark.line == 0) return fmt::format("{}: {}: {}", file, word, message);
  return fmt::format("{}:{}:{}: {}: {}", file, mark.line, mark.column, word, message);
}

void Diagnostics::error(const Mark& mark, std::string message) {
  list_.push_back({Severity::error, file_, mark, std::move(message)});
}

void Diagnostics::warning(const Mark& mark, std::string message) {
  list_.push_back({Severity::warning, file_, mark, std::move(message)});
}

void Diagnostics::unknown_key(const Mark& mark, std::string message) {
  lenient_ ? warning(mark, std::move(message)) : error(mark, std::move(message));
}

bool Diagnostics::has_errors() const {
  return std::any_of(list_.begin(), list_.end(), [](const auto& d) { return d.severity == Severity::error; });
}

std::string Diagnostics::to_string() const {
  std::vector<Diagnostic> sorted = list_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.mark.line, a.mark.column) < std::pair(b.mark.line, b.mark.column);
  });
  std::vector<std::string> lines;
  for (const Diagnostic& diagnostic : sorted) lines.push_back(diagnostic.to_string());
  return text::join(lines, "\n");
}

void Diagnostics::throw_if_errors() const {
  if (has_errors()) throw Error(ExitCode::spec, to_string());
}

namespace {

Mark mark_of(const YAML::Mark& mark) {
  return mark.is_null() ? Mark{} : Mark{mark.line + 1, mark.column + 1};
}

// Deeper than any real file; stops a hostile file before the stack overflows.
constexpr int kMaxDepth = 100;
// A few anchors that repeat each other can name billions of nodes. Without aliases a text of n bytes has at
// most n + 1 nodes; aliases may add this number.
constexpr std::size_t kMaxRepeated = 100'000;

class Converter {
 public:
  Converter(Diagnostics& diagnostics, std::size_t text_bytes)
      : diagnostics_(diagnostics), most_(text_bytes + kMaxRepeated) {}

  Node convert(const YAML::Node& from, int depth) {
    Node node;
    node.mark = mark_of(from.Mark());
    if (depth > kMaxDepth || overflow_ || ++count_ > most_) {
      if (!overflow_)
        diagnostics_.error(
            node.mark,
            fmt::format("the YAML is nested more than {} levels deep, or its aliases (*name) repeat "
                        "more than {} values",
                        kMaxDepth, kMaxRepeated));
      overflow_ = true;
      return node;
    }
    switch (from.Type()) {
      case YAML::NodeType::Scalar:
        node.kind = Kind::scalar;
        node.text = from.Scalar();
        node.quoted = from.Tag() == "!" || from.Tag() == "tag:yaml.org,2002:str";
        break;
      case YAML::NodeType::Sequence:
        node.kind = Kind::sequence;
        for (const auto& item : from) node.items.push_back(convert(item, depth + 1));
        break;
      case YAML::NodeType::Map:
        convert_map(from, node, depth);
        break;
      case YAML::NodeType::Null:
      case YAML::NodeType::Undefined:
        break;
    }
    return node;
  }

 private:
  void convert_map(const YAML::Node& from, Node& node, int depth) {
    node.kind = Kind::map;
    std::vector<Node> merged;
    for (const auto& entry : from) {
      Node key = convert(entry.first, depth + 1);
      if (!key.is_scalar()) {
        diagnostics_.error(key.mark, "a key must be a single word or text, found " + key.describe());
        continue;
      }
      Node value = convert(entry.second, depth + 1);
      if (key.text == "<<" && !key.quoted) {
        merged.push_back(std::move(value));
      } else if (Node* earlier = node.find(key.text)) {
        // If this is only a warning, the last one counts, as in Python.
        diagnostics_.unknown_key(key.mark, fmt::format("the key '{}' stands here twice", key.text));
        *earlier = std::move(value);
      } else {
        node.entries.emplace_back(std::move(key), std::move(value));
      }
    }
    for (const Node& source : merged) {
      if (!overflow_) merge(source, node);
    }
  }

  void merge(const Node& source, Node& target) {
    if (source.is_sequence()) {
      for (const Node& item : source.items) merge(item, target);
      return;
    }
    if (!source.is_map()) {
      diagnostics_.error(source.mark,
                         "'<<' merges a mapping or a list of mappings, found " + source.describe());
      return;
    }
    for (const auto& [key, value] : source.entries) {
      if (target.find(key.text) == nullptr) target.entries.emplace_back(key, value);
    }
  }

  Diagnostics& diagnostics_;
  std::size_t most_;
  std::size_t count_ = 0;
  bool overflow_ = false;
};

// Finds out whether a document has any content, and where it begins.
class DocumentProbe final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { mark_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override { has_content_ = true; }
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {
    has_content_ = true;
  }
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    has_content_ = true;
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    has_content_ = true;
  }
  void OnMapEnd() override {}

  bool has_content() const { return has_content_; }
  Mark mark() const { return mark_of(mark_); }

 private:
  YAML::Mark mark_;
  bool has_content_ = false;
};

// Reports text behind the first document. Reads one document at a time, at most two: if a comma follows a
// complete document ("[a], b"), YAML::LoadAll of yaml-cpp 0.7 finds endless documents until memory is
// exhausted.
void check_single_document(const std::string& text, Diagnostics& diagnostics) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentProbe first;
  if (!parser.HandleNextDocument(first)) return;
  DocumentProbe second;
  if (!parser.HandleNextDocument(second)) return;
  if (second.has_content() || static_cast<bool>(parser)) {
    diagnostics.error(second.mark(),
                      "a second YAML document or stray text begins here; one document was expected");
  }
}

const Node& last_scalar(const Node& node) {
  if (node.is_sequence() && !node.items.empty()) return last_scalar(node.items.back());
  if (node.is_map() && !node.entries.empty()) return last_scalar(node.entries.back().second);
  return node;
}

}  // namespace

Node parse(std::string_view text, Diagnostics& diagnostics) {
  try {
    const std::string copy(text);
    check_single_document(copy, diagnostics);
    Node root = Converter(diagnostics, copy.size()).convert(YAML::Load(copy), 0);
    if (const Node& last = last_scalar(root); last.quoted) {
      if (auto open = find_open_quote(text, last.mark))
        diagnostics.error(open->mark, std::move(open->message));
    }
    return root;
  } catch (const YAML::Exception& error) {
    SyntaxError found = explain_syntax(text, mark_of(error.mark), error.msg);
    diagnostics.error(found.mark, std::move(found.message));
    return {};
  }
}

namespace {

void emit_node(const Node& node, YAML::Emitter& out) {
  switch (node.kind) {
    case Kind::null:
      out << YAML::Null;
      break;
    case Kind::scalar:
      if (node.text.find('\n') != std::string::npos) {
        out << YAML::Literal << node.text;
      } else if (node.quoted) {
        out << YAML::DoubleQuoted << node.text;
      } else {
        out << node.text;
      }
      break;
    case Kind::sequence:
      out << YAML::BeginSeq;
      for (const Node& item : node.items) emit_node(item, out);
      out << YAML::EndSeq;
      break;
    case Kind::map:
      out << YAML::BeginMap;
      for (const auto& [key, value] : node.entries) {
        out << YAML::Key;
        emit_node(key, out);
        out << YAML::Value;
        emit_node(value, out);
      }
      out << YAML::EndMap;
      break;
  }
}

}  // namespace

std::string emit(const Node& node) {
  YAML::Emitter out;
  out.SetIndent(2);
  emit_node(node, out);
  return std::string(out.c_str()) + "\n";
}

Node scalar(std::string text) {
  Node node;
  node.kind = Kind::scalar;
  node.text = std::move(text);
  return node;
}

Node quoted(std::string text) {
  Node node = scalar(std::move(text));
  node.quoted = true;
  return node;
}

Node sequence(std::vector<Node> items) {
  Node node;
  node.kind = Kind::sequence;
  node.items = std::move(items);
  return node;
}

Node map(std::vector<std::pair<std::string, Node>> entries) {
  Node node;
  node.kind = Kind::map;
  for (auto& [key, value] : entries) node.entries.emplace_back(scalar(key), std::move(value));
  return node;
}

namespace {

template <typename T>
std::optional<T> expect(std::optional<T> value, const Node& node, std::string_view name,
                        std::string_view expected, Diagnostics& diagnostics) {
  if (!value) {
    diagnostics.error(node.mark, fmt::format("'{}' must be {}, found {}", name, expected, node.describe()));
  }
  return value;
}

std::optional<bool> to_boolean(const Node& node) {
  if (!node.is_scalar()) return std::nullopt;
  const std::string word = text::lower(node.text);
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> as_integer(const Node& node, std::string_view name, Diagnostics& diagnostics) {
  return expect(node.is_scalar() ? text::to_integer(node.text) : std::nullopt, node, name, "a whole number",
                diagnostics);
}

std::optional<double> as_real(const Node& node, std::string_view name, Diagnostics& diagnostics) {
  std::optional<double> value = node.is_scalar() ? text::to_real(node.text) : std::nullopt;
  if (value && !std::isfinite(*value)) value.reset();
  return expect(value, node, name, "a number", diagnostics);
}

std::optional<bool> as_boolean(const Node& node, std::string_view name, Diagnostics& diagnostics) {
  return expect(to_boolean(node), node, name, "true or false", diagnostics);
}

std::optional<std::string> as_string(const Node& node, std::string_view name, Diagnostics& diagnostics) {
  return expect(node.is_scalar() ? std::optional(node.text) : std::nullopt, node, name, "a text",
                diagnostics);
}

MapReader::MapReader(const Node& node, std::string where, Diagnostics& diagnostics)
    : node_(&node), where_(std::move(where)), diagnostics_(&diagnostics) {
  if (!node.is_map() && !node.is_null()) {
    diagnostics.error(node.mark,
                      fmt::format("{} must be a mapping (key: value), found {}", where_, node.describe()));
  }
}

const Node* MapReader::find(std::string_view key) {
  known_.emplace(key);
  const Node* value = node_->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool MapReader::has(std::string_view key) {
  return find(key) != nullptr;
}

const Node* MapReader::required(std::string_view key) {
  const Node* value = find(key);
  if (value == nullptr) diagnostics_->error(mark_of(key), fmt::format("{} needs the key '{}'", where_, key));
  return value;
}

std::string MapReader::string(std::string_view key, std::string fallback) {
  const Node* value = find(key);
  if (value == nullptr) return fallback;
  return as_string(*value, key, *diagnostics_).value_or(std::move(fallback));
}

std::string MapReader::required_string(std::string_view key) {
  const Node* value = required(key);
  if (value == nullptr) return {};
  std::string result = as_string(*value, key, *diagnostics_).value_or("?");
  if (text::trim(result).empty()) {
    diagnostics_->error(value->mark, fmt::format("'{}' of {} must not be empty", key, where_));
  }
  return result;
}

std::int64_t MapReader::integer(std::string_view key, std::int64_t fallback, std::int64_t least,
                                std::int64_t most) {
  const Node* value = find(key);
  if (value == nullptr) return fallback;
  const auto number = as_integer(*value, key, *diagnostics_);
  if (!number) return fallback;
  if (*number < least || *number > most) {
    diagnostics_->error(value->mark,
                        fmt::format("'{}' must be between {} and {}, found {}", key, least, most, *number));
    return fallback;
  }
  return *number;
}

double MapReader::real(std::string_view key, double fallback, double least, double most) {
  const Node* value = find(key);
  if (value == nullptr) return fallback;
  const auto number = as_real(*value, key, *diagnostics_);
  if (!number) return fallback;
  if (*number < least || *number > most) {
    diagnostics_->error(value->mark,
                        fmt::format("'{}' must be between {} and {}, found {}", key, least, most, *number));
    return fallback;
  }
  return *number;
}

bool MapReader::boolean(std::string_view key, bool fallback) {
  const Node* value = find(key);
  return value == nullptr ? fallback : as_boolean(*value, key, *diagnostics_).value_or(fallback);
}

namespace {

// Words that other programs have for a key or a value: what to write, where `known` is among the keys.
struct OtherName {
  std::string_view word, known, write;
};
constexpr auto kOtherNames = std::to_array<OtherName>({
    {"lr", "learning_rate", "learning_rate"},
    {"lr", "optimizer", "optimizer: {learning_rate: ...}"},
    {"learning_rate", "optimizer", "optimizer: {learning_rate: ...}"},
    {"batch_size", "batch", "batch"},
    {"hidden", "dense", "dense"},
    {"features", "inputs", "inputs"},
    {"outputs", "targets", "targets"},
    {"labels", "targets", "targets"},
    {"mem", "memory", "memory"},
    {"ram", "memory", "memory"},
    {"retries", "max_retries", "max_retries"},
    {"retry", "max_retries", "max_retries"},
    {"needs", "depends", "depends"},
    {"after", "depends", "depends"},
    {"depends_on", "depends", "depends"},
    {"dependencies", "depends", "depends"},
    {"command", "cmd", "cmd"},
    {"script", "cmd", "cmd"},
    {"time", "timeout", "timeout"},
    {"time", "walltime", "walltime"},
    {"time_limit", "timeout", "timeout"},
    {"time_limit", "walltime", "walltime"},
    {"cpus", "cores", "cores"},
    {"threads", "cores", "cores"},
    {"ntasks", "procs", "procs"},
    {"ranks", "procs", "procs"},
    {"gpu", "gpus", "gpus"},
    {"partition", "queue", "queue"},
    {"account", "bank", "bank"},
    {"n", "count", "count"},
    {"size", "count", "count"},
    {"num_samples", "count", "count"},
    {"lhs", "latin_hypercube", "latin_hypercube"},
    {"lhc", "latin_hypercube", "latin_hypercube"},
    {"random", "uniform", "uniform"},
});

// "; did you mean 'learning_rate'?" for another program's word or a typing error; else empty.
std::string hint(std::string_view word, std::span<const std::string> known) {
  const auto other = std::ranges::find_if(kOtherNames, [&](const OtherName& name) {
    return name.word == word && std::ranges::find(known, name.known) != known.end();
  });
  if (other != kOtherNames.end()) return fmt::format("; did you mean '{}'?", other->write);
  return text::suggestion(word, known);
}

}  // namespace

std::size_t MapReader::choice(std::string_view key, std::size_t fallback,
                              std::span<const std::string> choices) {
  const Node* value = find(key);
  if (value == nullptr) return fallback;
  const auto at = value->is_scalar() ? std::find(choices.begin(), choices.end(), value->text) : choices.end();
  if (at != choices.end()) return static_cast<std::size_t>(at - choices.begin());
  diagnostics_->error(value->mark,
                      fmt::format("'{}' must be one of {}, found {}{}", key, text::join(choices, ", "),
                                  value->describe(), hint(value->text, choices)));
  return fallback;
}

namespace {

std::vector<Node> as_list(const Node* value) {
  if (value == nullptr) return {};
  return value->is_sequence() ? value->items : std::vector<Node>{*value};
}

}  // namespace

std::vector<std::string> MapReader::strings(std::string_view key) {
  std::vector<std::string> list;
  for (const Node& item : as_list(find(key))) {
    if (auto word = as_string(item, key, *diagnostics_)) list.push_back(std::move(*word));
  }
  return list;
}

std::vector<std::int64_t> MapReader::integers(std::string_view key, std::int64_t least, std::int64_t most) {
  std::vector<std::int64_t> list;
  for (const Node& item : as_list(find(key))) {
    const auto number = as_integer(item, key, *diagnostics_);
    if (!number) continue;
    if (*number < least || *number > most) {
      diagnostics_->error(item.mark,
                          fmt::format("'{}' must be between {} and {}, found {}", key, least, most, *number));
    }
    list.push_back(*number);
  }
  return list;
}

std::vector<double> MapReader::reals(std::string_view key) {
  std::vector<double> list;
  for (const Node& item : as_list(find(key))) {
    if (const auto number = as_real(item, key, *diagnostics_)) list.push_back(*number);
  }
  return list;
}

double MapReader::seconds(std::string_view key, double fallback) {
  const Node* value = find(key);
  if (value == nullptr) return fallback;
  const auto number = value->is_scalar() ? parse_seconds(value->text) : std::nullopt;
  return expect(number, *value, key, "a time (90, 90 s, 10 min, 1.5 h, hh:mm:ss)", *diagnostics_)
      .value_or(fallback);
}

std::int64_t MapReader::bytes(std::string_view key, std::int64_t fallback) {
  const Node* value = find(key);
  if (value == nullptr) return fallback;
  const auto number = value->is_scalar() ? parse_bytes(value->text) : std::nullopt;
  return expect(number, *value, key, "a size (4096, 512 MiB, 1.5 GB)", *diagnostics_).value_or(fallback);
}

void MapReader::finish() {
  const std::vector<std::string> known(known_.begin(), known_.end());
  for (const auto& [key, value] : node_->entries) {
    if (known_.contains(key.text)) continue;
    diagnostics_->unknown_key(
        key.mark, fmt::format("unknown key '{}' in {}{}", key.text, where_, hint(key.text, known)));
  }
}

Mark MapReader::mark_of(std::string_view key) const {
  const Node* value = node_->find(key);
  return value != nullptr && value->mark.line > 0 ? value->mark : node_->mark;
}

namespace {

// Splits "1.5 h" into 1.5 and "h".
std::optional<std::pair<double, std::string>> number_and_unit(std::string_view text) {
  text = text::trim(text);
  std::size_t end = 0;
  while (end < text.size() && (std::isdigit(static_cast<unsigned char>(text[end])) || text[end] == '.'))
    ++end;
  const auto number = text::to_real(text.substr(0, end));
  if (!number) return std::nullopt;
  return std::pair(*number, text::lower(text::trim(text.substr(end))));
}

std::optional<double> clock_time(std::string_view text) {
  double days = 0;
  std::size_t dash = text.find('-');
  if (dash == std::string_view::npos && std::ranges::count(text, ':') == 3) dash = text.find(':');
  if (dash != std::string_view::npos) {
    const auto number = text::to_integer(text.substr(0, dash));
    if (!number || *number < 0) return std::nullopt;
    days = static_cast<double>(*number);
    text.remove_prefix(dash + 1);
  }
  double seconds = 0;
  const std::vector<std::string> parts = text::split(text, ':');
  if (parts.size() > 3) return std::nullopt;
  for (const std::string& part : parts) {
    const auto number = text::to_integer(part);
    if (!number || *number < 0) return std::nullopt;
    seconds = seconds * 60 + static_cast<double>(*number);
  }
  return days * 86400 + seconds;
}

}  // namespace

std::optional<double> parse_seconds(std::string_view text) {
  text = text::trim(text);
  if (text.find(':') != std::string_view::npos) return clock_time(text);
  const auto parts = number_and_unit(text);
  if (!parts) return std::nullopt;
  static const std::map<std::string, double> kUnits = {
      {"", 1},         {"s", 1},     {"sec", 1},     {"second", 1},   {"seconds", 1}, {"ms", 1e-3},
      {"m", 60},       {"min", 60},  {"minute", 60}, {"minutes", 60}, {"h", 3600},    {"hour", 3600},
      {"hours", 3600}, {"d", 86400}, {"day", 86400}, {"days", 86400}};
  const auto unit = kUnits.find(parts->second);
  if (unit == kUnits.end()) return std::nullopt;
  return parts->first * unit->second;
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  const auto parts = number_and_unit(text);
  if (!parts) return std::nullopt;
  static const std::map<std::string, double> kUnits = {
      {"", 1},       {"b", 1},        {"k", 1024.0}, {"kib", 1024.0}, {"m", 1048576.0}, {"mib", 1048576.0},
      {"g", 0x1p30}, {"gib", 0x1p30}, {"t", 0x1p40}, {"tib", 0x1p40}, {"kb", 1e3},      {"mb", 1e6},
      {"gb", 1e9},   {"tb", 1e12}};
  const auto unit = kUnits.find(parts->second);
  if (unit == kUnits.end()) return std::nullopt;
  const double bytes = parts->first * unit->second;
  if (bytes > 9e18) return std::nullopt;
  return static_cast<std::int64_t>(std::llround(bytes));
}

}  // namespace wflow::yaml
