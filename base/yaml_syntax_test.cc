// SPDX-License-Identifier: Apache-2.0
// More, with whole studies: specs/testdata/errors/syntax_*.yaml.
#include "base/yaml_syntax.h"

#include <gtest/gtest.h>

#include <string>

namespace wflow::yaml {
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
