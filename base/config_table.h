// SPDX-License-Identifier: Apache-2.0
// One declarative table a block of configuration: key, type, range, default, one line of documentation,
// earlier spellings. Reading (with all diagnostics), emission, the JSON schema and the tables of docs/ come
// from it, so that a new key is one line.
//
//   const Table<CheckpointConfig>& checkpoint_table() {
//     static const Table<CheckpointConfig> table("the checkpoint: block", {
//         integer("every_steps", &CheckpointConfig::every_steps, 0, kMany, "0: never by step"),
//         integer("keep_last", &CheckpointConfig::keep_last, 1, 1000, "newest checkpoints
//         kept").formerly("keep"),
//     });
//     return table;
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/yaml.h"

namespace wflow::config {

using Json = nlohmann::ordered_json;

// Pieces of a JSON schema. Where a study may have a token such as $(RATE), so may each value but text.
Json text_schema();
Json boolean_schema();
Json integer_schema(std::int64_t least, std::int64_t most);
Json number_schema(double least, double most);
Json choice_schema(std::span<const std::string> choices);
Json seconds_schema();
Json bytes_schema();
Json one_or_list_schema(const Json& item);
// One of several forms; a nested "anyOf" becomes part of it.
Json any_of(std::vector<Json> forms);

yaml::Node emit_integer(std::int64_t value);
yaml::Node emit_real(double value);
yaml::Node emit_boolean(bool value);
yaml::Node emit_texts(const std::vector<std::string>& values);
yaml::Node emit_integers(const std::vector<std::int64_t>& values);
yaml::Node emit_reals(const std::vector<double>& values);

// A row of a table in docs/.
struct Row {
  std::string key;
  std::string usual;    // the default; empty: none
  std::string meaning;  // Markdown
};
// The rows of a block, as docs/ name it: "train", "train.optimizer".
struct Section {
  std::string name;
  std::vector<Row> rows;
};
std::string markdown(std::span<const Row> rows);
// The meaning without links and code marks, for a schema.
std::string plain_text(std::string_view markdown);

template <typename Config>
struct Key {
  using Read = std::function<void(yaml::MapReader&, std::string_view key, Config&)>;
  using Write = std::function<std::optional<yaml::Node>(const Config&)>;
  using Condition = std::function<bool(const Config&)>;
  struct Earlier {
    std::string name;
    Read read;
    Json schema;
  };

  std::string name;
  std::string meaning;
  Read read;
  Write write;  // empty: the key is not emitted
  Json schema;
  std::optional<std::string> usual;  // the default that docs/ shows, instead of the emitted one
  bool is_required = false;
  bool is_listed = true;  // in the tables of docs/
  bool is_late = false;   // only_if_set()
  Condition applies;      // empty: always
  std::vector<Earlier> earlier;

  Key usually(std::string text) && {
    usual = std::move(text);
    return std::move(*this);
  }
  // Reports an absent key.
  Key required() && {
    is_required = true;
    return std::move(*this);
  }
  // The campaign sets the key, or it is explained elsewhere.
  Key unlisted() && {
    is_listed = false;
    return std::move(*this);
  }
  // Emitted only where its value is not the default, and then after the others: configurations without it
  // keep the text, and so the fingerprint, that they had before the key existed.
  Key only_if_set() && {
    is_late = true;
    return std::move(*this);
  }
  Key only_if(Condition condition) && {
    applies = std::move(condition);
    return std::move(*this);
  }
  // Runs after the key was read, present or not: defaults that follow from its value.
  Key then(std::function<void(yaml::MapReader&, Config&)> follow) && {
    Read first = std::move(read);
    read = [first, follow](yaml::MapReader& reader, std::string_view key, Config& config) {
      first(reader, key, config);
      follow(reader, config);
    };
    return std::move(*this);
  }
  // An earlier spelling, with the same values or with others.
  Key formerly(std::string spelling) && {
    earlier.push_back({std::move(spelling), read, schema});
    return std::move(*this);
  }
  Key formerly(std::string spelling, Json its_schema, Read its_read) && {
    earlier.push_back({std::move(spelling), std::move(its_read), std::move(its_schema)});
    return std::move(*this);
  }
};

template <typename Config>
class Table {
 public:
  using Check = std::function<void(yaml::MapReader&, Config&)>;

  // `where` names the block in messages: "the optimizer: block".
  Table(std::string where, std::vector<Key<Config>> keys, Check check = {})
      : where_(std::move(where)), keys_(std::move(keys)), check_(std::move(check)) {}

