# SPDX-License-Identifier: Apache-2.0
"""Merlin's and Maestro's words: what wflow answers to them, the programs of install-shims, and their page of the manual."""

import json
import os
import re
import subprocess
import unittest

from merlin_tree import MerlinTree, Step
from wflow_test import BIN, OK, SOURCE, TASKS_FAILED, USAGE, CampaignTest, lines_of

# Each with a word that the answer must have.
WORDS = {"restart": "wflow resume", "purge": "wflow cancel", "monitor": "wflow attach", "stop-workers": "wflow drain",
         "query-workers": "wflow workers", "detailed-status": "wflow tasks", "example": "wflow init", "info": "wflow doctor",
         "run-workers": "wflow run", "queue-info": "wflow status", "config": "no broker", "server": "no server",
         "database": "wflow tasks", "update": "wflow resume", "conductor": "wflow run"}

HELLO = """
description: {name: hello, description: d}
env: {variables: {OUTPUT_PATH: ./out, N: 1}}
study:
  - {name: say, description: d, run: {cmd: 'echo hello $(N); exit $(N)'}}
  - {name: after, description: d, run: {cmd: echo after, depends: [say]}}
merlin: {}
"""


class OtherWords(CampaignTest):
    def test_each_has_an_answer(self):
        for word, instead in WORDS.items():
            for command in ([word], [word, "study.yaml"], ["help", word]):
                with self.subTest(command=command):
                    said = self.sentence(self.wflow(*command, code=USAGE))
                    self.assertIn(f"{word} is no command of wflow: ", said)
                    self.assertIn(instead, said)

    def test_completion(self):
        """Where no command of ours begins so."""
        verbs = [line.split("\t")[0] for line in self.wflow("complete", "").out.split("\n") if line]
        self.assertIn("infer", verbs)
        for word, instead in WORDS.items():
            if any(verb.startswith(word[:-1]) for verb in verbs):
                continue
            lines = self.wflow("complete", word[:-1]).out.split("\n")
            found = {line.split("\t")[0]: line.split("\t")[1] for line in lines if line}
            self.assertIn(word, found)
            self.assertIn(instead, found[word])
        ours = [line.split("\t")[0] for line in self.wflow("complete", "re").out.split("\n") if line]
        self.assertEqual(sorted(ours), ["redo", "report", "rerun", "resume", "retry"])

    def test_status_of_a_study(self):
        study = self.study(HELLO)
        self.assertIn("start one with: wflow run", self.sentence(self.wflow("status", study, code=USAGE)))
        self.wflow("run", study, "--vars", "N=0", code=OK)
        self.wflow("run", study, "--vars", "N=0", code=OK)
        other = self.study(HELLO.replace("name: hello", "name: other"), name="other.yaml")
        self.wflow("run", other, "--vars", "N=0", code=OK)
        newest = sorted(path.name for path in (self.folder / "out").iterdir() if path.name.startswith("hello"))[-1]
        self.assertEqual(json.loads(self.wflow("status", study, "--json").out)["directory"], str(self.folder / "out" / newest))
        self.assertIn("hello 0", self.wflow("logs", study, "say").out)
        away = self.folder / "away"  # neither below the working directory nor in its OUTPUT_PATH
        away.mkdir()
        self.wflow("run", study, "--vars", f"OUTPUT_PATH={away}/a/b/c", "N=0", code=OK)
        self.assertTrue(json.loads(self.wflow("status", study, "--json").out)["directory"].startswith(f"{away}/a/b/c/"))


