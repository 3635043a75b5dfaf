# SPDX-License-Identifier: Apache-2.0
"""`wflow init --from`: lists of commands, scripts of a Slurm array, and studies of Merlin and Maestro become studies that do what these did."""

import json
import subprocess
import unittest

from wflow_test import BIN, OK, USAGE, CampaignTest

ARRAY = """#!/bin/bash
#SBATCH --array=1-7:3
#SBATCH --time=10
#SBATCH --cpus-per-task=1
#SBATCH --output=log_%a.txt
point=$(sed -n "${SLURM_ARRAY_TASK_ID}p" points.txt)
echo "$point of $SLURM_ARRAY_TASK_COUNT" > "array_$SLURM_ARRAY_TASK_ID.txt"
"""

MERLIN = """description:
    name: demo
    description: as Merlin has them
env:
    variables:
        POINTS: $(SPECROOT)/points.csv
merlin:
    resources:
        workers:
            main: {args: -c 2, steps: [all]}
    samples:
        file: $(POINTS)
        column_labels: [X, Y]
# The steps.
study:
    - name: fails
      description: softly, for some samples
      run:
          cmd: |
              # depends: nothing
              test $(X) != 2 || exit $(MERLIN_SOFT_FAIL)
          task_queue: main
    - name: all
      description: goes on after failures
      run: {cmd: "echo $(MERLIN_SAMPLE_ID) $(X) $(Y) >> $(SPECROOT)/seen_$(Y).txt", depends: [fails]}
    - name: gather
      description: as well
      run:
          cmd: cat $(SPECROOT)/seen_*.txt > $(SPECROOT)/gathered.txt
          depends: [all_*]
"""
MAESTRO = """description: {name: hello, description: as Maestro has it}
batch: {type: local_pool, num_workers: 2}
study:
  - name: hello
    description: of each name
    run: {cmd: "echo hello $(NAME) > $(SPECROOT)/hello_$(NAME).txt"}
global.parameters:
  NAME: {values: [a, b], label: NAME.%%}
"""


