# SPDX-License-Identifier: Apache-2.0
"""`wflow adopt`: workspaces that Merlin and Maestro made become campaigns. They are made by tests/e2e/merlin_tree.py."""

import json
import shutil
import unittest

from merlin_tree import MaestroTree, MerlinTree, Step, sample_path, snapshot
from wflow_test import OK, SPEC, TASKS_FAILED, USAGE, CampaignTest, lines_of


class AdoptTest(CampaignTest):
    def setUp(self):
        super().setUp()
        self.log = self.folder / "log"
        self.output = self.folder / "studies"
        self.output.mkdir()

    def say(self, what):
        return f'echo "{what}" >> {self.log}'

    def ran(self):
        return sorted(lines_of(self.log))

    def adopt(self, tree, *options, code=OK):
        """Nothing but .wflow may change."""
        before = snapshot(tree.workspace)
        process = self.wflow("adopt", tree.workspace, "--json", *options, code=code)
        self.assertEqual(snapshot(tree.workspace), before)
        self.assertFalse((tree.workspace / ".wflow.adopting").exists())
        if code != OK:
            self.assertFalse((tree.workspace / ".wflow").exists())
            return process.err
        found = json.loads(process.out)
        return {key: found[key] for key in ("done", "failed", "skipped", "left", "running")}

    def counts(self, **found):
        return {"done": 0, "failed": 0, "skipped": 0, "left": 0, "running": 0, **found}

    def status(self, tree):
        return json.loads(self.wflow("status", tree.workspace, "--json").out)

    def refused(self, tree, words, *options, code=USAGE):
        said = self.adopt(tree, *options, code=code)
        self.assertIn(words, said)
        self.assertEqual(said.count("\n"), 1, said)


