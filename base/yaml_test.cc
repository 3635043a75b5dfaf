// SPDX-License-Identifier: Apache-2.0
#include "base/yaml.h"

#include <gtest/gtest.h>

#include <string>

namespace wflow::yaml {
namespace {

TEST(Yaml, KeepsPlacesTextAndQuotes) {
  Diagnostics diagnostics("f.yaml");
  const Node root = parse("a: 0.10\nb:\n  - 'x'\n  - 2\n", diagnostics);
  EXPECT_FALSE(diagnostics.has_errors());
  EXPECT_EQ(root.find("a")->text, "0.10");
  EXPECT_EQ(root.find("a")->mark.column, 4);
  EXPECT_TRUE(root.find("b")->items[0].quoted);
  EXPECT_EQ(root.find("b")->items[1].mark.line, 4);
}

TEST(Yaml, MergeKeysAndAliases) {
  Diagnostics diagnostics("f.yaml");
  const Node root = parse("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n", diagnostics);
  EXPECT_EQ(root.find("use")->find("x")->text, "1");
  EXPECT_EQ(root.find("use")->find("y")->text, "3");
}

TEST(Yaml, SyntaxErrorsAndDuplicatesHaveAPlace) {
  Diagnostics diagnostics("f.yaml");
  parse("a: [1, 2\nb: 3\n", diagnostics);
  ASSERT_TRUE(diagnostics.has_errors());
  EXPECT_EQ(diagnostics.to_string(),
            "f.yaml:1:4: error: the list that begins in line 1 with [ is not closed");
  Diagnostics twice("g.yaml");
  parse("a: 1\na: 2\n", twice);
  EXPECT_EQ(twice.to_string(), "g.yaml:2:1: error: the key 'a' stands here twice");
}

TEST(Yaml, OneDocumentIsExpected) {
  for (const char* text : {"a: 1\n---\nb: 2\n", "[a], b", ", a", "- a\n, b\n", "a: 1\n...\nb: 2\n"}) {
    Diagnostics diagnostics("f.yaml");
    parse(text, diagnostics);
    EXPECT_TRUE(diagnostics.has_errors()) << text;
  }
  for (const char* text : {"", "# nothing\n", "---\na: 1\n", "a: 1\n...\n", "a: 1\n---\n"}) {
    Diagnostics diagnostics("f.yaml");
    parse(text, diagnostics);
    EXPECT_FALSE(diagnostics.has_errors()) << text << diagnostics.to_string();
  }
}

TEST(Yaml, DeepNestingAndAliasBombsAreRefused) {
  Diagnostics deep("deep.yaml");
  parse(std::string(300, '[') + std::string(300, ']'), deep);
  EXPECT_TRUE(deep.has_errors());
  std::string bomb = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) bomb += (k ? "," : "") + before;
    bomb += "]\n";
  }
  Diagnostics wide("wide.yaml");
  parse(bomb, wide);
  // Without a limit this makes five million values and takes 3 GB.
  EXPECT_NE(wide.to_string().find("its aliases (*name) repeat more than 100000 values"), std::string::npos)
      << wide.to_string();
}

TEST(MapReader, ReportsEverythingAtOnce) {
  Diagnostics diagnostics("f.yaml");
  const Node root = parse("epochs: ten\nrate: 5\nmodel: cosmoflo\nepoch: 1\n", diagnostics);
  MapReader reader(root, "the train: block", diagnostics);
  const std::vector<std::string> models = {"cosmoflow", "sc18"};
  reader.integer("epochs", 10, 1, 1000);
  reader.real("rate", 0.1, 0, 1);
  reader.choice("model", 0, models);
  reader.required("data");
  reader.finish();
  EXPECT_EQ(
      diagnostics.to_string(),
      "f.yaml:1:1: error: the train: block needs the key 'data'\n"
      "f.yaml:1:9: error: 'epochs' must be a whole number, found the text 'ten'\n"
      "f.yaml:2:7: error: 'rate' must be between 0 and 1, found 5\n"
      "f.yaml:3:8: error: 'model' must be one of cosmoflow, sc18, found the text 'cosmoflo'; did you mean "
      "'cosmoflow'?\n"
      "f.yaml:4:1: error: unknown key 'epoch' in the train: block; did you mean 'epochs'?");
}

