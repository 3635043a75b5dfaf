// SPDX-License-Identifier: Apache-2.0
#include "base/config_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wflow::config {
namespace {

using testing::HasSubstr;

enum class Colour { red, green };
const std::vector<std::string> kColours = {"red", "green"};

struct Inner {
  std::int64_t size = 4;
};
struct Example {
  std::string name;
  Colour colour = Colour::red;
  double rate = 0.5;
  double depth = 1;
  std::int64_t members = 1;
  std::vector<std::int64_t> sizes;
  Inner inner;
};

const Table<Inner>& inner_table() {
  static const Table<Inner> table("the inner: block", {integer("size", &Inner::size, 1, 8, "its size")});
  return table;
}

const Table<Example>& example_table() {
  static const Table<Example> table(
      "the example: block", {text("name", &Example::name, "a [name](#names)").required(),
                             integer("members", &Example::members, 1, 9, "how many").only_if_set(),
                             choice("colour", &Example::colour, kColours, "a colour")
                                 .formerly("color")
                                 .then([](yaml::MapReader&, Example& e) {
                                   if (e.colour == Colour::green) e.rate = 2;
                                 }),
                             real("rate", &Example::rate, 0, 10, "green 2"),
                             real("depth", &Example::depth, 0, 10, "red: how deep")
                                 .used_by({[](const Example& e) { return e.colour == Colour::red; }, "red"}),
                             integers("sizes", &Example::sizes, 1, 9, "lengths"),
                             block("inner", &Example::inner, inner_table(), "inside", "size")});
  return table;
}

struct Result {
  Example config;
  std::string messages;
};

Result read(const std::string& text) {
  yaml::Diagnostics diagnostics("a.yaml");
  const yaml::Node root = yaml::parse(text, diagnostics);
  Result result;
  example_table().read(root, result.config, diagnostics);
  result.messages = diagnostics.to_string();
  return result;
}

TEST(ConfigTable, ReadsValuesDefaultsAndBlocks) {
  const Result result = read("{name: a, colour: green, sizes: 3, inner: 7}");
  EXPECT_EQ(result.messages, "");
  EXPECT_EQ(result.config.colour, Colour::green);
  EXPECT_EQ(result.config.rate, 2) << "a default that follows from another key";
  EXPECT_THAT(result.config.sizes, testing::ElementsAre(3));
  EXPECT_EQ(result.config.inner.size, 7) << "a block that is one value";
  EXPECT_EQ(read("{name: a, colour: green, rate: 1}").config.rate, 1);
}

TEST(ConfigTable, ReportsWhatIsWrongWithItsPlace) {
  EXPECT_THAT(read("{}").messages, HasSubstr("needs the key 'name'"));
  EXPECT_THAT(read("{name: a, rate: 11}").messages,
              HasSubstr("a.yaml:1:17: error: 'rate' must be between 0 and 10"));
  EXPECT_THAT(read("{name: a, colour: geen}").messages, HasSubstr("did you mean 'green'?"));
  EXPECT_THAT(read("{name: a, inner: {sise: 1}}").messages,
              HasSubstr("unknown key 'sise' in the inner: block; did you mean 'size'?"));
  EXPECT_THAT(read("{name: a, rat: 1}").messages, HasSubstr("did you mean 'rate'?"));
}

TEST(ConfigTable, KnowsEarlierSpellings) {
  EXPECT_EQ(read("{name: a, color: green}").config.rate, 2);
  EXPECT_THAT(read("{name: a, color: green, colour: red}").messages,
              HasSubstr("'color' and 'colour' say the same thing; keep 'colour'"));
}

TEST(ConfigTable, WarnsOfKeysWithoutEffect) {
  EXPECT_EQ(read("{name: a, depth: 2}").messages, "");
  EXPECT_EQ(
      read("{name: a, depth: 2, colour: green}").messages,
      "a.yaml:1:18: warning: 'depth' has no effect in the example: block: it is a key of red; remove it");
  EXPECT_EQ(read("{name: a, depth: 1, colour: green}").messages, "")
      << "the default, as a written block has it";
}

TEST(ConfigTable, WritesWhatReadsBackEqual) {
  EXPECT_EQ(
      yaml::emit(example_table().write(read("{name: a, sizes: [1, 2], inner: 5}").config)),
      yaml::emit(example_table().write(
          read(yaml::emit(example_table().write(read("{name: a, sizes: [1, 2], inner: {size: 5}}").config)))
              .config)));
  EXPECT_THAT(yaml::emit(example_table().write(read("{name: a}").config)),
              testing::Not(HasSubstr("members")));
  EXPECT_THAT(yaml::emit(example_table().write(read("{name: a, members: 2}").config)),
              testing::EndsWith("members: 2\n"))
      << "behind the others, so that the text without it stays";
}

TEST(ConfigTable, GivesSchemaAndDocumentation) {
  const Json schema = example_table().schema();
  EXPECT_EQ(schema["required"], Json::array({"name"}));
  EXPECT_EQ(schema["properties"]["name"]["description"], "a name");
  EXPECT_EQ(schema["properties"]["members"]["anyOf"][0]["maximum"], 9);
  EXPECT_EQ(schema["properties"]["members"]["default"], 1);
  EXPECT_EQ(schema["properties"]["colour"]["default"], "red");
  EXPECT_TRUE(schema["properties"].contains("color"));
  EXPECT_FALSE(schema["additionalProperties"].get<bool>());
  EXPECT_EQ(schema["properties"]["inner"]["anyOf"][0]["type"], "integer");
  const std::string table = markdown(example_table().rows());
  EXPECT_THAT(table, HasSubstr("| `name` | (needed) | a [name](#names) |\n"));
  EXPECT_THAT(table, HasSubstr("| `colour` | `red` | a colour |\n"));
}

// A part that stands in the block itself, and keys that depend on others.
struct Shape {
  std::int64_t sides = 3;
};
struct Drawing {
  std::string kind = "line";
  std::string title;
  double width = 1;
  Shape shape;
  bool is_refused = false;
};

bool is_shape(const Drawing& drawing) {
  return drawing.kind == "shape";
}

const Table<Drawing>& drawing_table() {
  const auto sides =
      integer("sides", &Shape::sides, 3, 9, "its sides").formerly("edges").usually("a triangle");
  static const Table<Drawing> table(
      "the drawing: block",
      joined<Drawing>(
          {{text("kind", &Drawing::kind, "line or shape").with_default("lines"),
            required_text("title", &Drawing::title, "above it")},
           {real("width", &Drawing::width, 0, 9, "of the line")
                .unless_default()
                .accepting({{"type", "number"}}),
            of_part<Drawing>(sides, &Drawing::shape)
                .required()
                .only_if(is_shape, [](yaml::MapReader& reader, std::string_view key,
                                      Drawing& drawing) { drawing.is_refused = reader.has(key); }),
            custom<Drawing>("layer", text_schema(), "not used"),
            boolean("is_refused", &Drawing::is_refused, "set by the reader").emitted_if(is_shape)}}));
  return table;
}

std::pair<Drawing, std::string> draw(const std::string& text) {
  yaml::Diagnostics diagnostics("a.yaml");
  Drawing drawing;
  drawing_table().read(yaml::parse(text, diagnostics), drawing, diagnostics, "drawing 7");
  return {drawing, diagnostics.to_string()};
}

TEST(ConfigTable, ReadsKeysOfAPartWhereTheyApply) {
  EXPECT_EQ(draw("{title: a, kind: shape, sides: 5}").first.shape.sides, 5);
  EXPECT_EQ(draw("{title: a, kind: shape, edges: 6}").first.shape.sides, 6) << "an earlier spelling";
  EXPECT_THAT(draw("{title: a, kind: shape}").second, HasSubstr("drawing 7 needs the key 'sides'"));
  const auto [line, messages] = draw("{title: a, sides: 5, layer: 1}");
  EXPECT_EQ(messages, "");
  EXPECT_TRUE(line.is_refused) << "read by what stands in its place";
  EXPECT_EQ(line.shape.sides, 3);
}

TEST(ConfigTable, DemandsATextThatIsNotEmpty) {
  EXPECT_EQ(draw("{}").second, "a.yaml:1:1: error: drawing 7 needs the key 'title'");
  EXPECT_EQ(draw("{title: ' '}").second, "a.yaml:1:9: error: 'title' of drawing 7 must not be empty");
}

TEST(ConfigTable, WritesKeysWhereTheirConditionHolds) {
  const auto written = [](const std::string& text) {
    return yaml::emit(drawing_table().write(draw(text).first));
  };
  EXPECT_EQ(written("{title: a, width: 1}"), "kind: lines\ntitle: \"a\"\n");
  EXPECT_EQ(written("{title: a, width: 2, kind: shape, sides: 4}"),
            "kind: lines\ntitle: \"a\"\nwidth: 2\nsides: 4\nis_refused: false\n");
}

TEST(ConfigTable, ShowsDefaultsAndFormsThatItIsGiven) {
  const Json schema = drawing_table().schema();
  EXPECT_EQ(schema["required"], Json::array({"title"})) << "sides is not always needed";
  EXPECT_EQ(schema["properties"]["kind"]["default"], "lines");
  EXPECT_EQ(schema["properties"]["width"]["type"], "number");
  EXPECT_TRUE(schema["properties"].contains("edges"));
  EXPECT_EQ(or_null(schema)["type"], Json::array({"object", "null"}));
  EXPECT_THAT(markdown(drawing_table().rows()), HasSubstr("| `kind` | `lines` | line or shape |\n"));
}

TEST(ConfigTable, ComparesValuesAndNotTheirPlaces) {
  yaml::Diagnostics none("");
  const auto equal = [&](const std::string& one, const std::string& other) {
    return are_equal(yaml::parse(one, none), yaml::parse(other, none));
  };
  EXPECT_TRUE(equal("{a: [1, {b: x}]}", "a:\n  - 1\n  - b: x"));
  EXPECT_FALSE(equal("{a: [1, {b: x}]}", "{a: [1, {b: y}]}"));
  EXPECT_FALSE(equal("{a: 1}", "{b: 1}"));
  EXPECT_FALSE(equal("[1]", "[1, 2]"));
  EXPECT_FALSE(equal("1", "'1'"));
}

}  // namespace
}  // namespace wflow::config
