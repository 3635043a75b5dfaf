#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the wording of comments, docstrings and pages, and the width of pages; prints FILE:LINE and fails on a match.

  lint_text.py [PATH...]           all tracked files, or those below the paths
  lint_text.py --wrap [PATH...]    refills paragraphs of pages that have a line of more than 120 columns

PATTERNS is the list. A line that must keep such a word, for instance a quotation, carries `lint: allow` in a comment."""

import io
import re
import subprocess
import sys
import textwrap
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 120
ALLOWED = "lint: allow"

# (where, pattern, what to write instead). `begin`: the first words of a comment; `text`: anywhere in comments and pages;
# `code`: anywhere in a file of CMake.
PATTERNS = [
    ("begin", r"(Of|What|Whether|As) [a-z`]", "a sentence with a verb, or a noun phrase that names the thing: 'Returns whether ...'"),
    ("text", r"\b(stranger|suspect|condemn(ed)?|acquit\w*|vouch\w*|farewell|patience)s?\b",
     "the field's word: peer without a key, unconfirmed, lost, confirm, last message, time-out"),
    ("text", r"\bnobody\b", "'no process', 'no user', or the passive"),
    ("text", r"\bpeople\b", "'the user'"),
    ("text", r"\b(is|are|was|were|be|been|being) told\b", "who reports what: 'wflow reports ...', 'gets', 'receives'"),
    ("text", r"\bhears? (nothing|from|of|that)\b", "'receives no message'"),
    ("text", r"\bsees? to (it|them|that)\b", "the verb of what happens"),
    ("text", r"\b(rooms?|doors?)\b", "the field's word: space, memory, entry point, boundary"),
    ("text", r"\b(hungry|hunger|doom(ed)?|obeys?)\b", "the field's word: idle, demand, failing, follows"),
    ("text", r"\bnothing of (ours|that|it)\b", "'no other module of this project', 'none of these'"),
    ("text", r"\bresearch/\w+\.md", "the paper that the note is about"),
    ("code", r"SKIP_REGULAR_EXPRESSION", "SKIP_RETURN_CODE 77 (tests/entry.py, cmake/test_main.cc): output must not decide"),
]
COMPILED = [(where, re.compile(pattern, re.IGNORECASE if where == "text" else 0), instead) for where, pattern, instead in PATTERNS]

CPP = {".cc", ".h", ".c", ".js"}
STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)\'|//[^\n]*|/\*.*?\*/', re.S)
# Names the patterns themselves.
EXEMPT = {"scripts/lint_text.py", "tests/lint_text_test.py"}


def comments_of_cpp(text):
    """(line, text) of each line of a comment. Strings are skipped, raw strings of several lines are not known."""
    for found in STRING_OR_COMMENT.finditer(text):
        if found[0].startswith("/"):
            line = text.count("\n", 0, found.start()) + 1
            for offset, part in enumerate(found[0].split("\n")):
                yield line + offset, part.strip().removeprefix("/*").removesuffix("*/").lstrip("/*").strip()


def comments_of_python(text):
    """Comments and docstrings: strings that are a statement."""
    at_start = True
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("#!").strip()
            elif token.type == tokenize.STRING and at_start:
                for offset, part in enumerate(token.string.split("\n")):
                    yield token.start[0] + offset, part.strip().strip('"').strip()
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                at_start = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
    except (tokenize.TokenError, IndentationError):
        return


def comments_of_script(text):
    for number, line in enumerate(text.split("\n"), 1):
        if found := re.search(r"(?:^|\s)#+(?!!)\s*(.*)", line):
            yield number, found[1].strip()


def comments_of(name, text):
    suffix = Path(name).suffix
    if suffix in CPP:
        return comments_of_cpp(text)
    if suffix == ".py" or (suffix == "" and re.match(r"#!.*python", text)):
        return comments_of_python(text)
    if suffix == ".cmake" or Path(name).name == "CMakeLists.txt" or (suffix == "" and text.startswith("#!")):
        return comments_of_script(text)
    return []


def wording(name, text):
    """Matches of PATTERNS: (line, message)."""
    if name in EXEMPT:
        return
    page = name.endswith(".md")
    lines = text.split("\n")
    previous, previous_part = -1, ""
    for number, part in enumerate(lines, 1) if page else comments_of(name, text):
        beside_code = re.match(r"\s*[^\s/#*\"]", lines[number - 1]) and ("//" in lines[number - 1] or "#" in lines[number - 1])
        first = bool(beside_code) or number != previous + 1 or not previous_part
        previous, previous_part = number, part
        if ALLOWED in lines[number - 1]:
            continue
        for where, pattern, instead in COMPILED:
            found = pattern.search(part) if where == "text" else pattern.match(part) if where == "begin" and first and not page else None
            if found:
                yield number, f"'{found[0]}': {instead}"
    if name.endswith(("CMakeLists.txt", ".cmake")):
        for where, pattern, instead in COMPILED:
            for number, line in enumerate(lines, 1):
                if where == "code" and pattern.search(line):
                    yield number, f"'{pattern.pattern}': {instead}"


def fenced(lines):
    """(number, line, whether it is code or a table)."""
    inside = False
    for number, line in enumerate(lines, 1):
        fence = line.lstrip().startswith("```")
        yield number, line, inside or fence or line.lstrip().startswith("|")
        inside ^= fence


def too_wide(name, text):
    """Lines of a page beyond COLUMNS that a break could shorten: tables, code and single long words are exempt."""
    if not name.endswith(".md"):
        return
    for number, line, exempt in fenced(text.split("\n")):
        if not exempt and not line.lstrip().startswith("<") and len(line) > COLUMNS and " " in line.strip()[: COLUMNS - 1]:
            yield number, f"{len(line)} columns; pages wrap at {COLUMNS} (scripts/lint --wrap)"


ITEM = re.compile(r"(\s*(?:[-*+]|\d+\.)\s+|>\s*)(.*)")


def refill(lines):
    """A paragraph or list item, its words over lines of at most COLUMNS."""
    found = ITEM.match(lines[0])
    first, rest = (found[1], found[2]) if found else (re.match(r"\s*", lines[0])[0], lines[0].strip())
    indent = ("> " if first.startswith(">") else " " * len(first))
    words = " ".join([rest, *(line.strip().removeprefix("> ") if first.startswith(">") else line.strip() for line in lines[1:])])
    # Short code spans stay whole where that is possible.
    whole = re.sub(r"`[^`]{1,70}`", lambda span: span[0].replace(" ", "\0"), words)
    for text in (whole, words):
        for width in range(COLUMNS, COLUMNS - 20, -1):
            filled = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
            # A line that begins with these would be a list, a heading or a table.
            safe = not any(re.match(r"\s*([-*+#|]|\d+\.)\s", line) for line in filled[1:])
            if safe and all(len(line) <= COLUMNS for line in filled):
                return [line.replace("\0", " ") for line in filled]
    return lines


def wrapped(text):
    """The page with its wide paragraphs refilled. Hard line breaks and everything that is no paragraph stay."""
    result, paragraph = [], []

    def flush():
        wide = any(len(line) > COLUMNS for line in paragraph)
        keep = any(line.endswith(("  ", "\\")) for line in paragraph)
        result.extend(refill(paragraph) if wide and not keep else paragraph)
        paragraph.clear()

    for _, line, exempt in fenced(text.split("\n")):
        if exempt or not line.strip() or line.lstrip().startswith(("#", "<")):
            flush()
            result.append(line)
        else:
            if ITEM.match(line) and not (paragraph and paragraph[0].startswith(">") and line.startswith(">")):
                flush()
            paragraph.append(line)
    flush()
    return "\n".join(result)


def tracked(paths):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(name for name in listed.stdout.split("\n") if name and (ROOT / name).is_file())


def main():
    arguments = sys.argv[1:]
    wrap = "--wrap" in arguments
    paths = [argument for argument in arguments if argument != "--wrap"]
    matches = 0
    for name in tracked(paths):
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        if wrap:
            if name.endswith(".md") and (new := wrapped(text)) != text:
                (ROOT / name).write_text(new)
                print(f"wrapped {name}")
            continue
        for number, message in sorted([*wording(name, text), *too_wide(name, text)]):
            print(f"{name}:{number}: {message}")
            matches += 1
    if not wrap:
        print(f"{matches} matches")
    return 1 if matches else 0


if __name__ == "__main__":
    sys.exit(main())
