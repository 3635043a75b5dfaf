# SPDX-License-Identifier: Apache-2.0
"""An installed wflow: programs, manual pages and examples, for a user who may not write where it lies."""

import os
import shutil
import stat
import subprocess
import unittest

from wflow_test import BIN, OK, SOURCE, CampaignTest

NOBODY = 65534
PROGRAMS = {"wflow", "wflow-convert", "wflow-train", "wflow-plugin-host", "wflow-plot", "wflow-cola", "cosmoflow-baseline", "cosmoflow-whole-box"}


@unittest.skipUnless(os.geteuid() == 0, "needs root, to become another user")
class Install(CampaignTest):
    def setUp(self):
        super().setUp()
        self.prefix = self.folder / "prefix"
        done = subprocess.run(["cmake", "--install", BIN.parent, "--prefix", self.prefix], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.home = self.folder / "home"
        self.home.mkdir()
        os.chown(self.home, NOBODY, NOBODY)
        self.folder.chmod(0o755)
        (self.folder / "t").chmod(0o1777)
        self.environment.update(PATH=f"{self.prefix}/bin:/usr/bin:/bin", HOME=str(self.home))

    def as_user(self, *words, code=OK):
        """By somebody who may write in `home` only, and nowhere near the source tree."""
        done = subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *map(str, words)],
                              cwd=self.home, env=self.environment, capture_output=True, text=True, timeout=900)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        return done.stdout

    def example(self, name):
        return self.prefix / "share" / "wflow" / "examples" / name

    def test_programs_and_pages(self):
        of_second_mpi = {path.name for path in BIN.glob("wflow-train-mpich")}
        self.assertEqual({path.name for path in (self.prefix / "bin").iterdir()}, PROGRAMS | of_second_mpi)
        for path in self.prefix.rglob("*"):
            self.assertFalse(path.stat().st_mode & stat.S_IWOTH, path)
        page = self.as_user("man", "-w", "wflow").strip()
        self.assertEqual(page, str(self.prefix / "share/man/man1/wflow.1"))
        self.assertTrue((self.prefix / "share/man/man1/wflow-run.1").exists())
        self.assertTrue((self.prefix / "include/wflow_plugin.h").exists())
        for completion in ("bash-completion/completions/wflow", "zsh/site-functions/_wflow", "fish/vendor_completions.d/wflow.fish"):
            self.assertTrue((self.prefix / "share" / completion).exists(), completion)

        def report_in_time():
            report = self.as_user("wflow", "doctor")
            return None if " has not ended within " in report else report

        # A busy machine may take longer to load libtorch than the doctor waits.
        report = self.wait(report_in_time, "a doctor that is not held up")
        for name in ("wflow-convert", "wflow-train", "libtorch", "wflow-plugin-host", "manual pages"):
            self.assertRegex(report, rf"(?m)^ok +{name} ")

    def test_compressed_pages(self):
        subprocess.run(["gzip", self.prefix / "share/man/man1/wflow.1"], check=True)
        self.assertRegex(self.as_user("wflow", "doctor"), r"(?m)^ok +manual pages ")

    def test_what_doctor_misses(self):
        (self.prefix / "bin/wflow-plugin-host").unlink()
        shutil.rmtree(self.prefix / "share/man")
        (self.prefix / "lib/wflow/libwflow_torch.so").unlink()
        report = self.as_user("wflow", "doctor", code=5)
        self.assertRegex(report, r"(?m)^missing +libtorch +\S+/wflow-train --check-libtorch fails: wflow-train: can't load libtorch: \S+/libwflow_torch.so: ")
        self.assertRegex(report, r"(?m)^missing +wflow-plugin-host ")
        self.assertRegex(report, r"(?m)^note +manual pages +no wflow.1 in ")
        out = self.as_user("wflow", "run", self.example("jag_like/jag_like.yaml"), "--vars", "N_SAMPLES=100", code=5)
        self.assertEqual(out, "")
        slow = self.prefix / "bin/wflow-convert"
        slow.write_text("#!/bin/sh\necho wflow-convert 0.0\nexec sleep 1000\n")
        self.assertRegex(self.as_user("wflow", "doctor", code=5), r"(?m)^note +wflow-convert +/\S+ --version has not ended within 10 s")

    def test_jag_like(self):
        out = self.as_user("wflow", "run", self.example("jag_like/jag_like.yaml"), "--vars", "N_SAMPLES=5000")
        self.assertRegex(out, r"implode .* 5,000/5,000")
        self.assertTrue(list(self.home.glob("jag_like_*/data/manifest.json")))

    def test_jag_like_compiled_by_the_user(self):
        # The library beside the study wins.
        shutil.copytree(self.example("jag_like"), self.home / "mine")
        for path in [self.home / "mine", *(self.home / "mine").iterdir()]:
            os.chown(path, NOBODY, NOBODY)
        library = self.home / "mine" / "libimplosion.so"
        self.as_user("cc", "-O2", "-shared", "-fPIC", f"-I{self.prefix}/include", "mine/implosion.c", "-o", library, "-lm")
        self.as_user("wflow", "run", "mine/jag_like.yaml", "--vars", "N_SAMPLES=100")
        config = next(self.home.glob("jag_like_*/implode/.wflow-plugin/config.yaml")).read_text()
        self.assertIn(str(library), config)

    def test_active_learning(self):
        self.as_user("wflow", "run", self.example("active_learning/active_learning.yaml"))
        self.assertIn("converged", self.as_user("wflow", "status", next(self.home.glob("campaigns/active_learning_*"))))

    def test_cosmoflow(self):
        numbers = {"UNIVERSES": 24, "TRAIN": 16, "VALIDATION": 4, "TEST": 4, "EPOCHS": 2}
        values = [f"{name}={value}" for name, value in numbers.items()]
        self.as_user("wflow", "run", self.example("cosmoflow/quickstart.yaml"), "--vars", *values)
        campaign = next(self.home.glob("campaigns/cosmoflow_quickstart_*"))
        table = self.as_user("cosmoflow-baseline", "--data", campaign / "data", "--network", campaign / "train/predictions.csv")
        self.assertRegex(table, r"(?m)^network ")
        for study in ("cosmoflow", "whole_box"):  # an hour of computing each
            self.as_user("wflow", "validate", self.example(f"cosmoflow/{study}.yaml"))


