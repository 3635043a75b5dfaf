# SPDX-License-Identifier: Apache-2.0
"""A file that could be Maestro's or wflow's own does the same in both readings, and whose it is does not depend on descriptions."""

import json
import re
import subprocess
import unittest

from wflow_test import BIN, OK, SOURCE, SPEC, TASKS_FAILED, CampaignTest

CASES = SOURCE / "tests" / "conformance" / "cases" / "maestro"

# As Maestro's samples are: labels, parameters, funnels, variables, a dependency, the study's own directory.
HELLO = """
description: {name: hello, description: says hello and bye}
env:
  variables: {OUTPUT_PATH: ./out, GREETING: Hello, N: 7, TWICE: $(GREETING) $(GREETING)}
  labels: {FILE: $(NAME)_$(SIZE).txt}
study:
  - name: say-hello
    description: greets
    run:
      cmd: |
        echo "$(TWICE), $(NAME) $(SIZE.label) $(N)" > "$(FILE)"
        [ $(SIZE) != 20 ]
  - name: say-bye
    description: after it
    run: {cmd: cat "$(say-hello.workspace)/$(FILE)", depends: [say-hello]}
  - name: gather
    description: all
    run: {cmd: 'cat $(say-hello.workspace)/*/*.txt; ls $(OUTPUT_PATH)', depends: [say-bye_*, say-hello_*]}
  - name: plain
    description: a program alone
    run: {cmd: echo plain, depends: [gather]}
  - name: launched
    description: no batch system
    run: {cmd: 'echo run $(LAUNCHER) app'}
global.parameters:
  NAME: {values: [Pam, Jim, Pam Beesly], label: NAME.%%}
  SIZE: {values: [10, 20, 0.5], label: SIZE.%%}
"""


class Dialects(CampaignTest):
    def left(self, campaign):
        """Every file that the campaign left but those of wflow's record, with its text; and the states of its tasks."""
        files = {}
        for path in sorted(campaign.rglob("*")):
            relative = str(path.relative_to(campaign))
            if path.is_file() and not relative.startswith((".wflow", "merlin_info", "CODE/.git")):
                files[relative] = path.read_text().replace(str(campaign), "<CAMPAIGN>")
        tasks = subprocess.run([BIN / "wflow", "tasks", campaign, "--csv"], capture_output=True, text=True, check=True).stdout
        return files, [line.split(",")[:4] for line in tasks.split("\n") if line]

    def compare(self, text, code):
        found = {}
        for dialect, options in (("maestro", ["--dialect", "maestro"]), ("wflow", [])):
            place = self.folder / dialect
            place.mkdir(parents=True)
            study = self.study(text, name="study.yaml")
            self.wflow("run", study, *options, "--vars", f"OUTPUT_PATH={place}", "-q", "--new", code=code)
            [campaign] = [path for path in place.iterdir() if (path / ".wflow").exists()]
            found[dialect] = self.left(campaign)
            plan = json.loads(self.wflow("plan", study, *options, "--json").out)
            self.assertEqual(plan["dialect"], dialect)
        self.maxDiff = None
        self.assertEqual(found["maestro"], found["wflow"])
        return found["wflow"]

    def test_both_readings_do_the_same(self):
        # Like $(MPICXX) of Maestro's lulesh samples: another program's, and left as it is.
        files, tasks = self.compare(HELLO.replace("      cmd: |\n", "      cmd: |\n        echo CXX | sed 's/CXX/$(MPICXX)/' > compiler\n"), TASKS_FAILED)
        self.assertEqual(files["say-hello/NAME.Pam.SIZE.10/compiler"], "$(MPICXX)\n")
        self.assertEqual(files["gather/gather.out"].split("\n")[0], "Hello Hello, Jim SIZE.20 7")
        states = {row[0]: row[3] for row in tasks[1:]}
        self.assertEqual(states["say-bye/NAME.Jim.SIZE.20"], "skipped")
        self.assertEqual((states["gather"], states["plain"]), ("done", "done"))

    def test_cases_of_maestro(self):
        """Those that name nothing of Maestro's alone."""
        compared = []
        for case in sorted(CASES.glob("*.yaml")):
            if "nothing that only Merlin or Maestro has" not in self.wflow("validate", case).out:
                continue
            with self.subTest(case=case.stem):
                for name in ("maestro", "wflow"):
                    subprocess.run(["rm", "-rf", self.folder / name], check=True)
                if case.stem == "git_dependency":
                    continue  # needs a repository: the case itself shows it
                self.compare(case.read_text(), TASKS_FAILED if case.stem == "failure" else OK)
                compared.append(case.stem)
        self.assertLessEqual({"failure", "hello_bye", "output_path"}, set(compared))

    def test_descriptions_do_not_decide(self):
        """The dependent step ran or not by the description of a step."""
        template = (SOURCE / "cli" / "templates" / "hello.yaml").read_text()
        for text in (template, re.sub(r"(?m)^    description:.*\n", "", template), HELLO, HELLO.replace("    description: greets\n", "")):
            study = self.study(text)
            self.assertIn("read as wflow's own file", self.wflow("validate", study).out)

    def test_what_differs_is_said_when_it_matters(self):
        study = self.study("description: {name: a, description: b}\nstudy:\n  - {name: s, description: d, run: {cmd: exit 3}}\n"
                           "  - {name: t, description: d, run: {cmd: echo t, depends: [s]}}\n")
        ran = self.wflow("run", study, code=TASKS_FAILED)
        self.assertNotIn("read as", ran.out + ran.err)
        self.assertIn("--dialect merlin", ran.out)
        fine = self.study("description: {name: a, description: b}\nstudy:\n  - {name: s, description: d, run: {cmd: echo s}}\n")
        ran = self.wflow("run", fine, "--new", "--merlin-status", "leaf", code=OK)
        self.assertNotIn("--dialect merlin,", ran.out)
        self.assertIn("--merlin-status has no effect: this file was read as wflow's own", ran.err)
        mistyped = self.study("description: {name: a, description: b}\nstudy:\n  - {name: s, description: d, run: {cmd: echo '$(CXX)', depend: x}}\n")
        warned = self.wflow("validate", mistyped).err
        self.assertIn("did you mean 'depends'", warned)
        self.assertIn("'$(CXX)'", warned)
        self.assertIn("'$(CXX)'", self.wflow("validate", "--strict", mistyped, code=SPEC).err)


if __name__ == "__main__":
    unittest.main()
