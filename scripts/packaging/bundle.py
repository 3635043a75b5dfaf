# SPDX-License-Identifier: Apache-2.0
"""Makes an installed folder portable: copies into PREFIX/lib what its programs load and gives every file a relative run path."""
import os
import shutil
import subprocess
from pathlib import Path

import elf

PLUGINS = Path("/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3")
# wflow-train-mpich loads the site's, whatever its name (base/trainer_mpi.h).
OF_THE_SITE = "libmpich.so.12"
PMIX = Path("/usr/lib/x86_64-linux-gnu/pmix2")
# Open MPI between cores (vader) and over TCP. The drivers of fast networks are the site's: they fit its kernel and its cards. What
# serves OpenSHMEM, MPI-IO, checkpoints, monitoring and other batch systems is not used either.
LEFT_OUT = ("btl_ofi", "btl_openib", "mtl_", "pml_ucx", "osc_ucx", "spml_", "atomic_", "memheap_", "scoll_", "sshmem_", "monitoring",
            "io_", "fbtl_", "fcoll_", "fs_", "sharedfp_", "reachable_netlink", "ras_simulator", "pmix_flux", "vprotocol_", "crs_", "pml_cm")


def origin(path, folder):
    """The folder in a run path of the file."""
    relative = os.path.relpath(folder, path.parent)
    return "$ORIGIN" if relative == "." else f"$ORIGIN/{relative}"


class Bundle:
    """The libraries of PREFIX/lib. `origin` keeps where each came from, for the table of licences."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.libraries = prefix / "lib"
        self.open_mpi = self.libraries / "openmpi"
        self.below_mpi = self.open_mpi / "deps"
        self.glibc = self.libraries / "glibc"
        self.origin = {}
        self.elves = {}

    def add_folder(self):
        for path in sorted((self.prefix / "bin").iterdir()):
            if elf.is_elf(path):
                (self.prefix / "libexec").mkdir(exist_ok=True)
                path.rename(self.prefix / "libexec" / path.name)
        for path in sorted(self.prefix.rglob("*")):
            if elf.is_elf(path) and path not in self.elves:
                self.add_needs(path, elf.read(path))

    def copy(self, source, target):
        """Copies a file of this machine, and what it needs."""
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755)
        self.origin[target] = Path(source).resolve()
        self.add_needs(target, elf.read(target))

    def add_needs(self, path, file):
        """A needed library that defines no symbol of the file is left out: Debian's libtorch names OpenCV and FFmpeg, which bring 230
        libraries, and calls nothing of them."""
        self.elves[path] = file
        unused = []
        for name in file.needed:
            if name in elf.GLIBC:
                continue
            if name == OF_THE_SITE:
                unused.append(name)
                continue
            if name not in elf.located():
                raise SystemExit(f"package: {path} needs {name}, which this machine does not have")
            if not file.undefined & self.symbols(name):
                unused.append(name)
            elif not any(folder / name in self.elves for folder in self.folders(path)):
                self.copy(elf.located()[name], self.folders(path)[0] / name)
        # RPATH, not RUNPATH: an older library in LD_LIBRARY_PATH, such as a module's libstdc++, must not come first.
        run_path = ":".join(origin(path, folder) for folder in self.folders(path))
        removals = [word for name in unused for word in ("--remove-needed", name)]
        if removals:
            subprocess.run(["patchelf", *removals, path], check=True)
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", run_path, path], check=True)
        file.needed = [name for name in file.needed if name not in unused]
        file.run_path = run_path.split(":")

    def folders(self, path):
        """Where a file looks for libraries. Those of Open MPI have a folder of their own: wflow-train's run path counts for a preloaded
        library, too, and a libmpi of the site needs the site's libpmix."""
        of_mpi = path.is_relative_to(self.open_mpi) or path == self.libraries / "libmpi.so.40"
        return [self.below_mpi, self.libraries] if of_mpi else [self.libraries]

    _symbols = {}

    def symbols(self, name):
        if name not in self._symbols:
            self._symbols[name] = elf.read(elf.located()[name]).defined
        return self._symbols[name]

    def add_open_mpi(self):
        """PREFIX/lib/openmpi, as Open MPI's variables of scripts/packaging/mpirun name its folders."""
        root = self.open_mpi
        for name in ("orterun", "orted"):
            self.copy(f"/usr/bin/{name}", root / "libexec" / name)
        (root / "bin").mkdir()
        shutil.copy(Path(__file__).parent / "mpirun", root / "bin" / "mpirun")
        for plugin in sorted(PLUGINS.glob("mca_*.so")):
            if not any(part in plugin.name.removeprefix("mca_") for part in LEFT_OUT):
                self.copy(plugin, root / "lib" / "openmpi3" / plugin.name)
        for plugin in sorted((PMIX / "lib" / "pmix").glob("*.so")):
            self.copy(plugin, root / "lib" / "pmix" / plugin.name)
        shutil.copytree("/usr/share/openmpi", root / "share" / "openmpi", symlinks=False, dirs_exist_ok=True)
        shutil.copytree(PMIX / "share" / "pmix", root / "share" / "pmix", dirs_exist_ok=True)
        (root / "etc").mkdir(exist_ok=True)

    def add_glibc(self):
        """The glibc of this machine, for machines with an older one or none, and what chooses between them in place of each program.
        Returns the least glibc of all files."""
        least = self.check()
        for name in sorted(elf.GLIBC & elf.located().keys()):
            target = self.glibc / name
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(elf.located()[name], target)
            target.chmod(0o755)
            self.origin[target] = elf.located()[name].resolve()
        launcher = self.prefix / "launcher"
        version = "GLIBC_" + ".".join(map(str, least))
        subprocess.run(["musl-gcc", "-static", "-Os", "-s", f'-DGLIBC="{version}"', "-o", launcher, Path(__file__).parent / "launcher.c"], check=True)
        for folder in (self.prefix, self.open_mpi):
            for program in sorted((folder / "libexec").glob("*")):
                shutil.copy(launcher, folder / "bin" / program.name)
        launcher.unlink()
        return least

    def check(self):
        """The least glibc, or ends with a list of what is missing."""
        inside = {path.name: file for path, file in self.elves.items() if path.parent in (self.libraries, self.below_mpi)}
        least, problems = elf.check({path.relative_to(self.prefix): file for path, file in self.elves.items()}, inside)
        if problems:
            raise SystemExit("package: " + "\npackage: ".join(problems[:20]))
        return least
