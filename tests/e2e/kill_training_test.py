# SPDX-License-Identifier: Apache-2.0
"""SIGKILL in the middle of training: it goes on from its last checkpoint, to the weights of a run that was left alone."""

import json
import os
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

from wflow_test import BIN, OK, CampaignTest, quickstart, read_text

UNIVERSES = 12
EPOCHS = 25
STEPS = 2 * EPOCHS  # 8 universes, 4 a step
MPIRUN = shutil.which("mpirun.openmpi") or shutil.which("mpirun")


class KillTraining(CampaignTest):
    def setUp(self):
        super().setUp()
        self.mpi_jobs = set()
        study = quickstart(UNIVERSES, EPOCHS, checkpoint_steps=1) + "    max_retries: 2\n"
        self.run_ = self.start("run", self.study(study), "-j", "2")
        self.directory = self.wait_for_campaign(self.run_)
        self.train = self.directory / "train"
        self.wait(lambda: self.last_step() >= 5, "the training is under way", self.run_)

    def last_step(self):
        return max((int(p.stem.split("-")[1]) for p in (self.train / "checkpoints").glob("step-*.wfck")), default=0)

    def left_by_mpi(self):
        """Open MPI's sessions in this test's TMPDIR, and the segments of shared memory of all that it has seen: /dev/shm also has
        those of other tests."""
        sessions = list(Path(self.environment["TMPDIR"]).glob("ompi.*/pid.*"))
        for contact in (session / "contact.txt" for session in sessions):
            if contact.exists():
                self.mpi_jobs.add(int(contact.read_text().split(".")[0]) >> 16)
        segments = [path.name for path in Path("/dev/shm").glob("vader_segment.*")
                    if int(path.name.split(".")[-2], 16) >> 16 in self.mpi_jobs]
        return [session.name for session in sessions] + segments

    def assert_in_the_middle(self):
        self.assertFalse((self.train / "model.pt").exists(), "the training was over before the test could disturb it")

    def result(self):
        return json.loads((self.train / "result.json").read_text())

    def resume(self):
        self.wflow("resume", self.directory, "-j", "2", code=OK)
        self.assertEqual(self.status()["state"], "finished")
        self.assert_nothing_half_written()

    def assert_continued(self, segments):
        self.assertEqual(self.result()["segments"], segments)
        self.assertEqual(self.result()["steps"], STEPS)
        said = read_text(self.train / "train.out")
        self.assertEqual(said.count("continued from epoch"), segments - 1, said)
        # Status tells of it too.
        self.assertEqual(len([text for text in self.history("note") if "continued from epoch" in text]), segments - 1)

    def assert_equal_to_an_undisturbed_run(self):
        output = self.folder / "reference"
        lines = (self.train / "train.yaml").read_text().splitlines()
        lines = [f'output: "{output}"' if line.startswith("output:") else line for line in lines]
        config = self.study("\n".join(lines) + "\n", "reference.yaml")
        command = [MPIRUN, "-n", "2", "--oversubscribe", "--bind-to", "none", BIN / "wflow-train", config]
        done = subprocess.run([str(w) for w in command], env=self.environment, capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assert_same_weights(self.train / "model.pt", output / "model.pt")
        self.assertEqual((self.train / "predictions.csv").read_text(), (output / "predictions.csv").read_text())

    def test_coordinator_only(self):
        # The worker and the training outlive it: nothing is interrupted.
        os.kill(self.run_.pid, signal.SIGKILL)
        self.run_.wait()
        self.assert_in_the_middle()
        self.assertEqual(self.status()["state"], "interrupted")
        self.resume()
        self.assert_continued(segments=1)
        self.assertTrue(any("came back" in text for text in self.history("worker")), self.history())

    def test_everything(self):
        everything = self.kill_everything()
        self.run_.wait()
        self.wait_until_gone(everything)
        self.assert_in_the_middle()
        before = self.last_step()
        self.assertEqual(self.status()["state"], "interrupted")
        self.assertTrue(self.left_by_mpi(), "Open MPI leaves nothing behind any more: remove_left_mpi_sessions() has no use")
        self.resume()
        self.assertEqual(self.left_by_mpi(), [])
        self.assert_continued(segments=2)
        self.assertGreaterEqual(before, 5)
        self.assertEqual([len(self.history(kind)) for kind in ("started", "resumed", "end")], [1, 1, 1])
        losses = [m for m in self.status()["metrics"] if m["name"] == "train_loss"]
        self.assertEqual([m["epoch"] for m in losses], list(range(1, EPOCHS + 1)))
        self.assert_equal_to_an_undisturbed_run()

    def test_coordinator_and_mpirun(self):
        os.killpg(self.run_.pid, signal.SIGKILL)
        self.run_.wait()
        self.kill(self.processes("wflow-train"))
        self.assert_in_the_middle()
        self.resume()
        self.assert_continued(segments=2)

    def test_mpirun_alone(self):
        # Like the kernel when memory is short.
        mpirun = [pid for pid in self.processes("wflow-train") if "mpirun" in read_text(f"/proc/{pid}/cmdline")]
        self.assertEqual(len(mpirun), 1)
        self.assertTrue(self.left_by_mpi())
        os.kill(mpirun[0], signal.SIGKILL)
        self.assertEqual(self.run_.wait(), OK, self.run_.out + self.run_.err)
        self.assert_continued(segments=2)
        self.assertEqual(self.left_by_mpi(), [])

    def test_one_rank(self):
        # Open MPI ends the others; the step's max_retries lets it go on in the same campaign.
        ranks = [pid for pid in self.processes("wflow-train") if "mpirun" not in read_text(f"/proc/{pid}/cmdline")]
        self.assertEqual(len(ranks), 2)
        os.kill(ranks[-1], signal.SIGKILL)
        self.assertEqual(self.run_.wait(), OK, self.run_.out + self.run_.err)
        self.assert_continued(segments=2)
        self.assertEqual(len(self.history("retry")), 1, self.history())
        self.assertRegex(self.history("retry")[0], r"^train ended with exit code \d+ and runs again$")
        self.assert_equal_to_an_undisturbed_run()


class WithoutTemporaryFolder(CampaignTest):
    def test_one_rank_trains(self):
        self.environment["TMPDIR"] = "/dev/null"
        study = quickstart(UNIVERSES, 2).replace("ranks: $(RANKS)", "ranks: 1")
        self.wflow("run", self.study(study), "-j", "2", code=OK)
        self.assertTrue((self.campaign() / "train/model.pt").exists())


if __name__ == "__main__":
    unittest.main()
