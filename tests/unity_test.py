# SPDX-License-Identifier: Apache-2.0
"""Sources of a module can be compiled as one file, as the release preset does: what they define for themselves has
names of its own. A build tells the same, but minutes later, and only for the sources that share a file by chance."""

import re
import unittest
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = re.compile(r"(?:wflow_library\((\w+)\s+SOURCES|add_executable\(([\w-]+))\s(.*?)(?:PUBLIC|PRIVATE|OWN_HEADERS|\))", re.S)
CONSTANT = re.compile(r"^(?:inline |static )?const(?:expr|init)? [^(=]*?(\w+)(?:\[\w*\])?(?: =|\{)")
TYPE = re.compile(r"^(?:struct|class|enum class|enum) (\w+)")
ALIAS = re.compile(r"^(?:using|namespace) (\w+) = (.*);")
FUNCTION = re.compile(r"^[\w:<>,&*\s\[\]]+?[\s&*](\w+)(\(.*\)) (?:const )?(?:noexcept )?\{$")


def own_definitions(path):
    """(name, value) of every definition for the file alone that a second one would clash with."""
    inside = False
    held = ""  # a function's head that goes on in the next line
    for line in path.read_text().split("\n"):
        if line == "namespace {":
            inside = True
        elif line == "}  // namespace":
            inside = False
        elif match := ALIAS.match(line):
            yield f"alias {match[1]}", match[2]
        elif inside and (held or (line and not line[0].isspace() and line[0] not in "}#/[")):
            text = held + line.strip()
            held = ""
            if match := CONSTANT.match(text) or TYPE.match(text):
                yield match[1], None
            elif text.count("(") > text.count(")") or (text.endswith((",", ")")) and "(" in text):
                held = text + " "
            elif match := FUNCTION.match(text):
                types = re.sub(r" = [^,)]*", "", match[2])
                types = re.sub(r"\s*\w+(?=[,)])", "", types)  # without the parameters' names
                yield f"{match[1]}{types}", None


class Unity(unittest.TestCase):
    def test_names_of_a_module(self):
        seen = 0
        clashes = []
        for makefile in sorted(ROOT.glob("*/CMakeLists.txt")) + sorted(ROOT.glob("*/*/CMakeLists.txt")):
            if makefile.parts[len(ROOT.parts)] == "build":
                continue
            text = makefile.read_text()
            for library, program, sources in TARGET.findall(text):
                if program and not re.search(rf"wflow_(unity|fast_build)\({program}\)", text):
                    continue
                seen += 1
                found = defaultdict(dict)
                for source in re.findall(r"[\w/]+\.cc\b", sources):
                    for name, value in own_definitions(makefile.parent / source):
                        found[name][source] = value
                for name, places in found.items():
                    # The same alias of the same thing may stand in several.
                    same = name.startswith("alias ") and len(set(places.values())) == 1
                    if len(places) > 1 and not same:
                        clashes.append(f"{library or program}: '{name}' in {', '.join(places)}")
        self.assertGreater(seen, 10)
        self.assertEqual(clashes, [], "give each a name of its own, or one place:\n" + "\n".join(clashes))


if __name__ == "__main__":
    unittest.main()
