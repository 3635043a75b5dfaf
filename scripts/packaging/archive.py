# SPDX-License-Identifier: Apache-2.0
"""The portable archive: an installation with its libraries."""
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import elf
import licences
from bundle import Bundle

ROOT = Path(__file__).resolve().parents[2]


def cached(build, name, default=None):
    """A value of CMake's cache. Without a default, it must be there."""
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.partition("=")[2]
    if default is not None:
        return default
    raise SystemExit(f"package: {build}/CMakeCache.txt has no {name}; configure it anew: scripts/build release")


def version_of(build):
    return cached(build, "CMAKE_PROJECT_VERSION")


def install(build, prefix):
    """Installs the build below `prefix`, stripped, with the libraries that it loads. Returns their bundle, and the glibc from which on the
    machine's own is used."""
    subprocess.run(["cmake", "--install", build, "--prefix", prefix, "--strip"], stdout=subprocess.DEVNULL, check=True)
    bundle = Bundle(prefix)
    bundle.add_folder()
    if (prefix / "libexec" / "wflow-train").exists():
        if cached(build, "WFLOW_MPI_LIBRARY") != "openmpi":
            raise SystemExit(f"package: {build} is a build for MPICH, and archives and wheels bring Open MPI; configure it with -DWFLOW_MPI=openmpi")
        bundle.add_open_mpi()
    require_fast_blas(bundle)
    return bundle, bundle.add_glibc()


def require_fast_blas(bundle):
    blas = bundle.origin.get(bundle.libraries / "libblas.so.3")
    if blas is not None and "openblas" not in str(blas):
        raise SystemExit(f"package: libblas.so.3 is {blas}, which is slow; choose OpenBLAS: update-alternatives --config libblas.so.3-x86_64-linux-gnu")


def glibc_text(least):
    return ".".join(map(str, least))


def documents(prefix, bundle):
    share = prefix / "share" / "doc" / "wflow"
    shutil.copytree(ROOT / "docs", share / "docs", dirs_exist_ok=True)
    for name in ("README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, share / name)
    return licences.write(bundle.origin, share / "licences")


def megabytes(path):
    return sum(file.lstat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_symlink() or file.is_file()) / 1e6


def pack(folder, target, level):
    """The same folder gives the same bytes: sorted names, one date, no owner."""
    date = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True).stdout.strip() or "0"
    subprocess.run(["tar", "--create", "--file", target, "--directory", folder.parent, "--sort=name", f"--mtime=@{date}", "--owner=0", "--group=0",
                    "--numeric-owner", "--mode=u+rwX,go+rX,go-w", f"--use-compress-program=xz -{level} -T1", folder.name], check=True)


def make(build, output, level=6):
    small = "-small" if cached(build, "WFLOW_TORCH", "ON") == "OFF" else ""  # without libtorch
    name = f"wflow-{version_of(build)}{small}-{os.uname().machine}"
    with tempfile.TemporaryDirectory(dir=output) as scratch:
        prefix = Path(scratch) / name
        bundle, least = install(build, prefix)
        packages = documents(prefix, bundle)
        (prefix / "GLIBC").write_text(glibc_text(least) + "\n")
        target = output / f"{name}.tar.xz"
        pack(prefix, target, level)
        print(f"{target}: {megabytes(target):.1f} MB, unpacked {megabytes(prefix):.1f} MB; uses the machine's glibc from {glibc_text(least)} on, else its own; "
              f"{len(bundle.origin)} files of {packages} Debian packages inside")


def check(folder):
    files = {path: elf.read(path) for path in sorted(folder.rglob("*")) if elf.is_elf(path) and path.parent.name != "glibc"}
    if not files:
        raise SystemExit(f"package: no program or library below {folder}")
    least, problems = elf.check(files, {path.name: file for path, file in files.items()})
    print(f"{len(files)} programs and libraries, glibc {glibc_text(least)}")
    if problems:
        raise SystemExit("package: " + "\npackage: ".join(problems))
