// SPDX-License-Identifier: Apache-2.0
// A number, or nested lists of numbers, at a path of a JSON file.
#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "converters/readers/reader.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

// $.a.b[0] and $['a'] as a JSON pointer (RFC 6901), /a/b/0; nothing if it is neither.
std::optional<std::string> pointer_of(std::string_view path) {
  if (path.starts_with('/')) return std::string(path);
  if (!path.starts_with('$')) return std::nullopt;
  std::string pointer;
  std::size_t at = 1;
  while (at < path.size()) {
    std::string word;
    if (path[at] == '.') {
      const std::size_t end = std::min(path.find_first_of(".[", at + 1), path.size());
      word = path.substr(at + 1, end - at - 1);
      at = end;
    } else if (path[at] == '[') {
      const std::size_t end = path.find(']', at);
      if (end == std::string_view::npos) return std::nullopt;
      word = path.substr(at + 1, end - at - 1);
      if (word.size() >= 2 && (word.front() == '\'' || word.front() == '"'))
        word = word.substr(1, word.size() - 2);
      at = end + 1;
    } else {
      return std::nullopt;
    }
    if (word.empty()) return std::nullopt;
    pointer += '/';
    for (const char c : word) pointer += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return pointer;
}

class JsonInput final : public MemoryReader {
 public:
  explicit JsonInput(const fs::path& path) : path_(path) {
    const InputFile plain(path);
    if (plain.size() > kMostSampleBytes)
      throw Error(ExitCode::data,
                  fmt::format("{} holds more than 4 GiB, which no sample may have", path.string()));
    const auto bytes = plain.read(0, plain.size());
    try {
      // Deep nesting means a damaged file: the parser would accept it, but the walk below is recursive.
      json_ = nlohmann::json::parse(bytes.begin(), bytes.end(),
                                    [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
                                      if (depth > kMostDepth)
                                        throw Error(ExitCode::data, "it is nested deeper than 100 levels");
                                      return true;
                                    });
    } catch (const nlohmann::json::exception& error) {
      throw Error(ExitCode::data, fmt::format("{} is not JSON: {}", path.string(), error.what()));
    } catch (const Error& error) {
      throw Error(ExitCode::data, fmt::format("{} is not usable: {}", path.string(), error.what()));
    }
  }

  InputField find(const Selector& selector) override {
    const auto pointer = pointer_of(selector.json);
    const auto none = [&](const std::string& why) {
      return Error(ExitCode::data,
                   fmt::format("{} has no value at {}{}", path_.string(), selector.json, why));
    };
    if (!pointer)
      throw Error(ExitCode::spec,
                  fmt::format("'{}' is no path; write $.result.energy or /result/energy", selector.json));
    const nlohmann::json* value = nullptr;
    try {
      const nlohmann::json::json_pointer place(*pointer);
      if (!json_.contains(place)) throw none(known_keys(*pointer));
      value = &json_.at(place);
    } catch (const nlohmann::json::exception&) {
      throw none(known_keys(*pointer));
    }
    field_ = {};
    field_.dtype = DType::float64;
    values_.clear();
    for (const nlohmann::json* level = value; level->is_array() && !level->empty(); level = &level->front())
      field_.shape.push_back(level->size());
    collect(*value, 0, selector.json);
    bytes_.resize(values_.size() * sizeof(double));
    std::memcpy(bytes_.data(), values_.data(), bytes_.size());
    return field_;
  }

 private:
  static constexpr int kMostDepth = 100;

  // The paths of values, up to a limit, for a suggestion.
  static void gather_paths(const nlohmann::json& value, const std::string& path,
                           std::vector<std::string>& paths) {
    constexpr std::size_t kMostPaths = 1000;
    if (!value.is_object() || paths.size() >= kMostPaths) return;
    for (const auto& [key, inner] : value.items()) {
      if (paths.size() >= kMostPaths) return;
      const std::string inner_path = path + "/" + key;
      paths.push_back(inner_path);
      gather_paths(inner, inner_path, paths);
    }
  }

  std::string known_keys(const std::string& pointer) const {
    if (!json_.is_object()) return "";
    std::vector<std::string> paths;
    gather_paths(json_, "", paths);
    return top_keys() + text::suggestion(pointer, paths);
  }

  std::string top_keys() const {
    std::string list;
    for (const auto& [key, value] : json_.items()) {
      if (list.size() > 200) return "; its top has the keys " + list + ", ...";
      list += (list.empty() ? "" : ", ") + key;
    }
    return "; its top has the keys " + list;
  }

  void collect(const nlohmann::json& value, std::size_t depth, const std::string& where) {
    const auto refuse = [&](const std::string& what) {
      return Error(ExitCode::data, fmt::format("{}: the value at {} {}", path_.string(), where, what));
    };
    if (value.is_array()) {
      if (depth >= field_.shape.size() || value.size() != field_.shape[depth])
        throw refuse("is a list of lists of different lengths");
      for (const nlohmann::json& item : value) collect(item, depth + 1, where);
      return;
    }
    if (depth != field_.shape.size()) throw refuse("is a list of lists of different lengths");
    if (value.is_number()) {
      values_.push_back(value.get<double>());
    } else if (value.is_boolean()) {
      values_.push_back(value.get<bool>() ? 1 : 0);
    } else if (value.is_null()) {
      values_.push_back(std::numeric_limits<double>::quiet_NaN());
    } else {
      // JSON has no NaN and infinity; programs write them as texts.
      const auto number =
          value.is_string() ? text::to_real(value.get_ref<const std::string&>()) : std::nullopt;
      if (!number)
        throw refuse(fmt::format("is {}, not a number", value.is_string() ? "a text" : "an object"));
      values_.push_back(*number);
    }
  }

  fs::path path_;
  nlohmann::json json_;
  std::vector<double> values_;
};

}  // namespace

std::unique_ptr<InputReader> open_json(const fs::path& path, const Selector&) {
  return std::make_unique<JsonInput>(path);
}

}  // namespace wflow::converters
