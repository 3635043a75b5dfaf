#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/: their blocks run, their YAML keeps to the schema, their commands, options and links are there.

In docs/tutorial.md and docs/recipes.md everything runs, in a directory for each page, in the order of the page:

  ```yaml title="FILE"      (any language) is written to FILE
  ```console                lines that begin with "$ " run; "# exit code N" at their end says that they fail
  ```                       is output, and is not run

pages_test.py [Tutorial|Recipes|Pages|Site]
"""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import jsonschema
import yaml

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("WFLOW_BIN", ROOT / "build/dev/bin"))
BLOCK = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
COMMAND_S = 600
STEP_KINDS = {"run", "train", "convert", "plugin"}  # of which a step has one


def is_steps(value):
    return isinstance(value, list) and all(isinstance(one, dict) and "name" in one and one.keys() & STEP_KINDS for one in value)


class Block:
    def __init__(self, page, match):
        indent, self.language, title, text = match.groups()
        self.line = page.count("\n", 0, match.start()) + 1
        self.text = "".join(line.removeprefix(indent) for line in text.splitlines(True))
        found = re.search(r'title="([^"]+)"', title)
        self.title = found[1] if found else None


def blocks(path):
    page = path.read_text(encoding="utf-8")
    return [Block(page, match) for match in BLOCK.finditer(page)]


class RunsWhole(unittest.TestCase):
    """A page whose blocks run in its order."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="wflow-docs-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(self.folder)}

    def command(self, line, where):
        expected = re.search(r"# exit code (\d+)$", line)
        done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=COMMAND_S, check=False)
        # `| head` ends what writes to it by SIGPIPE.
        good = {int(expected[1])} if expected else {0, 141} if "| head" in line else {0}
        self.assertIn(done.returncode, good, f"{where}: {line}\n{done.stdout}{done.stderr}")
        return done.stdout

    def run_page(self, name):
        commands = 0
        for block in blocks(ROOT / "docs" / name):
            where = f"docs/{name}:{block.line}"
            if block.title:
                path = self.folder / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            elif block.language == "console":
                for line in block.text.splitlines():
                    if line.startswith("$ "):
                        self.command(line[2:], where)
                        commands += 1
        return commands


class Tutorial(RunsWhole):
    def test_to_the_letter(self):
        self.assertGreater(self.run_page("tutorial.md"), 15)
        errors = (self.folder / "ball.html").read_text(encoding="utf-8")
        self.assertIn("range_m", errors)


class Recipes(RunsWhole):
    def test_to_the_letter(self):
        self.assertGreater(self.run_page("recipes.md"), 10)


def outside_of_code(text):
    return re.sub(r"`[^`\n]*`", "", BLOCK.sub("", text))


def anchors(path):
    """As GitHub and mkdocs make them."""
    text = BLOCK.sub("", path.read_text(encoding="utf-8"))
    found = set(re.findall(r'<a id="([^"]+)">', text))
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


class Pages(unittest.TestCase):
    PAGES = sorted((ROOT / "docs").glob("**/*.md")) + [ROOT / "README.md", *sorted((ROOT / "examples").glob("*/README.md"))]

    @staticmethod
    def ask(*words):
        return subprocess.run([BIN / "wflow", *words], capture_output=True, text=True, check=False).stdout

    def test_links(self):
        broken, checked = [], 0
        for page in self.PAGES:
            for target in re.findall(r"\]\(([^)\s]+)\)", outside_of_code(page.read_text(encoding="utf-8"))):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                file = (page.parent / path).resolve() if path else page
                checked += 1
                if not file.exists():
                    broken.append(f"{page.relative_to(ROOT)}: no file {target}")
                elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                    broken.append(f"{page.relative_to(ROOT)}: no heading {target}")
        self.assertEqual(broken, [])
        self.assertGreater(checked, 100)

    def test_commands_and_options(self):
        """Code behind `wflow` in code is a command, and its options are in the command's help."""
        commands = {line.split("\t")[0] for line in self.ask("complete", "").split("\n")}
        texts, wrong, checked = {}, [], 0
        for page in self.PAGES:
            text = page.read_text(encoding="utf-8")
            code = [block.text for block in blocks(page) if block.language in ("", "console")]
            lines = re.findall(r"`([^`\n]*)`", BLOCK.sub("", text)) + [line for one in code for line in one.splitlines()]
            for line in lines:
                for words in re.findall(r"(?:^|[\s$;&|(])wflow ([^;&|>#`]*)", line):
                    words = words.split(" -- ")[0].split()
                    command = words[0] if words else ""
                    if not re.fullmatch(r"[a-z][a-z-]*", command) or command in ("merlin", "maestro") or command not in commands:
                        continue
                    if command not in texts:
                        texts[command] = self.ask("help", command)
                    for option in re.findall(r"(?<!\S)--[A-Za-z][\w-]*", " ".join(words[1:])):
                        checked += 1
                        if option not in texts[command]:
                            wrong.append(f"{page.relative_to(ROOT)}: wflow {command} has no {option}")
        self.assertEqual(wrong, [])
        self.assertGreater(checked, 60)

    def test_yaml(self):
        """A block is a study or a part of one: it keeps to the schema of some place in it."""
        schema = json.loads(self.ask("schema"))
        places = [schema, {"type": "array", "items": {"$ref": "#/$defs/step"}}]
        places += [{"$ref": f"#/$defs/{name}"} for name in schema["$defs"]]
        # A part of a study need not have what a whole one has.
        part = {key: value for key, value in schema.items() if key not in ("required", "$schema", "$defs")}
        steps = {"type": "object", "properties": {"study": {"type": "array", "items": {"$ref": "#/$defs/step"}}}}
        validators = [jsonschema.Draft202012Validator({**place, "$defs": schema["$defs"]}) for place in [*places, part, steps]]
        of_steps = [validators[1]]  # some places allow any list
        wrong, checked = [], 0
        for page in self.PAGES:
            for block in blocks(page):
                if block.language != "yaml" or "..." in block.text:
                    continue
                checked += 1
                try:
                    values = [yaml.load(text, yaml.CSafeLoader) for text in re.split(r"^---$", block.text, flags=re.MULTILINE)]
                except yaml.YAMLError as error:
                    wrong.append(f"{page.relative_to(ROOT)}:{block.line}: {error}")
                    continue
                for value in values:
                    if not any(validator.is_valid(value) for validator in (of_steps if is_steps(value) else validators)):
                        wrong.append(f"{page.relative_to(ROOT)}:{block.line}: no part of a study")
        self.assertEqual(wrong, [])
        self.assertGreater(checked, 30)


class Site(unittest.TestCase):
    def test_builds_without_warnings_and_lists_each_page(self):
        if shutil.which("mkdocs") is None:
            self.skipTest("mkdocs is not installed")
        with tempfile.TemporaryDirectory(prefix="wflow-docs-") as folder:
            done = subprocess.run([ROOT / "scripts/site", folder], capture_output=True, text=True, timeout=300, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            site = Path(folder) / "site"
            self.assertIn("Tutorial", (site / "index.html").read_text(encoding="utf-8"))
            self.assertIn("dashboard", (site / "search/search_index.json").read_text(encoding="utf-8"))
        nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
        for page in sorted((ROOT / "docs").glob("*.md")):
            if page.name != "README.md":
                self.assertIn(f": docs/{page.name}\n", nav)


if __name__ == "__main__":
    unittest.main()
