# SPDX-License-Identifier: Apache-2.0
"""packaging/: the recipes name what the tree has. Nothing is built here: docs/install.md says how far they were tried."""

import re
import subprocess
import sys
import types
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"

# CMake's names, and Spack's.
SPACK = {"CAIRO": "cairo", "CLI11": "cli11", "FFTW3F": "fftw", "fmt": "fmt", "GSL": "gsl", "HDF5": "hdf5", "LIBDEFLATE": "libdeflate",
         "LIBPNG": "libpng", "LIBZIP": "libzip", "MPI": "openmpi", "NCURSES": "ncurses", "NETCDF": "netcdf-c", "nlohmann_json": "nlohmann-json",
         "RE2": "re2", "SODIUM": "libsodium", "spdlog": "spdlog", "SQLITE3": "sqlite", "SQLiteCpp": "sqlitecpp", "Torch": "py-torch",
         "UTF8PROC": "utf8proc", "XXHASH": "xxhash", "yaml-cpp": "yaml-cpp", "ZLIB": "zlib-api", "ZMQ": "libzmq"}
OF_CMAKE = {"Threads", "PkgConfig", "OpenMP", "GTest", "Python3"}
SECOND_MPI = {"MPICH"}  # of an archive; a site's installation has one
TOOLS = {"c", "cxx", "cmake", "ninja", "pkgconfig"}
FOUND_OTHERWISE = {"cppzmq", "flatbuffers", "msgpack-c", "onednn", "openblas"}  # headers alone, or libraries that find_library() looks for


def found_by_cmake():
    names = set()
    for path in [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake"), *ROOT.glob("[a-z]*/**/CMakeLists.txt")]:
        if "build" not in path.relative_to(ROOT).parts:
            names.update(re.findall(r"^\s*(?:find_package|pkg_check_modules)\((\S+)", path.read_text(), re.MULTILINE))
    return names - OF_CMAKE - SECOND_MPI


def spack_recipe():
    """The recipe's class, and the calls of its directives."""
    calls = []
    stub = types.ModuleType("spack.package")
    for name in ("license", "version", "variant", "depends_on", "conflicts"):
        setattr(stub, name, lambda *words, _name=name, **keys: calls.append((_name, words, keys)))
    stub.CMakePackage = type("CMakePackage", (), {"define": lambda self, key, value: (key, value),
                                                  "define_from_variant": lambda self, key, variant: (key, variant)})
    sys.modules["spack"], sys.modules["spack.package"] = types.ModuleType("spack"), stub
    space = {}
    exec(compile((PACKAGING / "spack/packages/wflow/package.py").read_text(), "package.py", "exec"), space)
    return space["Wflow"], calls


def commands(file, keyword=""):
    """The lines that run scripts of this tree."""
    lines = [line.strip().removeprefix(keyword).strip() for line in (PACKAGING / file).read_text().splitlines()]
    return [line for line in lines if line.startswith("scripts/")]


class Recipes(unittest.TestCase):
    def test_spack_depends_on_what_cmake_looks_for(self):
        recipe, calls = spack_recipe()
        given = {re.match(r"[a-z0-9-]+", words[0])[0]: keys for name, words, keys in calls if name == "depends_on"}
        found = found_by_cmake()
        self.assertEqual(found - set(SPACK), set(), "name them in this test, and in packaging/spack")
        self.assertEqual({SPACK[name] for name in found} - set(given), set(), "missing in packaging/spack")
        self.assertEqual(set(given) - {SPACK[name] for name in found} - TOOLS - FOUND_OTHERWISE, set(), "CMake looks for none of them")
        self.assertEqual({name for name, keys in given.items() if keys.get("when") == "+trainer"}, {"openmpi", "py-torch", "onednn", "openblas"})
        self.assertIn(("WFLOW_TRAINER", "trainer"), recipe().cmake_args())
        self.assertIn("WFLOW_TRAINER", (ROOT / "CMakeLists.txt").read_text() + (ROOT / "cmake/WflowSettings.cmake").read_text())
        least = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)\)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertIn(f"cmake@{least}:", [words[0] for name, words, _ in calls if name == "depends_on"])

    def test_images_run_commands_that_there_are(self):
        of_containers, of_apptainer = commands("Containerfile", "RUN"), commands("wflow.def")
        self.assertEqual(of_containers, of_apptainer)
        self.assertEqual([line.split()[0] for line in of_containers], ["scripts/install-deps", "scripts/build", "scripts/package"])
        listed = subprocess.run([*of_containers[0].split(), "--dry-run"], cwd=ROOT, capture_output=True, text=True)
        self.assertIn(listed.returncode, (0, 5), listed.stderr)  # 5: no apt-get here
        done = subprocess.run([*of_containers[2].split(), "--help"], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("[build/packages]", done.stdout)
        for file in ("Containerfile", "wflow.def"):
            self.assertIn("/src/build/packages", (PACKAGING / file).read_text())
        presets = (ROOT / "CMakePresets.json").read_text()
        self.assertIn(f'"{of_containers[1].split()[1]}"', presets)


if __name__ == "__main__":
    unittest.main()
