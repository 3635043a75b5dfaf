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
OTHER_MPI = {"mpich"}  # in place of openmpi
TOOLS = {"c", "cxx", "cmake", "ninja", "pkgconfig"}
FOUND_OTHERWISE = {"cppzmq", "flatbuffers", "msgpack-c", "onednn", "openblas"}  # headers alone, or libraries that find_library() looks for


def dependencies():
    """Name: least version, of cmake/WflowDependencies.cmake. A library of which the recipe wants any version has None."""
    text = (ROOT / "cmake" / "WflowDependencies.cmake").read_text()
    lists = re.findall(r"^set\(WFLOW_OF_\w+\n(.*?)\)$", text, re.MULTILINE | re.DOTALL)
    entries = [entry.split() for part in lists for entry in re.findall(r'"([^"]+)"', part)]
    versions = {words[0]: re.search(r"[\d.]+$", words[1]) if ">=" in words[1] or words[1][0].isdigit() else None for words in entries}
    return {name: found and found[0] for name, found in versions.items()}


def found_by_cmake():
    """The names that some CMakeLists.txt looks for."""
    names = set()
    for path in [ROOT / "cmake/WflowSettings.cmake", *ROOT.glob("[a-z]*/**/CMakeLists.txt")]:
        if "build" not in path.relative_to(ROOT).parts:
            for words in re.findall(r"^\s*wflow_find\(([^)]*)\)", path.read_text(), re.MULTILINE):
                names.update(words.split())
    return names


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
        given = {re.match(r"[a-z0-9-]+", words[0])[0]: (words[0], keys) for name, words, keys in calls if name == "depends_on"}
        least = dependencies()
        self.assertEqual(found_by_cmake(), set(least), "cmake/WflowDependencies.cmake and what wflow_find() is called for")
        self.assertEqual(set(least) - set(SPACK), set(), "name them in this test, and in packaging/spack")
        self.assertEqual(set(given) - set(SPACK.values()) - TOOLS - FOUND_OTHERWISE - OTHER_MPI, set(), "CMake looks for none of them")
        for name, version in least.items():
            self.assertIn(SPACK[name], given, "missing in packaging/spack")
            if version:
                self.assertTrue(given[SPACK[name]][0].startswith(f"{SPACK[name]}@{version}:"), f"{given[SPACK[name]][0]} is not from {version} on")
        conditions = {keys["when"]: {name for name, (_, other) in given.items() if other.get("when") == keys["when"]}
                      for _, keys in given.values() if "when" in keys}
        self.assertEqual(conditions["+trainer"], {"onednn"})
        self.assertEqual(conditions["+torch"], {"py-torch", "openblas"})
        settings = (ROOT / "cmake/WflowSettings.cmake").read_text() + (ROOT / "cmake/WflowMpi.cmake").read_text()
        variants = {words[0] for name, words, _ in calls if name == "variant"}
        self.assertEqual({key: variant for key, variant in recipe().cmake_args() if variant}, {f"WFLOW_{name.upper()}": name for name in variants})
        for variant in variants:
            self.assertIn(f"WFLOW_{variant.upper()} ", settings)
        least = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)\)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertIn(f"cmake@{least}:", [words[0] for name, words, _ in calls if name == "depends_on"])

    def test_the_page_has_the_least_versions(self):
        page = (ROOT / "docs" / "install.md").read_text()
        for name, version in dependencies().items():
            name = {"Torch": "libtorch", "ZLIB": "zlib"}.get(name, SPACK[name])
            self.assertRegex(page, rf"(?m)^\| {re.escape(name)} \| {re.escape(version or 'any')} \|")

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
