// SPDX-License-Identifier: Apache-2.0
#include "steps/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/process.h"

namespace wflow::steps {
namespace {

using ::testing::ElementsAre;
using Words = std::vector<std::string>;

TEST(PlainWords, TakesPlainCommandsApart) {
  EXPECT_EQ(plain_words("sim --x=1.5e-3  a/b,c:d@e%f+g \n"), (Words{"sim", "--x=1.5e-3", "a/b,c:d@e%f+g"}));
  EXPECT_EQ(plain_words("\tsim '' 'a  $b' \"c'd\"e'f'"), (Words{"sim", "", "a  $b", "c'def"}));
}

TEST(PlainWords, LeavesTheRestToTheShell) {
  for (const char* text :
       {"",         " ",     "\n",      "a $b", "a `b`",        "a \"$b\"", "a \"\\n\"", "a b\\ c", "a *",
        "a ?",      "a [b]", "a {b,c}", "a ~",  "~/a",          "a; b",     "a & b",     "a && b",  "a | b",
        "a > b",    "a < b", "a 2>&1",  "(a)",  "a # b",        "A=1 b",    "a\nb",      "a 'b",    "a \"b",
        "a 'b\nc'", "! a",   "a ^b",    "'' a", "a \xc2\xa0 b", "a \r",     "=ls"}) {
    EXPECT_EQ(plain_words(text), std::nullopt) << text;
  }
}

// bash and dash split every such command into the same words.
TEST(PlainWords, AgreesWithShells) {
  const Words pieces = {"a",     "b=", ":",  "-", "%", " ",   "  ", "'x  y'", "\"u v\"", "\t", "+",
                        "@",     ",",  ".",  "/", "'", "\"",  "$",  "*",      "~",       "#",  ";",
                        "{a,b}", "!",  "\\", "<", "^", "[a]", "?",  "&",      "|",       "`"};
  constexpr std::size_t kPlain = 15;  // expected number of commands without a shell
  std::uint64_t state = 1;
  int plain = 0;
  for (int round = 0; round < 200; ++round) {
    std::string text = "/usr/bin/printf %s:";
    for (int i = 0; i < 8; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      text += pieces[(state >> 33) % (i < 7 ? kPlain : pieces.size())];
    }
    const auto words = plain_words(text);
    if (!words) continue;
    ++plain;
    SpawnRequest direct;
    direct.argv = *words;
    const std::string expected = run_command(direct).out;
    for (const char* shell : {"bash", "sh"}) {
      SpawnRequest request;
      request.argv = {shell, "-c", text};
      EXPECT_EQ(run_command(request).out, expected) << shell << ": " << text;
    }
  }
  EXPECT_GT(plain, 40);
}

TEST(ShellWords, AreAllThatBashKnows) {
  SpawnRequest request;
  request.argv = {"bash", "-c", "compgen -b; compgen -k"};
  std::string name;
  for (const char letter : run_command(request).out) {
    if (letter != '\n') {
      name += letter;
      continue;
    }
    const bool same_as_program = name == "true" || name == "false";
    EXPECT_TRUE(is_shell_word(name) || same_as_program || !plain_words(name)) << name;
    name.clear();
  }
  EXPECT_FALSE(is_shell_word("sim"));
}

TEST(ProgramPath, LooksInTheTasksPath) {
  const Words environment = {"A=1", "PATH=/nonexistent:/usr/bin:/bin"};
  EXPECT_EQ(program_path("env", environment), "/usr/bin/env");
  EXPECT_EQ(program_path("./sim", environment), "./sim");
  EXPECT_EQ(program_path("no-such-program", environment), std::nullopt);
  EXPECT_EQ(program_path("echo", environment), std::nullopt);
  EXPECT_EQ(program_path("env", {}), std::nullopt);
  EXPECT_EQ(program_path("env", Words{"PATH=bin:/usr/bin"}), std::nullopt);
  EXPECT_EQ(program_path("env", Words{"PATH=:/usr/bin"}), std::nullopt);
}

TEST(ProgramPath, LeavesToBashWhatItsEnvironmentChanges) {
  for (const char* variable :
       {"BASH_ENV=/etc/init", "SHELLOPTS=xtrace", "BASHOPTS=x", "BASH_FUNC_env%%=() { :; }"}) {
    EXPECT_EQ(program_path("env", Words{"PATH=/usr/bin", variable}), std::nullopt) << variable;
  }
  EXPECT_EQ(program_path("env", Words{"PATH=/usr/bin", "BASH_FUNC_other%%=() { :; }"}), "/usr/bin/env");
}

TEST(TakesText, KnowsShells) {
  EXPECT_TRUE(takes_text(Words{"/bin/bash"}));
  EXPECT_TRUE(takes_text(Words{"/bin/sh", "-e"}));
  EXPECT_TRUE(takes_text(Words{"/usr/bin/env", "bash"}));
  EXPECT_FALSE(takes_text(Words{"/usr/bin/env", "python3"}));
  EXPECT_FALSE(takes_text(Words{"/usr/bin/env", "-S bash -e"}));
  EXPECT_FALSE(takes_text(Words{"/usr/bin/python3"}));
  EXPECT_FALSE(takes_text(Words{"/bin/bash", "script"}));
}

}  // namespace
}  // namespace wflow::steps