class Configure(CampaignTest):
    def configure(self, *options):
        done = subprocess.run(["cmake", "-S", SOURCE, "-B", self.folder / "build", *options], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-4000:])
        return (self.folder / "build" / "CMakeCache.txt").read_text()

    def test_without_trainer_and_tests(self):
        # A package that is looked for all the same, and needed, would be an error here.
        absent = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("MPI", "Torch", "GTest", "benchmark")]
        cache = self.configure("-DWFLOW_TRAINER=OFF", *absent)
        self.assertNotRegex(cache, r"(?m)^(MPI|Torch|TORCH|GTest|Caffe2)_")
        self.assertIn("CMAKE_BUILD_TYPE:STRING=Release", cache)
        self.assertIn("WFLOW_WERROR:BOOL=OFF", cache)

    def test_without_libtorch(self):
        cache = self.configure("-DWFLOW_TORCH=OFF", "-DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON")
        self.assertNotRegex(cache, r"(?m)^(Torch|TORCH|Caffe2)_")

    def test_without_hdf5(self):
        # Neither what reads the simulations' formats nor what the trainer needs is looked for.
        absent = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("HDF5", "MPI", "Torch", "GTest", "benchmark")]
        cache = self.configure("-DWFLOW_HDF5=OFF", *absent)
        self.assertNotRegex(cache, r"(?m)^(HDF5|NETCDF|LIBZIP|FFTW3F|MPI|Torch)_")


if __name__ == "__main__":
    unittest.main()