class Import(CampaignTest):
    def call(self, *words, code=OK):
        """wflow in the folder of the test, as a user calls it."""
        done = subprocess.run([str(BIN / "wflow"), *map(str, words)], capture_output=True, text=True, cwd=self.folder, env=self.environment,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def init(self, *words, code=OK):
        return self.call("init", "--from", *words, code=code)

    def run_study(self, *words, file="study.yaml"):
        if not words:  # a scheduler that does not answer is a warning
            self.assertEqual(self.call("validate", file).stderr, "")
        status = json.loads(self.call("run", file, *words, "--json").stdout)
        self.assertEqual((status["state"], status["failures"]), ("finished", []))

    def refused(self, *words):
        """The one sentence of an error."""
        (sentence,) = self.init(*words, code=USAGE).stderr.splitlines()
        return sentence

    def made(self, pattern):
        return {path.name: path.read_text() for path in self.folder.glob(pattern)}

    def test_commands_that_differ_in_words(self):
        (self.folder / "runs.txt").write_text("# two\necho 0.10 a > out_1.txt\n\necho 0.2 b > out_2.txt\n")
        out = self.init("runs.txt").stdout
        self.assertIn("study.yaml and runs.csv: now\n  wflow plan study.yaml", out)
        self.assertEqual((self.folder / "runs.csv").read_text(), "word2,word3,word5\n0.10,a,out_1.txt\n0.2,b,out_2.txt\n")
        self.run_study()
        self.assertEqual(self.made("out_*.txt"), {"out_1.txt": "0.10 a\n", "out_2.txt": "0.2 b\n"})
        self.assertIn("exists already", self.refused("runs.txt"))

    def test_commands_of_any_form(self):
        lines = ["echo 'one  two' | tr a-z A-Z > form_1.txt", "for i in 1 2; do echo \"$i $(echo x)\"; done > form_2.txt", "echo $HOME | wc -l > form_3.txt"]
        (self.folder / "any.txt").write_text("\n".join(lines) + "\n")
        made = json.loads(self.init("any.txt", "study", "--json").stdout)
        self.assertEqual(made, {"file": "study/study.yaml", "from": "any.txt", "kind": "commands", "samples": "study/any.lines"})
        self.run_study(file="study/study.yaml")
        # They ran here, where `wflow init` was, not in the folder of the study.
        self.assertEqual(self.made("form_*.txt"), {"form_1.txt": "ONE  TWO\n", "form_2.txt": "1 x\n2 x\n", "form_3.txt": "1\n"})

    def test_a_slurm_array(self):
        (self.folder / "points.txt").write_text("".join(f"point {n}\n" for n in range(1, 9)))
        (self.folder / "array.sh").write_text(ARRAY)
        self.init("array.sh")
        self.run_study("--local")
        self.assertEqual(self.made("array_*.txt"), {f"array_{n}.txt": f"point {n} of 3\n" for n in (1, 4, 7)})

    def test_a_study_of_merlin(self):
        (self.folder / "points.csv").write_text("1,a\n2,b\n3,c\n")
        (self.folder / "demo.yaml").write_text(MERLIN)
        made = json.loads(self.init("merlin", "demo.yaml", "new", "--json").stdout)
        self.assertEqual(made, {"file": "new/study.yaml", "from": "demo.yaml", "kind": "Merlin's study"})
        text = (self.folder / "new" / "study.yaml").read_text()
        self.assertNotIn("merlin:", text)
        self.assertIn("\nsamples:\n    file: $(POINTS)\n    column_labels: [X, Y]\n# The steps.\nstudy:\n", text)
        self.assertIn("Merlin's workers are left out", text)
        plan = json.loads(self.call("plan", "new/study.yaml", "--json").stdout)
        theirs = json.loads(self.call("plan", "demo.yaml", "--json").stdout)
        self.assertEqual((plan["dialect"], theirs["dialect"]), ("wflow", "merlin"))
        for key in ("samples", "tasks", "arrays"):
            self.assertEqual(plan[key], theirs[key])
        for ours, their in zip(plan["steps"], theirs["steps"]):
            self.assertEqual((ours["name"], ours["after"]), (their["name"], their["after"]))
        self.assertEqual([step.get("continue_on") for step in plan["steps"]], [None, "soft_fail", "soft_fail"])
        self.call("run", "new/study.yaml", code=1)
        self.assertEqual(sorted((self.folder / "gathered.txt").read_text().splitlines()), ["0 1 a", "1 2 b", "2 3 c"])
        # By its content, too.
        self.assertEqual(json.loads(self.init("demo.yaml", "again", "--json").stdout)["kind"], "Merlin's study")

    def test_a_study_of_maestro(self):
        (self.folder / "hello.yaml").write_text(MAESTRO)
        self.assertEqual(json.loads(self.init("hello.yaml", "--json").stdout)["kind"], "Maestro's study")
        self.run_study()
        self.assertEqual(self.made("hello_?.txt"), {"hello_a.txt": "hello a\n", "hello_b.txt": "hello b\n"})

    def test_files_that_are_neither(self):
        (self.folder / "study.txt").write_text("description: {name: a}\nsamples: {design: sobol}\nstudy:\n- name: b\n  run: {cmd: c}\n")
        (self.folder / "one.sh").write_text("#!/bin/bash\n#SBATCH --time=10\n./sim\n")
        for words, part in ((("study.txt",), "wflow run study.txt"), (("one.sh",), "no #SBATCH --array"),
                            (("one.sh", "a", "b"), "only a directory")):
            self.assertIn(part, self.refused(*words))
        (self.folder / "merlin.txt").write_text("study: 1\n")
        for words, part in ((("merlin",), "name the study"), (("merlin", "merlin.txt"), "no list of steps")):
            self.assertIn(part, self.refused(*words))
        self.assertEqual(list(self.folder.glob("*.yaml")), [])


if __name__ == "__main__":
    unittest.main()
