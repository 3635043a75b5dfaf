# SPDX-License-Identifier: Apache-2.0
"""What the study language has beyond Merlin's, through the programs: when:, --pgen, --dry, the plan for programs."""

import json
import unittest

from wflow_test import OK, SPEC, USAGE, CampaignTest

STUDY = """
description: {name: language, description: keys of ours}
env: {variables: {OUTPUT_PATH: ., QUICK: "no"}}
global.parameters:
  N: {values: [1, 2, 3], label: N.%%}
merlin: {samples: {column_labels: [X], file: s.csv}}
study:
  - name: sim
    description: some combinations
    run: {cmd: 'echo $(N) $(X) > $(N).txt; : once more', restart: 'echo again $(X)', when: N != 2, outputs: [$(N).txt]}
  - name: after
    description: all combinations
    run: {cmd: 'echo $(N); : once', depends: [sim]}
  - name: all
    description: a funnel
    run: {cmd: 'ls -d $(sim.workspace)/*; :', depends: [sim_*, after_*]}
  - name: long
    description: not today
    run: {cmd: exit 1, when: not QUICK}
"""

GENERATOR = """
from maestrowf.datastructures.core import ParameterGenerator

def get_custom_generator(env, **kwargs):
    open(env.find("OUTPUT_PATH").value + "/ran", "a").write("x")
    made = ParameterGenerator()
    made.add_parameter("N", list(range(1, 1 + int(kwargs["count"]))), "N.%%")
    return made
"""


class Language(CampaignTest):
    def language_study(self):
        (self.folder / "s.csv").write_text("0.5\n0.25\n")
        return self.study(STUDY)

    def test_combinations_that_are_left_out_do_not_run(self):
        done = self.wflow("run", self.language_study(), "--vars", "QUICK=yes", code=OK)
        self.assertIn("the step 'long' is left out", done.err)
        directory = self.campaign()
        self.assertEqual(sorted(p.name for p in (directory / "sim").iterdir()), ["N.1", "N.3"])
        self.assertEqual(sorted(p.name for p in (directory / "after").iterdir()), ["N.1", "N.2", "N.3"])
        self.assertFalse((directory / "long").exists())
        self.assertEqual([s["name"] for s in self.status()["steps"]], ["sim", "after", "all"])

    def test_generated_parameters_are_kept(self):
        study = self.language_study()
        (self.folder / "made.py").write_text(GENERATOR)
        options = ["--pgen", "made.py", "--pargs", "count:5", "--vars", "QUICK=yes"]
        self.assertIn("valid; 4 steps, 14 tasks", self.wflow("validate", study, *options, code=OK).out)
        (self.folder / "ran").unlink()
        self.wflow("run", study, *options, "--dry", code=OK)
        self.assertEqual((self.folder / "ran").read_text(), "x")
        (self.folder / "made.py").unlink()
        directory = self.campaign()
        self.assertIn("N.%%", (directory / "merlin_info" / "study.expanded.yaml").read_text())
        self.wflow("resume", directory, code=OK)
        self.assertEqual(len(list((directory / "sim").iterdir())), 4)
        self.assertEqual(len(list((directory / "after").iterdir())), 5)
        self.assertEqual((self.folder / "ran").read_text(), "x")

    def test_a_generator_that_fails_leaves_nothing(self):
        study = self.language_study()
        (self.folder / "made.py").write_text(GENERATOR)
        done = self.wflow("run", study, "--pgen", "made.py", code=SPEC)
        self.assertIn("made.py:7: error: the parameter generator failed: KeyError: 'count'", done.err)
        self.assertEqual(list(self.folder.glob("language_*")), [])

    def test_dry_makes_directories_and_scripts(self):
        done = self.wflow("run", self.language_study(), "--dry", "--local", "--no-errors", "--vars", "QUICK=yes", code=OK)
        directory = self.campaign()
        self.assertIn(f"12 scripts in {directory}; nothing has run", done.out)
        files = sorted(str(p.relative_to(directory)) for step in ("sim", "after", "all") for p in (directory / step).rglob("*")
                       if p.is_file())
        self.assertEqual(files, sorted(
            [f"sim/N.{n}/{i:02}/sim_N.{n}{r}.sh" for n in (1, 3) for i in (0, 1) for r in ("", ".restart")]
            + [f"after/N.{n}/after_N.{n}.sh" for n in (1, 2, 3)] + ["all/all.sh"]))
        self.assertEqual((directory / "sim/N.3/01/sim_N.3.sh").read_text(), "#!/bin/bash\n\necho 3 0.25 > 3.txt; : once more\n")
        self.wflow("resume", directory, code=OK)
        self.assertEqual((directory / "sim/N.3/01/3.txt").read_text(), "3 0.25\n")

    def test_dry_is_not_for_millions(self):
        study = self.study("description: {name: many}\nsamples: {design: uniform, count: 3000000, parameters: {a: [0, 1]}}\n"
                           "batch: {dry_run: true}\nstudy: [{name: s, run: {cmd: x $(a)}}]\n")
        done = self.wflow("run", study, code=USAGE)
        self.assertIn("this study has 3,000,000 of them (at most 100,000)", done.err)
        self.assertEqual(list(self.folder.glob("many_*")), [])

    def test_the_plan_for_programs(self):
        plan = json.loads(self.wflow("plan", self.language_study(), "--json", "--vars", "QUICK=yes", code=OK).out)
        self.assertEqual((plan["study"], plan["arrays"], plan["tasks"]), ("language", 6, 8))
        sim, after, everything = plan["steps"]
        self.assertEqual((sim["when"], sim["combinations"], sim["tasks_a_combination"]), ("N != 2", 2, 2))
        self.assertEqual(sim["outputs"], [{"file": "$(N).txt", "dataset": "", "shape": [], "finite": False}])
        self.assertEqual(after["after"], [{"step": "sim", "edge": "all"}])
        self.assertEqual([edge["step"] for edge in everything["after"]], ["sim", "after"])
        graph = self.wflow("plan", self.folder / "study.yaml", "--dot", "--vars", "QUICK=yes", code=OK).out
        self.assertIn('"sim" -> "after" [label="all"];', graph)
        self.assertIn('"sim" [label="sim\\n2 x 2 tasks\\nwhen N != 2"];', graph)


if __name__ == "__main__":
    unittest.main()
