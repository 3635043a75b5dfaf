# SPDX-License-Identifier: Apache-2.0
"""scripts/lint --text finds each of its patterns, in comments and pages only."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import lint_text  # noqa: E402

# One line for each pattern, in their order.
LINES = [
    "// Of one worker: a hundred thousand retries that are due at once.",
    "// Some stranger sent it.",
    "// Then nobody knows it.",
    "// Shown to people.",
    "// A worker is told of it.",
    "// From then on it hears nothing.",
    "// The shell sees to it.",
    "// While there is room for it.",
    "// A hungry worker.",
    "// May include nothing of ours.",
    "// As research/notes.md has it.",
    "set_tests_properties(a PROPERTIES SKIP_REGULAR_EXPRESSION skipped)",
]


def found(name, *lines):
    return [number for number, _ in lint_text.wording(name, "\n".join(lines))]


class Wording(unittest.TestCase):
    def test_each_pattern_matches_its_line(self):
        self.assertEqual(len(LINES), len(lint_text.PATTERNS))
        for (where, pattern, instead), line in zip(lint_text.PATTERNS, LINES):
            name = "tests/CMakeLists.txt" if where == "code" else "base/file.cc"
            messages = [message for _, message in lint_text.wording(name, line)]
            self.assertTrue(any(message.endswith(instead) for message in messages), f"{pattern} in {line}: {messages}")

    def test_beginnings(self):
        for word in ("Of a", "What a", "Whether a", "As a", "Of `a`"):
            self.assertEqual(found("a.cc", f"// {word} worker."), [1])
            self.assertEqual(found("a.cc", f"int a;  // {word} worker."), [1])
            self.assertEqual(found("a.py", f"# {word} worker."), [1])
            self.assertEqual(found("a.py", f'"""{word} worker."""'), [1])
            self.assertEqual(found("a.py", "def f():", f'    """{word} worker."""'), [2])
        # The second line of a sentence may begin with any word.
        self.assertEqual(found("a.cc", "// The state", "// Of a worker."), [])
        self.assertEqual(found("a.cc", "/* The state", "   Of a worker. */"), [])
        self.assertEqual(found("a.py", '"""The state', 'Of a worker."""'), [])
        self.assertEqual(found("a.cc", "int a;  // the state", "int b;  // What a worker has."), [2])

    def test_code_and_strings_are_not_read(self):
        self.assertEqual(found("a.cc", 'say("nobody // nobody");', "int nobody;", 'f("a\\"b", "nobody");'), [])
        self.assertEqual(found("a.cc", "f('\"'); // nobody"), [1])
        self.assertEqual(found("a.py", "a = 'nobody'", "nobody = 1"), [])
        self.assertEqual(found("a.yaml", "# nobody"), [])
        self.assertEqual(found("a.md", "Here nobody waits.", "Others do."), [1])
        self.assertEqual(found("scripts/test", "# nobody"), [])  # without #! it is no script
        self.assertEqual(found("scripts/test", "#!/bin/sh", "# nobody"), [2])

    def test_allowed(self):
        self.assertEqual(found("a.cc", "// The user `nobody`.  lint: allow"), [])


class Width(unittest.TestCase):
    WIDE = "word " * 30

    def test_too_wide(self):
        lines = ["# page", self.WIDE, "| " + self.WIDE, "```", self.WIDE, "```", "https://" + "a" * 130, "short"]
        self.assertEqual([number for number, _ in lint_text.too_wide("a.md", "\n".join(lines))], [2])
        self.assertEqual(list(lint_text.too_wide("a.cc", self.WIDE)), [])

    def test_wrap(self):
        text = f"# page\n\nshort\n\n- {self.WIDE}end\n  more\n- two\n\n| {self.WIDE} |\n> {self.WIDE}\n> quoted\n\nlast\n"
        new = lint_text.wrapped(text)
        self.assertEqual(list(lint_text.too_wide("a.md", new)), [])
        self.assertEqual(new.replace("\n> ", " ").split(), text.replace("\n> ", " ").split())
        self.assertIn("word end more\n- two\n", new)
        self.assertEqual(lint_text.wrapped(new), new)

    def test_wrap_makes_no_lists(self):
        text = "word " * 23 + "abcd - " + "word " * 10
        new = lint_text.wrapped(text)
        self.assertEqual(new.split(), text.split())
        self.assertNotIn("\n- ", new)
        self.assertEqual(list(lint_text.too_wide("a.md", new)), [])


if __name__ == "__main__":
    unittest.main()