class AdoptMerlin(AdoptTest):
    def steps(self, fails="false", extra=""):
        """sim for each P and sample, post below it, collect waits for all of post. `fails`: a shell test for sim."""
        return [Step("sim", f"{self.say('sim/$(P)/$(MERLIN_SAMPLE_ID)')}\n{extra}\nif {fails}; then exit ${{CODE:-3}}; fi\n"
                            "echo $(X) > x.txt", uses=["P"], sampled=True),
                Step("post", f"{self.say('post/$(P)')}\ncat $(sim.workspace)/*/x.txt > all.txt || true", ["sim"], ["P"]),
                Step("collect", self.say("collect"), ["post_*"])]

    def tree(self, steps=None, **options):
        options = {"parameters": {"P": [1, 2]}, "samples": [f"v{i}" for i in range(4)], **options}
        return MerlinTree(self.output, steps or self.steps(), **options)

    def names(self, samples=4):
        return sorted([f"sim/{p}/{i}" for p in (1, 2) for i in range(samples)] + ["post/1", "post/2", "collect"])

    def test_finished(self):
        tree = self.tree().run()
        self.assertEqual(self.ran(), self.names())
        self.assertEqual(self.adopt(tree), self.counts(done=11))
        self.assertEqual(self.status(tree)["state"], "finished")
        self.wflow("resume", tree.workspace, "-j", "2", code=OK)
        self.assertEqual(self.ran(), self.names())
        self.assertIn(tree.workspace.name, self.wflow("status", "--all").out)

    def test_half_done_at_every_place(self):
        for most in range(0, 11, 2):
            with self.subTest(most=most):
                self.log.unlink(missing_ok=True)
                tree = self.tree(stamp=f"20250901-1015{most:02}").run(most)
                self.assertEqual(self.adopt(tree), self.counts(done=most, left=11 - most))
                self.wflow("resume", tree.workspace, "-j", "2", code=OK)
                self.assertEqual(self.ran(), self.names())
                self.assertEqual((tree.directory(tree.steps[0], "P.2", 3) / "x.txt").read_text(), "v3\n")
                self.assertTrue((tree.directory(tree.steps[2], "") / "MERLIN_FINISHED").exists())

    def test_condensed(self):
        """The state that workers of a distributed run leave: a status file for each step and combination."""
        tree = self.tree(self.steps(fails="[ $(MERLIN_SAMPLE_ID) = 2 ]")).run().condense()
        self.assertEqual(self.adopt(tree), self.counts(done=9, failed=2))

    def test_hierarchies(self):
        for samples, fan in ((1, 25), (2, 25), (5, 2), (9, 3), (27, 25), (11, 10)):
            with self.subTest(samples=samples, fan=fan):
                self.log.unlink(missing_ok=True)
                tree = self.tree(samples=[f"v{i}" for i in range(samples)], fan=fan, stamp=f"20250901-10{samples:02}{fan:02}")
                tree.run(samples + samples // 2)
                self.assertEqual(self.adopt(tree), self.counts(done=samples + samples // 2, left=samples - samples // 2 + 3))
                self.wflow("resume", tree.workspace, "-j", "2", code=OK)
                self.assertEqual(self.ran(), self.names(samples))
                last = tree.workspace / "sim" / "P.2" / sample_path(samples - 1, samples, fan)
                self.assertEqual((last / "x.txt").read_text(), f"v{samples - 1}\n")

    def test_failures(self):
        cure = self.folder / "cure"
        ill = f"[ $(MERLIN_SAMPLE_ID) = 2 -a ! -e {cure} ]"
        tree = self.tree(self.steps(fails=ill)).run()
        self.assertEqual(self.adopt(tree), self.counts(done=9, failed=2))
        self.assertEqual(self.status(tree)["state"], "finished with failures")
        failed = json.loads(self.wflow("tasks", tree.workspace, "--state", "failed", "--json").out)
        self.assertEqual(sorted(task["task"] for task in failed), ["sim/P.1/2", "sim/P.2/2"])
        self.assertIn("MERLIN_SOFT_FAIL in Merlin's MERLIN_STATUS.json",
                      self.wflow("explain", tree.workspace, "sim/P.1/2").out)
        self.wflow("resume", tree.workspace, "-j", "2", code=TASKS_FAILED)
        self.assertEqual(self.ran(), self.names())
        cure.touch()
        self.wflow("retry", tree.workspace, "-j", "2", code=OK)
        self.assertEqual(self.ran(), sorted(self.names() + ["sim/1/2", "sim/2/2", "post/1", "post/2", "collect"]))

    def test_four_at_once(self):
        """All four have failed: they shared one temporary folder."""
        tree = self.tree().run()
        adopts = [self.start("adopt", tree.workspace, "--json") for _ in range(4)]
        codes = [adopt.wait() for adopt in adopts]
        self.assertEqual(sorted(codes), [OK, USAGE, USAGE, USAGE], [adopt.err for adopt in adopts])
        for adopt, code in zip(adopts, codes):
            if code != OK:
                self.assert_one_sentence(adopt, "is a campaign already")
        self.assertEqual([path.name for path in tree.workspace.glob(".wflow*")], [".wflow"])
        self.assertEqual(self.status(tree)["state"], "finished")

    def test_parameters_whose_names_begin_alike(self):
        """Merlin takes $(SIZE2) for a use of SIZE, too, and names the directories so."""
        steps = [Step("one", self.say("one/$(SIZE)"), uses=["SIZE"]), Step("two", self.say("two/$(SIZE2)"), uses=["SIZE", "SIZE2"]),
                 Step("other", self.say("other/$(SIZE2.label)"), uses=["SIZE2"])]
        tree = MerlinTree(self.output, steps, parameters={"SIZE": [1, 2, 3], "SIZE2": [7, 7, 8]}).run()
        self.assertEqual(self.adopt(tree), self.counts(done=8))
        self.wflow("resume", tree.workspace, "-j", "2", code=OK)
        self.assertEqual(self.status(tree)["state"], "finished")
        self.assertEqual(len(self.ran()), 8)

    def test_special_codes(self):
        steps = [Step("hard", f"{self.say('hard')}; exit 102"), Step("stop", f"{self.say('stop')}; exit 105"),
                 Step("after", self.say("after"), ["stop"])]
        tree = MerlinTree(self.output, steps).run(2)
        self.assertEqual(self.adopt(tree), self.counts(done=1, failed=1, left=1))
        self.assertEqual([t["state"] for t in json.loads(self.wflow("tasks", tree.workspace, "--json").out)],
                         ["hard_failed", "done", "ready"])
        self.wflow("resume", tree.workspace, code=TASKS_FAILED)
        self.assertEqual(self.ran(), ["after", "hard", "stop"])

    def test_markers_decide(self):
        """The rule of merlin restart: without its marker a task runs again, whatever its status says, and with it never."""
        tree = self.tree().run()
        sim, post, _ = tree.steps
        (tree.directory(sim, "P.1", 1) / "MERLIN_FINISHED").unlink()
        (tree.directory(post, "P.2") / "MERLIN_STATUS.json").unlink()
        tree.write_status(sim, "P.2", 0, "RUNNING", None)
        tree.write_status(sim, "P.2", 1, "RUNNING", None)
        (tree.directory(sim, "P.2", 1) / "MERLIN_FINISHED").unlink()
        file = tree.directory(sim, "P.1", 3) / "MERLIN_STATUS.json"
        file.write_text(file.read_text()[:20])
        (tree.directory(sim, "P.1", 3) / "MERLIN_FINISHED").unlink()
        process = self.wflow("adopt", tree.workspace)
        self.assertIn("8 done, 0 failed, 0 skipped, 3 left", process.out)
        self.assertIn("1 status file of Merlin's did not read", process.err)
        self.assertIn("1 task is recorded as running", process.err)
        self.wflow("resume", tree.workspace, "-j", "2", code=OK)
        self.assertEqual(self.ran(), sorted(self.names() + ["sim/1/1", "sim/1/3", "sim/2/1"]))

    def test_without_samples_and_parameters(self):
        tree = MerlinTree(self.output, [Step("one", self.say("one")), Step("two", self.say("two"), ["one"])]).run(1)
        self.assertEqual(self.adopt(tree), self.counts(done=1, left=1))
        self.wflow("resume", tree.workspace, code=OK)
        self.assertEqual(self.ran(), ["one", "two"])

    def test_converted_afterwards(self):
        """A study with one step more: what Merlin simulated becomes training data, and nothing is simulated again."""
        tree = self.tree([Step("sim", f"{self.say('$(MERLIN_SAMPLE_ID)')}\nprintf 'aaaabbbbcccc%04d' $(X) > u.raw", sampled=True)],
                         parameters={}, samples=range(6), fan=4).run()
        study = json.loads((tree.info / "study.expanded.yaml").read_text())
        study["study"].append({"name": "shards", "description": "d", "convert": {
            "from": "sim", "file": "u.raw", "format": "raw", "shape": [4], "raw": {"dtype": "int32"}, "targets": ["X"],
            "shard_samples": 3, "split": {"train": 4, "validation": 1, "test": 1}}})
        extended = self.study(json.dumps(study), name="extended.yaml")
        counts = self.adopt(tree, "--study", extended)
        self.assertEqual((counts["done"], counts["failed"]), (6, 0))
        self.wflow("resume", tree.workspace, "-j", "2", code=OK)
        self.assertEqual(self.ran(), [str(i) for i in range(6)])
        [manifest] = (tree.workspace / "shards").rglob("manifest.json")
        self.wflow("verify", manifest.parent, program="wflow-convert", code=OK)
        self.assertEqual(self.wflow("tasks", tree.workspace, "--state", "failed").err, "")

    def test_refused(self):
        nothing = MerlinTree(self.output, [Step("one", "true")], stamp="20250901-000000")
        shutil.rmtree(nothing.info)
        self.refused(nothing, "is no workspace of Merlin (it has no merlin_info/) or Maestro")
        twice = MerlinTree(self.output, [Step("one", "true")], stamp="20250901-000001")
        (twice.info / "b.expanded.yaml").write_text("{}")
        self.refused(twice, "has 2 *.expanded.yaml, and one was expected; name the study with --study")
        (twice.info / "b.expanded.yaml").unlink()
        (twice.info / "study.expanded.yaml").unlink()
        self.refused(twice, "has no *.expanded.yaml")
        moved = self.tree(stamp="20250901-000002").run()
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        old, moved.workspace = moved.workspace, elsewhere / moved.workspace.name
        shutil.move(old, moved.workspace)
        self.refused(moved, f"was made as {old}, which")
        gone = self.tree(stamp="20250901-000003").run()
        (gone.info / "samples.csv").unlink()
        self.refused(gone, "samples.csv are gone")
        renamed = self.tree(stamp="20250901-000004").run()
        study = json.loads((renamed.info / "study.expanded.yaml").read_text())
        study["study"].pop(2)
        self.refused(renamed, "collect holds tasks of Merlin's, and the study", "--study",
                     self.study(json.dumps(study), name="less.yaml"))
        broken = self.tree(stamp="20250901-000005").run()
        (broken.info / "study.expanded.yaml").write_text("study: 3\n")
        self.adopt(broken, code=SPEC)
        fine = self.tree(stamp="20250901-000006").run()
        self.adopt(fine)
        self.assertIn("is a campaign already; continue it with wflow resume",
                      self.wflow("adopt", fine.workspace, code=USAGE).err)
        self.assertIn("there is no directory", self.wflow("adopt", self.folder / "none", code=USAGE).err)

    def test_a_killed_adoption_leaves_no_campaign(self):
        tree = self.tree().run()
        (tree.workspace / ".wflow.adopting" / ".wflow").mkdir(parents=True)
        (tree.workspace / ".wflow.adopting" / ".wflow" / "campaign.db").write_text("half")
        self.assertIn("make it a campaign with: wflow adopt", self.wflow("status", tree.workspace, code=USAGE).err)
        self.wflow("adopt", tree.workspace)
        self.assertFalse((tree.workspace / ".wflow.adopting").exists())
        self.assertEqual(self.status(tree)["state"], "finished")


class AdoptMaestro(AdoptTest):
    def steps(self, fails="false"):
        return [Step("sim", f"{self.say('sim/$(P)')}; if {fails}; then exit 3; fi", uses=["P"]),
                Step("post", self.say("post/$(P)"), ["sim"], ["P"]), Step("collect", self.say("collect"), ["post_*"])]

    def tree(self, steps=None, **options):
        return MaestroTree(self.output, steps or self.steps(), **{"parameters": {"P": [1, 2, 3]}, **options})

    NAMES = sorted([f"{s}/{p}" for s in ("sim", "post") for p in (1, 2, 3)] + ["collect"])

    def test_half_done(self):
        for version in MaestroTree.HEADERS:
            for most in (0, 2, 5, 7):
                with self.subTest(version=version, most=most):
                    self.log.unlink(missing_ok=True)
                    tree = self.tree(version=version, stamp=f"20250901-{version[-2:].replace('.', '0')}{most:04}").run(most)
                    self.assertEqual(self.adopt(tree), self.counts(done=most, left=7 - most))
                    self.wflow("resume", tree.workspace, "-j", "2", code=OK)
                    self.assertEqual(self.ran(), self.NAMES)

    def test_failures(self):
        cure = self.folder / "cure"
        tree = self.tree(self.steps(fails=f"[ $(P) = 2 -a ! -e {cure} ]")).run()
        self.assertEqual(self.adopt(tree), self.counts(done=4, failed=1, skipped=2))
        self.assertEqual(self.status(tree)["state"], "finished with failures")
        self.wflow("resume", tree.workspace, code=TASKS_FAILED)
        cure.touch()
        self.wflow("retry", tree.workspace, "-j", "2", code=OK)
        self.assertEqual(self.ran(), sorted(self.NAMES + ["sim/2"]))

    def test_no_status_yet(self):
        tree = self.tree()
        self.assertEqual(self.adopt(tree), self.counts(left=7))

    def test_refused(self):
        hashed = self.tree(stamp="20250901-000000").run()
        status = hashed.workspace / "status.csv"
        status.write_text(status.read_text().replace("sim/P.1", "sim/0a1b2c3d"))
        self.refused(hashed, "a workspace of maestro run --hashws can't be adopted")
        generated = self.tree(stamp="20250901-000001").run()
        status = generated.workspace / "status.csv"
        status.write_text(status.read_text().replace("sim_P.1", "sim_P.4"))
        self.refused(generated, "has the step 'sim_P.4', which the study")
        rooted = self.tree([Step("one", "cat $(SPECROOT)/x")], parameters={}, stamp="20250901-000002")
        self.refused(rooted, "uses $(SPECROOT), which Maestro does not record")
        copy = self.study((rooted.workspace / "study.yaml").read_text(), name="one.yaml")
        self.assertEqual(self.adopt(rooted, "--study", copy), self.counts(left=1))
        strange = self.tree(stamp="20250901-000003").run()
        (strange.workspace / "status.csv").write_text("nothing\n")
        self.refused(strange, "is no status file of Maestro's", code=4)


if __name__ == "__main__":
    unittest.main()
