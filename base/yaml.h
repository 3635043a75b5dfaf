// SPDX-License-Identifier: Apache-2.0
// The only boundary to YAML: turns text into a tree of wflow's own with the place of every word, and has a
// reader that checks types and keys and collects all errors with file, line and column instead of stopping at
// the first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace wflow::yaml {

struct Mark {
  int line = 0;  // from 1; 0: not from a file
  int column = 0;
};

enum class Kind { null, scalar, sequence, map };

// A node and all nodes below it; a value type. Scalars keep their text as written ("0.10" stays "0.10").
struct Node {
  Node();
  Node(const Node& other);
  Node(Node&& other) noexcept;
  Node& operator=(const Node& other);
  Node& operator=(Node&& other) noexcept;
  ~Node();

  Kind kind = Kind::null;
  Mark mark;
  bool quoted = false;                         // scalar in quotes or a block (| >): always a string
  std::string text;                            // kind scalar
  std::vector<Node> items;                     // kind sequence
  std::vector<std::pair<Node, Node>> entries;  // kind map, in order of the file; keys are scalars

  const Node* find(std::string_view key) const;
  Node* find(std::string_view key);
  bool is_null() const { return kind == Kind::null; }
  bool is_scalar() const { return kind == Kind::scalar; }
  bool is_sequence() const { return kind == Kind::sequence; }
  bool is_map() const { return kind == Kind::map; }
  // "a list", "a mapping", "the number 3", "the text 'x'", "nothing": for messages.
  std::string describe() const;
};

enum class Severity { error, warning };

struct Diagnostic {
  Severity severity = Severity::error;
  std::string file;
  Mark mark;
  std::string message;
  std::string to_string() const;  // "file:3:5: error: message"
};

class Diagnostics {
 public:
  explicit Diagnostics(std::string file) : file_(std::move(file)) {}
  void error(const Mark& mark, std::string message);
  void warning(const Mark& mark, std::string message);
  // Unknown keys are only warnings (for Merlin's own files).
  void set_lenient(bool lenient) { lenient_ = lenient; }
  void unknown_key(const Mark& mark, std::string message);
  bool has_errors() const;
  const std::string& file() const { return file_; }
  const std::vector<Diagnostic>& list() const { return list_; }
  // All diagnostics, one a line, sorted by place.
  std::string to_string() const;
  // Throws Error{spec} with to_string() if there is an error.
  void throw_if_errors() const;

 private:
  std::string file_;
  bool lenient_ = false;
  std::vector<Diagnostic> list_;
};

// Parses YAML text: anchors, aliases and merge keys (<<) are resolved. Adds syntax errors and duplicate
// keys to `diagnostics`, and returns the part that could be read.
Node parse(std::string_view text, Diagnostics& diagnostics);

// Writes the tree as YAML that parses to the same tree (scalars quoted where they were or must be).
std::string emit(const Node& node);

// Builders for trees made by programs.
Node scalar(std::string text);
Node quoted(std::string text);
Node sequence(std::vector<Node> items);
Node map(std::vector<std::pair<std::string, Node>> entries);

// Conversions of one scalar; on a mismatch they report "expected <expected>, found ..." at the node.
std::optional<std::int64_t> as_integer(const Node& node, std::string_view name, Diagnostics& diagnostics);
std::optional<double> as_real(const Node& node, std::string_view name, Diagnostics& diagnostics);
std::optional<bool> as_boolean(const Node& node, std::string_view name, Diagnostics& diagnostics);
std::optional<std::string> as_string(const Node& node, std::string_view name, Diagnostics& diagnostics);

// Reads one mapping key by key. `where` names it in messages ("step 'simulate'", "the train: block").
// Every getter marks its key as known; finish() reports the others with the nearest known one.
// Getters return the default when the key is absent or null, and also after reporting a bad value.
class MapReader {
 public:
  MapReader(const Node& node, std::string where, Diagnostics& diagnostics);

  bool has(std::string_view key);
  const Node* find(std::string_view key);      // nullptr when absent or null
  const Node* required(std::string_view key);  // reports when absent or null

  std::string string(std::string_view key, std::string fallback = {});
  std::string required_string(std::string_view key);
  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t least, std::int64_t most);
  double real(std::string_view key, double fallback, double least, double most);
  bool boolean(std::string_view key, bool fallback);
  // One of `choices`; gives its index.
  std::size_t choice(std::string_view key, std::size_t fallback, std::span<const std::string> choices);
  // Lists: one scalar stands for a list of one.
  std::vector<std::string> strings(std::string_view key);
  std::vector<std::int64_t> integers(std::string_view key, std::int64_t least, std::int64_t most);
  std::vector<double> reals(std::string_view key);
  // "90", "90 s", "1.5 h", "10 min", "mm:ss", "hh:mm:ss", "d-hh:mm:ss", "d:hh:mm:ss" -> seconds.
  double seconds(std::string_view key, double fallback);
  // "512 MiB", "1.5GB", "4096" -> bytes.
  std::int64_t bytes(std::string_view key, std::int64_t fallback);

  // Reports every key that no getter has read.
  void finish();

  const Node& node() const { return *node_; }
  Mark mark_of(std::string_view key) const;  // the value's; the mapping's when absent
  const std::string& where() const { return where_; }
  Diagnostics& diagnostics() { return *diagnostics_; }

 private:
  const Node* node_;
  std::string where_;
  Diagnostics* diagnostics_;
  std::set<std::string, std::less<>> known_;
};

// The two unit conversions alone; nothing if the text does not have that form.
std::optional<double> parse_seconds(std::string_view text);
std::optional<std::int64_t> parse_bytes(std::string_view text);

// The cause of a syntax error, in words for the author of the text: a parser notices an open bracket or a
// wrong indentation only some lines later, and reports what it expected there.
struct SyntaxError {
  Mark mark;  // the place of the cause
  std::string message;
};

// `noticed`: where the parser stopped; `words`: its message, which is used if no known cause is found.
SyntaxError explain_syntax(std::string_view text, const Mark& noticed, std::string_view words);

// Finds a quoted text without an end that begins at `quote`: the parser silently takes the rest of the file
// for that text.
std::optional<SyntaxError> find_open_quote(std::string_view text, const Mark& quote);

}  // namespace wflow::yaml