  const std::string& where() const { return where_; }

  // Every error goes to `diagnostics`. Null stands for an empty block.
  void read(const yaml::Node& block, Config& config, yaml::Diagnostics& diagnostics) const {
    yaml::MapReader reader(block, where_, diagnostics);
    read_keys(reader, config);
    if (check_) check_(reader, config);
    reader.finish();
  }

  // Without the check of the whole block and of unknown keys: for a caller who reads further keys.
  void read_keys(yaml::MapReader& reader, Config& config) const {
    for (const Key<Config>& key : keys_) {
      if (key.applies && !key.applies(config)) continue;
      for (const auto& earlier : key.earlier) {
        if (!reader.has(earlier.name)) continue;
        if (reader.has(key.name)) {
          reader.diagnostics().error(
              reader.mark_of(earlier.name),
              "'" + earlier.name + "' and '" + key.name + "' say the same thing; keep '" + key.name + "'");
        }
        earlier.read(reader, earlier.name, config);
      }
      if (key.is_required) reader.required(key.name);
      key.read(reader, key.name, config);
    }
  }

  yaml::Node write(const Config& config) const {
    std::vector<std::pair<std::string, yaml::Node>> entries;
    for (const bool late : {false, true}) {
      for (const Key<Config>& key : keys_) {
        if (key.is_late != late || !key.write || (key.applies && !key.applies(config))) continue;
        std::optional<yaml::Node> value = key.write(config);
        if (value && !(late && is_default(key, *value))) entries.emplace_back(key.name, std::move(*value));
      }
    }
    return yaml::map(std::move(entries));
  }

  // The schema of the block where it is a mapping.
  Json schema() const {
    Json properties = Json::object();
    Json required = Json::array();
    for (const Key<Config>& key : keys_) {
      Json property = {{"description", plain_text(key.meaning)}};
      property.update(key.schema);
      if (const auto value = default_of(key); value && !key.usual) property["default"] = *value;
      properties[key.name] = std::move(property);
      for (const auto& earlier : key.earlier) {
        Json old = {{"description", "earlier spelling of " + key.name}};
        old.update(earlier.schema);
        properties[earlier.name] = std::move(old);
      }
      if (key.is_required) required.push_back(key.name);
    }
    Json block = {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
    if (!required.empty()) block["required"] = std::move(required);
    return block;
  }

  std::vector<Row> rows() const {
    std::vector<Row> rows;
    for (const Key<Config>& key : keys_) {
      if (!key.is_listed) continue;
      std::string usual = key.usual.value_or("");
      if (key.is_required) usual = "(needed)";
      if (!key.usual && !key.is_required) {
        if (const auto value = default_of(key))
          usual = "`" + (value->is_string() ? value->template get<std::string>() : value->dump()) + "`";
      }
      rows.push_back({key.name, std::move(usual), key.meaning});
    }
    return rows;
  }

 private:
  static bool is_default(const Key<Config>& key, const yaml::Node& value) {
    const std::optional<yaml::Node> fallback = key.write(Config());
    return fallback && yaml::emit(value) == yaml::emit(*fallback);
  }

  // The default as a value of JSON, where it is one number, truth value or word.
  std::optional<Json> default_of(const Key<Config>& key) const {
    const Config fallback;
    if (!key.write || key.is_required || (key.applies && !key.applies(fallback))) return std::nullopt;
    const std::optional<yaml::Node> node = key.write(fallback);
    if (!node || !node->is_scalar() || (node->quoted && node->text.empty())) return std::nullopt;
    Json value = Json::parse(node->text, nullptr, false);
    if (value.is_discarded() || node->quoted) value = node->text;
    return value;
  }

  std::string where_;
  std::vector<Key<Config>> keys_;
  Check check_;
};

// A key whose reading and emission are code of its own.
template <typename Config>
Key<Config> custom(std::string name, Json schema, std::string meaning, typename Key<Config>::Read read,
                   typename Key<Config>::Write write = {}) {
  return {std::move(name),
          std::move(meaning),
          std::move(read),
          std::move(write),
          std::move(schema),
          {},
          false,
          true,
          false,
          {},
          {}};
}

// `Number` is any whole-number type that holds least to most.
template <typename Config, typename Number>
Key<Config> integer(std::string name, Number Config::*member, std::int64_t least, std::int64_t most,
                    std::string meaning) {
  return custom<Config>(
      std::move(name), integer_schema(least, most), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member =
            static_cast<Number>(reader.integer(key, static_cast<std::int64_t>(config.*member), least, most));
      },
      [=](const Config& config) { return emit_integer(static_cast<std::int64_t>(config.*member)); });
}

template <typename Config>
Key<Config> real(std::string name, double Config::*member, double least, double most, std::string meaning) {
  return custom<Config>(
      std::move(name), number_schema(least, most), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.real(key, config.*member, least, most);
      },
      [=](const Config& config) { return emit_real(config.*member); });
}