class Shims(CampaignTest):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "shims"
        said = self.wflow("install-shims", self.bin).out
        self.assertIn(f"export PATH={self.bin}:", said)
        self.environment["PATH"] = f"{self.bin}:{self.environment['PATH']}"
        self.environment["XDG_STATE_HOME"] = str(self.folder / "state")

    def call(self, *words, code=OK):
        done = subprocess.run([str(w) for w in words], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=200, check=False)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout}\n{done.stderr}")
        return done

    def one_line(self, done):
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def state(self, study="study.yaml"):
        return json.loads(self.wflow("status", study, "--json").out)["state"]

    def test_again_and_not_over_others(self):
        self.assertEqual(self.wflow("install-shims", self.bin).err, "")
        other = self.folder / "other"
        other.mkdir()
        (other / "merlin").write_text("#!/bin/sh\n")
        self.assertIn("wflow did not write it", self.sentence(self.wflow("install-shims", other, code=USAGE)))
        self.assertEqual([path.name for path in other.iterdir()], ["merlin"])
        self.assertEqual((other / "merlin").read_text(), "#!/bin/sh\n")

    def test_run_local(self):
        """Exit code 0 after soft failures, as Merlin has it, so that `merlin run --local x && python post.py` goes on."""
        study = self.study(HELLO)
        self.call("merlin", "-lvl", "DEBUG", "run", "--local", study)
        self.assertEqual(self.state(), "finished with failures")
        self.call("merlin", "run", study, "--local", "--vars", "N=102", code=TASKS_FAILED)
        self.call("merlin", "run", study, "--dry", "--no-errors")
        self.call("merlin", "run", "none.yaml", "--local", code=4)

    def test_a_day_with_merlin(self):
        study = self.study(HELLO)
        self.assertIn("nothing to configure", self.call("merlin", "config", "create", "--broker", "redis").stderr)
        self.assertIn("no server", self.call("merlin", "server", "start").stderr)
        self.call("merlin", "run", study, "--vars", "N=0")
        self.assertIn("starts the workers of this machine", self.call("merlin", "run-workers", study, "--worker-args", "-l INFO").stderr)
        self.call("merlin", "monitor", study, "--sleep", "5")
        self.assertEqual(self.state(), "finished")
        self.assertIn("1/1", self.call("merlin", "status", study).stdout)
        self.assertIn("say", self.call("merlin", "detailed-status", study, "--disable-pager").stdout)
        self.assertIn("ended", self.call("merlin", "query-workers", "--spec", study).stdout)
        self.assertIn("say", self.call("merlin", "queue-info", "--spec", study).stdout)
        self.assertIn("no workers: nothing runs", self.call("merlin", "stop-workers", "--spec", study).stdout)
        self.assertIn("wflow cancel", self.call("merlin", "purge", "-f", study).stderr)
        self.assertIn("in the place of merlin", self.call("merlin", "info").stdout)
        self.assertIn("wflow init", self.call("merlin", "example", "list").stdout)
        self.assertIn("come with Merlin", self.one_line(self.call("merlin", "example", "hello", "-p", "mine", code=USAGE)))
        self.assertFalse((self.folder / "mine").exists())
        self.assertIn("wflow tasks", self.call("merlin", "database", "get", "all-runs", code=USAGE).stderr)
        self.assertIn("wflow cancel --step", self.call("merlin", "stop-workers", "--workers", "w.*", code=USAGE).stderr)
        self.assertIn("wflow status --csv > s.csv", self.call("merlin", "status", study, "--dump", "s.csv", code=USAGE).stderr)
        self.assertIn("no counterpart", self.call("merlin", "conjure", code=USAGE).stderr)

    def test_filters_of_views(self):
        study = self.study("""
description: {name: views, description: d}
env: {variables: {OUTPUT_PATH: ./out}}
study:
  - {name: fine, description: d, run: {cmd: echo $(P), task_queue: quick}}
  - {name: bad, description: d, run: {cmd: 'exit $(P)', task_queue: slow}}
  - {name: odd, description: d, run: {cmd: exit 106, task_queue: slow}}
  - {name: stops, description: d, run: {cmd: exit 102, depends: [fine_*, bad_*, odd]}}
global.parameters: {P: {values: [1, 101], label: P.%%}}
merlin: {resources: {workers: {quickly: {steps: [fine]}, slowly: {steps: [bad, odd, stops]}}}}
""")
        self.call("merlin", "run", "--local", study, code=TASKS_FAILED)

        def tasks(*words):
            lines = self.call("merlin", "detailed-status", study, "--disable-pager", "--no-prompts", *words).stdout.split("\n")[1:]
            return [line.split()[0] for line in lines if line and not line.startswith("the first")]

        self.assertEqual(tasks("--steps", "fine", "odd"), ["fine/P.1", "fine/P.101", "odd"])
        self.assertEqual(len(tasks("--steps", "all", "--layout", "table")), 6)
        self.assertEqual(tasks("--task-queues", "slow"), ["bad/P.1", "bad/P.101", "odd"])
        self.assertEqual(tasks("--task-queues", "[merlin]_quick", "--max-tasks", "1"), ["fine/P.1"])
        self.assertEqual(tasks("--task-status", "FAILED"), ["bad/P.1", "bad/P.101", "stops"])
        self.assertEqual(tasks("--task-status", "FINISHED", "UNKNOWN"), ["fine/P.1", "fine/P.101", "odd"])
        self.assertEqual(tasks("--return-code", "HARD_FAIL"), ["stops"])
        self.assertEqual(tasks("--return-code", "SOFT_FAIL", "--steps", "bad"), ["bad/P.1", "bad/P.101"])
        self.assertEqual(tasks("--workers", "none"), [])
        for words, answer in ((["--steps", "fin"], "did you mean 'fine'"), (["--task-queues", "qick"], "did you mean '[merlin]_quick'"),
                              (["--return-code", "STOP_WORKERS"], "no such record"), (["--task-status", "DONE"], "is none of INITIALIZED")):
            self.assertIn(answer, self.one_line(self.call("merlin", "detailed-status", study, *words, code=USAGE)))
        queues = self.call("merlin", "queue-info", "--spec", study, "--specific-queues", "slow", "--vars", "A=1", "--dump", "q.json")
        self.assertIn("[merlin]_slow", queues.stdout)
        self.assertNotIn("quick", queues.stdout)
        self.assertIn("--vars has no effect", self.one_line(queues))
        [found] = json.loads((self.folder / "q.json").read_text()).values()
        self.assertEqual(found, {"[merlin]_slow": {"tasks": 0, "consumers": 0}})
        self.call("merlin", "queue-info", "--specification", study, "--steps", "fine", "--dump", "q.csv")
        self.assertTrue((self.folder / "q.csv").read_text().startswith("time,[merlin]_quick:tasks,[merlin]_quick:consumers\n"))

        def workers(*words):
            lines = self.call("merlin", "query-workers", "--spec", study, *words).stdout.split("\n")[1:]
            return sorted(line.split()[1] for line in lines if line)

        self.assertEqual(workers(), ["quickly", "slowly"])
        self.assertEqual(workers("--queues", "quick"), ["quickly"])
        self.assertEqual(workers("--steps", "odd"), ["slowly"])
        self.assertEqual(workers("--workers", "^sl.w"), ["slowly"])
        self.assertEqual(workers("--workers", "none"), [])

    def test_restart_of_merlins_workspace(self):
        log = self.folder / "log"
        tree = MerlinTree(self.folder / "studies", [Step("one", f"echo one >> {log}"), Step("two", f"echo two >> {log}", ["one"]),
                                                    Step("bad", f"echo bad >> {log}; exit 1")]).run(1)
        said = self.call("merlin", "restart", tree.workspace, "--local").stdout
        self.assertIn("is a campaign now: 1 done, 0 failed, 2 left", said)
        self.assertEqual(sorted(lines_of(log)), ["bad", "one", "two"])
        self.call("merlin", "restart", tree.workspace)  # in the background
        self.call("merlin", "monitor", tree.workspace)
        self.assertEqual(sorted(lines_of(log)), ["bad", "bad", "one", "two"])

    def test_maestro(self):
        study = self.study("""
description: {name: plain, description: d}
env: {variables: {OUTPUT_PATH: ./out}}
study:
  - {name: say, description: d, run: {cmd: echo $(P)}}
global.parameters: {P: {values: [1, 2], label: P.%%}}
""")
        self.call("maestro", "-d", "1", "run", "-y", "-s", "1", "-fg", study)
        self.assertEqual(self.state(), "finished")
        done = self.call("maestro", "run", "-y", "-a", "3", "-o", "elsewhere", "-t", "1", study)
        self.assertIn("--attempts has no effect here", done.stderr)
        campaign = self.folder / "elsewhere" / sorted(os.listdir(self.folder / "elsewhere"))[-1]
        self.wflow("attach", campaign)
        self.assertEqual((campaign / "say" / "P.2" / "say_P.2.out").read_text(), "2\n")
        self.assertIn("2/2", self.call("maestro", "status", campaign).stdout)
        self.assertIn("2/2", self.call("maestro", "status", "elsewhere").stdout)
        twice = self.call("maestro", "status", campaign, campaign, "--layout", "flat").stdout
        self.assertEqual(twice.count("2/2"), 2)
        self.call("maestro", "run", "-n", study)
        self.assertIn("nothing to cancel", self.call("maestro", "cancel", campaign, code=USAGE).stderr)
        self.assertIn("nothing to cancel", self.call("maestro", "cancel", "-y", "elsewhere", code=USAGE).stderr)
        self.assertIn("wflow resume", self.call("maestro", "update", campaign, "--throttle", "4", code=USAGE).stderr)
        self.assertIn("after their labels only", self.call("maestro", "run", "--hashws", study, code=USAGE).stderr)