TEST(Units, TimesAndSizes) {
  EXPECT_EQ(parse_seconds("90"), 90);
  EXPECT_EQ(parse_seconds("1.5 h"), 5400);
  EXPECT_EQ(parse_seconds("01:02:03"), 3723);
  EXPECT_EQ(parse_seconds("1-00:00:00"), 86400);
  EXPECT_EQ(parse_seconds("1:02:00:05"), 86400 + 7205);
  EXPECT_EQ(parse_seconds("1-1:00:00:00"), std::nullopt);
  EXPECT_EQ(parse_seconds("soon"), std::nullopt);
  EXPECT_EQ(parse_bytes("512 MiB"), 512 << 20);
  EXPECT_EQ(parse_bytes("1.5GB"), 1500000000);
  EXPECT_EQ(parse_bytes("-1"), std::nullopt);
}

TEST(Emit, ReadsBackAsTheSameTree) {
  Diagnostics diagnostics("f.yaml");
  const std::string text = "cmd: |\n  echo 'a'\n  exit 0\nlist: [1, \"2\", null]\nversion: \"1.10\"\n";
  const Node first = parse(text, diagnostics);
  const Node second = parse(emit(first), diagnostics);
  EXPECT_FALSE(diagnostics.has_errors());
  EXPECT_EQ(second.find("cmd")->text, first.find("cmd")->text);
  EXPECT_TRUE(second.find("list")->items[1].quoted);
  EXPECT_EQ(second.find("version")->text, "1.10");
}

}  // namespace

// More tests, with whole studies: specs/testdata/errors/syntax_*.yaml.
namespace {

std::string said(const std::string& text) {
  Diagnostics diagnostics("f");
  parse(text, diagnostics);
  return diagnostics.to_string();
}

TEST(Syntax, NamesTheBracketThatIsOpen) {
  EXPECT_EQ(said("a: [1, 2\nb: 3\n"), "f:1:4: error: the list that begins in line 1 with [ is not closed");
  EXPECT_EQ(said("a: {x: 1\n"), "f:1:4: error: the mapping that begins in line 1 with { is not closed");
  EXPECT_EQ(said("a: \"text\nb: 3\n"), "f:1:4: error: the text that begins in line 1 with \" is not closed");
  EXPECT_EQ(
      said("a: [1,\r\n  2]\r\nb: {x: [1}\r\n"),
      "f:3:10: error: this '}' does not close the list that begins in line 3 with [; ']' is expected first");
}

TEST(Syntax, LooksPastTextThatOnlySeemsOpen) {
  EXPECT_EQ(said("a: it's [\nb: |\n  don't [ {\n\n  more\nc: >-\n  \"\nd: x ]\ne: f: g\n"),
            "f:9:5: error: a value can hold no ': '; put the value in quotes");
}

TEST(Syntax, SeesAQuoteThatTheParserLeavesOpen) {
  EXPECT_EQ(said("a: 1\nb: 'text\nc: 3\n"),
            "f:2:4: error: the text that begins in line 2 with ' is not closed");
  EXPECT_EQ(said("a: 1\nb: 'text\n\nc: it''s'\n"), "");
  EXPECT_EQ(said("a: 1\nb: |\n  'text\n"), "");
  EXPECT_EQ(said("a: b\n  'text\n"), "");
}

TEST(Syntax, SaysWhatTheParserSaysWhereItKnowsNoBetter) {
  const SyntaxError error = explain_syntax("a: 1\nb: 2\n", {2, 1}, "a new complaint");
  EXPECT_EQ(error.mark.line, 2);
  EXPECT_EQ(error.message, "this is not valid YAML: a new complaint (the line before: 'a: 1')");
  EXPECT_EQ(explain_syntax("", {0, 0}, "x").message, "this is not valid YAML: x");
  EXPECT_EQ(explain_syntax("", {9, 9}, "illegal map value").message, "this ':' has no key");
}

}  // namespace

}  // namespace wflow::yaml