template <typename Config>
Key<Config> boolean(std::string name, bool Config::*member, std::string meaning) {
  return custom<Config>(
      std::move(name), boolean_schema(), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.boolean(key, config.*member);
      },
      [=](const Config& config) { return emit_boolean(config.*member); });
}

template <typename Config>
Key<Config> text(std::string name, std::string Config::*member, std::string meaning) {
  return custom<Config>(
      std::move(name), text_schema(), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.string(key, config.*member);
      },
      [=](const Config& config) { return yaml::quoted(config.*member); });
}

// `choices` outlive the table and are the words for the values from `first` on.
template <typename Config, typename Enum>
Key<Config> choice(std::string name, Enum Config::*member, std::span<const std::string> choices,
                   std::string meaning, Enum first = Enum{}) {
  const auto offset = static_cast<std::size_t>(first);
  return custom<Config>(
      std::move(name), choice_schema(choices), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        const auto fallback = static_cast<std::size_t>(config.*member) - offset;
        config.*member = static_cast<Enum>(offset + reader.choice(key, fallback, choices));
      },
      [=](const Config& config) {
        return yaml::scalar(choices[static_cast<std::size_t>(config.*member) - offset]);
      });
}

template <typename Config>
Key<Config> texts(std::string name, std::vector<std::string> Config::*member, std::string meaning) {
  return custom<Config>(
      std::move(name), one_or_list_schema(text_schema()), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.strings(key);
      },
      [=](const Config& config) { return emit_texts(config.*member); });
}

template <typename Config>
Key<Config> integers(std::string name, std::vector<std::int64_t> Config::*member, std::int64_t least,
                     std::int64_t most, std::string meaning) {
  return custom<Config>(
      std::move(name), one_or_list_schema(integer_schema(least, most)), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        if (reader.has(key)) config.*member = reader.integers(key, least, most);
      },
      [=](const Config& config) { return emit_integers(config.*member); });
}

template <typename Config>
Key<Config> reals(std::string name, std::vector<double> Config::*member, std::string meaning) {
  return custom<Config>(
      std::move(name), one_or_list_schema(number_schema(-1e300, 1e300)), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.reals(key);
      },
      [=](const Config& config) { return emit_reals(config.*member); });
}

// Seconds, or a text with a unit.
template <typename Config>
Key<Config> seconds(std::string name, double Config::*member, std::string meaning) {
  return custom<Config>(
      std::move(name), seconds_schema(), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.seconds(key, config.*member);
      },
      [=](const Config& config) { return emit_real(config.*member); });
}

// Bytes, or a text with a unit.
template <typename Config>
Key<Config> bytes(std::string name, std::int64_t Config::*member, std::string meaning) {
  return custom<Config>(
      std::move(name), bytes_schema(), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.bytes(key, config.*member);
      },
      [=](const Config& config) { return emit_integer(config.*member); });
}

// Where `word` is a key of the block, the block may also be one value: `optimizer: sgd` is `optimizer: {name:
// sgd}`.
yaml::Node block_of(const yaml::Node* node, std::string_view word);

// A block within the block. `forms` are other forms that its value may have in a schema.
template <typename Config, typename Inner>
Key<Config> block(std::string name, Inner Config::*member, const Table<Inner>& table, std::string meaning,
                  std::string word = {}) {
  const Json inner = table.schema();
  std::vector<Json> forms;
  if (!word.empty()) {
    Json value = inner["properties"][word];
    for (const char* key : {"description", "default"}) value.erase(key);
    forms.push_back(std::move(value));
  }
  forms.push_back(inner);
  forms.push_back({{"type", "null"}});
  return custom<Config>(
      std::move(name), any_of(std::move(forms)), std::move(meaning),
      [=, &table](yaml::MapReader& reader, std::string_view key, Config& config) {
        const yaml::Node node = block_of(reader.find(key), word);
        table.read(node, config.*member, reader.diagnostics());
      },
      [=, &table](const Config& config) { return table.write(config.*member); });
}

}  // namespace wflow::config