class Page(unittest.TestCase):
    """docs/coming-from-merlin.md names no command or option that is not there, and every command of Merlin and Maestro."""

    PAGE = (SOURCE / "docs" / "coming-from-merlin.md").read_text()

    @staticmethod
    def ask(*words):
        return subprocess.run([BIN / "wflow", *words], capture_output=True, text=True, check=False).stdout

    def test_commands_and_options(self):
        commands = {line.split("\t")[0] for line in self.ask("complete", "").split("\n")}
        checked = 0
        for code in re.findall(r"`([^`]*)`", self.PAGE):
            for words in re.findall(r"\bwflow ([^;&|>]*)", code):
                words = words.split()
                command = words[0] if words else ""
                if command in ("merlin", "maestro") or not re.fullmatch(r"[a-z][a-z-]*", command):
                    continue
                self.assertIn(command, commands, code)
                text = self.ask("help", command)
                for option in re.findall(r"(?<!\S)-{1,2}[A-Za-z][\w-]*", " ".join(words[1:])):
                    self.assertIn(option, text, code)
                    checked += 1
        self.assertGreater(checked, 20)

    def test_nothing_of_theirs_is_missing(self):
        merlin = ("run restart run-workers stop-workers purge status detailed-status monitor query-workers queue-info info "
                  "example config server database")
        for command in [f"merlin {word}" for word in merlin.split()] + [f"maestro {w}" for w in ("run", "status", "cancel", "update")]:
            self.assertRegex(self.PAGE, rf"(?m)^\| `{command}\b")
        for word in WORDS:
            self.assertIn(word, self.PAGE)


if __name__ == "__main__":
    unittest.main()
