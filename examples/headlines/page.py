#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of docs/headlines.md from the figures of the studies.

  examples/headlines/page.py                       writes the tables
  examples/headlines/page.py --check               changes nothing; exit code 1 if a table is not that of the figures
  examples/headlines/page.py --take CAMPAIGN...    copies figures and plots of finished campaigns, then writes the tables

NAME.figures.json has the figures of a study, elsewhere.json those of other pages, as these pages state them."""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs/headlines.md"
STUDIES = ("calls", "staging", "half_precision", "bit_flips", "cosmoflow")
MARKS = re.compile(r"<!-- headlines: (\w+) -->\n.*?<!-- end of headlines -->", re.DOTALL)
PASSED = {True: "yes", False: "**no**", None: "-"}


def figures_of(name):
    """None for a study that has not been run whole."""
    path = HERE / f"{name}.figures.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def statement(one):
    return [one["what"], one["published"], one["here"], one["mark"], PASSED[one["passed"]]]


def findings():
    rows = []
    for name in STUDIES:
        link, figures = f"[{name}](#{name.replace('_', '-')})", figures_of(name)
        rows += [[link, *statement(one)] for one in figures["rows"]] if figures else [[link, "not run yet", "", "", "", "-"]]
    rows += [[f"[{group['title']}]({group['page']})", *statement(one)]
             for group in json.loads((HERE / "elsewhere.json").read_text(encoding="utf-8")) for one in group["rows"]]
    return table(["study", "finding", "published", "here", "pass mark", "passed"], rows)


def duration(seconds):
    return f"{seconds} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def of_study(name):
    figures = figures_of(name)
    if figures is None:
        return f"`wflow run examples/headlines/{name}.yaml`: not run yet."
    parts = [f"`wflow run examples/headlines/{name}.yaml`: {duration(figures['seconds'])} on {figures['date']} ({figures['machine']}, "
             f"load {figures['load']}).",
             f"![{name.replace('_', ' ')}](headlines-{name}.svg)", table(figures["table"]["head"], figures["table"]["rows"])]
    return "\n\n".join(parts)


def text_of(mark):
    if mark != "findings" and mark not in STUDIES:
        sys.exit(f"page.py: {PAGE.relative_to(ROOT)}: no study is called '{mark}'; known are findings, {', '.join(STUDIES)}")
    return findings() if mark == "findings" else of_study(mark)


def take(campaign):
    (found,) = Path(campaign).glob("figures/figures.json")
    name = json.loads(found.read_text(encoding="utf-8"))["name"]
    shutil.copyfile(found, HERE / f"{name}.figures.json")
    shutil.copyfile(found.with_name(f"{name}.svg"), ROOT / f"docs/headlines-{name}.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--take", nargs="+", default=[], metavar="CAMPAIGN", help="copy figures and plots of these campaigns")
    options = parser.parse_args()
    for campaign in options.take:
        take(campaign)
    text = PAGE.read_text(encoding="utf-8")
    new = MARKS.sub(lambda match: f"<!-- headlines: {match[1]} -->\n{text_of(match[1])}\n<!-- end of headlines -->", text)
    missing = {"findings", *STUDIES} - {match[1] for match in MARKS.finditer(text)}
    if missing:
        sys.exit(f"page.py: {PAGE.relative_to(ROOT)} has no place for {', '.join(sorted(missing))}")
    if new == text:
        return
    if options.check:
        sys.exit(f"page.py: {PAGE.relative_to(ROOT)} is not made from the figures: run examples/headlines/page.py")
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
