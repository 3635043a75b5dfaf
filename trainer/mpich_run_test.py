#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A wflow-train of Open MPI that MPICH's mpirun starts becomes wflow-train-mpich, which gives the bits that Open MPI gives."""

import subprocess

import train_run_test


class Mpich(train_run_test.TrainRun):
    def test_wflow_train_follows_its_launcher(self):
        self.train(self.config("mpich", ranks=2, epochs=2), 2)
        self.assertIn("MPICH", self.result("mpich")["versions"]["mpi"])
        train = [train_run_test.PROGRAMS.train, self.config("open_mpi", ranks=2, epochs=2)]
        subprocess.run(["mpirun.openmpi", "-n", "2", "--oversubscribe", *train], check=True, capture_output=True)
        self.assertIn("Open MPI", self.result("open_mpi")["versions"]["mpi"])
        self.assertEqual(self.weights("mpich")[0], self.weights("open_mpi")[0])

    def test_killed_and_resumed(self):
        self.train(self.config("whole", ranks=2), 2)
        path = self.config("killed", ranks=2)
        self.kill_after_step(path, 5, 2)
        self.train(path, 2)
        self.assertEqual(self.weights("killed")[0], self.weights("whole")[0])

    def test_one_rank_under_srun(self):
        # srun sets these for any program where PMI is the site's default.
        self.train(self.config("single", epochs=1), env={"PMI_RANK": "0", "PMI_SIZE": "1"})
        self.assertIn("Open MPI", self.result("single")["versions"]["mpi"])

    def test_one_rank_needs_neither_library(self):
        self.train(self.config("alone", epochs=1))
        self.assertEqual(self.result("alone")["ranks"], 1)


if __name__ == "__main__":
    train_run_test.run_tests()
