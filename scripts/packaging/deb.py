# SPDX-License-Identifier: Apache-2.0
"""Debian packages of an installed build, for the release of Debian that built it."""
import gzip
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

import elf
from archive import ROOT, cached, version_of

MAINTAINER = "wflow maintainers <wflow@packages.example>"
EXAMPLES = "usr/share/wflow/examples"


@dataclass
class Package:
    name: str
    files: list  # patterns below the staging folder; the first package that claims a file has it
    summary: str
    text: str
    section: str = "science"
    architecture: str = "amd64"
    depends: str = ""
    recommends: str = ""


PACKAGES = [
    Package("wflow-trainer-mpich", ["usr/bin/wflow-train-mpich", "usr/lib/wflow/libwflow_torch_mpich.so"], "trainer of the workflow engine wflow, for MPICH",
            "wflow-train-mpich trains networks on many ranks with MPICH. wflow-train becomes this program where MPICH's mpirun starts it.",
            depends="wflow-trainer (= {version}), mpich"),
    Package("wflow-trainer", ["usr/bin/wflow-train", "usr/lib/wflow/libwflow_torch.so", "usr/share/man/man1/wflow-train.1"], "trainer of the workflow engine wflow",
            "wflow-train trains networks on the data sets that wflow makes of simulations, on one rank or with Open MPI on many.",
            depends="wflow (= {version}), {mpi}{blas}"),
    Package("python3-wflow", ["usr/lib/python3/dist-packages/*", "usr/bin/cosmoflow-baseline", "usr/bin/cosmoflow-whole-box"], "Python package of the workflow engine wflow",
            "Reads the training data, campaigns and models of wflow, with data sets for PyTorch.", section="python", architecture="all",
            depends="python3 (>= 3.9), python3-numpy, python3-h5py (>= 3), wflow (>= {version})", recommends="python3-torch, python3-pandas, python3-zmq"),
    Package("wflow-doc", ["usr/share/doc/wflow-doc/*"], "documentation of the workflow engine wflow",
            "The pages of the documentation as Markdown files.", section="doc", architecture="all"),
    Package("wflow", ["usr/*"], "workflow engine for simulations and training",
            "wflow runs ensembles of simulations from one YAML file, converts their output to training data while they run, and trains networks on it. "
            "It needs no server, and continues after any kill.", depends="python3", recommends="wflow-trainer, man-db"),
]


def stage(build, root):
    """The files at their places in Debian, stripped, and without the run paths of the build machine."""
    subprocess.run(["cmake", "--install", build, "--prefix", root / "usr", "--strip"], stdout=subprocess.DEVNULL, check=True)
    usr = root / "usr"
    packages = usr / "lib" / "python3" / "dist-packages"
    packages.mkdir(parents=True)
    for path in (usr / "share" / "wflow" / "python").iterdir():
        if path.name.startswith("wflow"):
            shutil.move(path, packages / path.name)
    shutil.rmtree(usr / "share" / "wflow" / "python")
    for loader in list(usr.glob("lib/**/libwflow_loader.so")):
        shutil.move(loader, usr / "lib" / "wflow" / loader.name)
    for path in filter(elf.is_elf, usr.rglob("*")):
        subprocess.run(["patchelf", "--remove-rpath", path], check=True)
    for page in usr.glob("share/man/man1/*.1"):
        compress(page.with_name(page.name + ".gz"), page.read_bytes())
        page.unlink()
    shutil.copytree(ROOT / "docs", usr / "share" / "doc" / "wflow-doc" / "docs")
    shutil.copy(ROOT / "README.md", usr / "share" / "doc" / "wflow-doc" / "README.md")


def compress(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file, gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=0) as out:
        out.write(data)


def split(root, package, target):
    """Moves the files of one package from the staging folder."""
    for pattern in package.files:
        for path in sorted(root.glob(pattern + ("*" if pattern.endswith(".1") else ""))):
            for file in [path] if path.is_symlink() or path.is_file() else sorted(path.rglob("*")):
                if file.is_symlink() or file.is_file():
                    to = target / file.relative_to(root)
                    to.parent.mkdir(parents=True, exist_ok=True)
                    shutil.move(file, to)


def shared_libraries(target, scratch):
    """Debian packages of the libraries that the files need."""
    files = [path for path in target.rglob("*") if elf.is_elf(path)]
    if not files:
        return ""
    (scratch / "debian").mkdir(exist_ok=True)
    (scratch / "debian" / "control").write_text("Source: wflow\n\nPackage: wflow\nArchitecture: any\n")
    done = subprocess.run(["dpkg-shlibdeps", "-O", "--warnings=0", *(f"-e{file}" for file in files)], cwd=scratch, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"package: dpkg-shlibdeps: {done.stderr.strip()}")
    return re.search(r"shlibs:Depends=(.*)", done.stdout)[1]


def papers(package, version, date, target):
    folder = target / "usr" / "share" / "doc" / package.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "copyright").write_text(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: wflow\nSource: see the Homepage of the package\n\n"
        "Files: *\nCopyright: 2026 the contributors of wflow\nLicense: Apache-2.0\n"
        " On Debian systems the licence is in /usr/share/common-licenses/Apache-2.0.\n")
    entry = f"wflow ({version}) unstable; urgency=medium\n\n  * CHANGELOG.md of the source tree lists the changes.\n\n -- {MAINTAINER}  {date}\n"
    compress(folder / "changelog.gz", entry.encode())


def control(package, version, depends, size):
    lines = {"Package": package.name, "Source": "wflow", "Version": version, "Architecture": package.architecture, "Maintainer": MAINTAINER,
             "Installed-Size": str(size), "Depends": depends, "Recommends": package.recommends, "Section": package.section, "Priority": "optional",
             "Multi-Arch": "foreign" if package.architecture == "all" else ""}
    if package.name == "wflow":
        lines["Source"] = ""
    text = "".join(f"{key}: {value}\n" for key, value in lines.items() if value)
    words, rows = package.text.split(), [""]
    for word in words:
        if len(rows[-1]) + len(word) > 72:
            rows.append("")
        rows[-1] += " " + word
    return text + f"Description: {package.summary}\n" + "\n".join(rows) + "\n"


def pack(package, values, date, target, output, scratch):
    version = values["version"]
    papers(package, version, date, target)
    depends = ", ".join(filter(None, [shared_libraries(target, scratch), package.depends.format(**values)]))
    files = sorted(path for path in target.rglob("*") if path.is_file() and not path.is_symlink())
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 and not path.name.endswith(".so") else 0o644)
    size = sum(path.stat().st_size for path in files) // 1024 + 1
    debian = target / "DEBIAN"
    debian.mkdir()
    (debian / "control").write_text(control(package, version, depends, size))
    sums = subprocess.run(["md5sum", *(path.relative_to(target) for path in files)], cwd=target, capture_output=True, text=True, check=True).stdout
    (debian / "md5sums").write_text(sums)
    name = output / f"{package.name}_{version}_{package.architecture}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", target, name], stdout=subprocess.DEVNULL, check=True)
    print(f"{name}: {name.stat().st_size / 1e6:.1f} MB, installed {size / 1e3:.1f} MB")


def make(build, output):
    values = {"version": version_of(build), "mpi": "mpich" if cached(build, "WFLOW_MPI_LIBRARY", "openmpi") == "mpich" else "openmpi-bin",
              "blas": ", libopenblas0" if cached(build, "WFLOW_TORCH", "ON") == "ON" else ""}
    stamp = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True).stdout.strip() or "0"
    with tempfile.TemporaryDirectory(dir=output) as folder:
        scratch = Path(folder)
        root = scratch / "root"
        stage(build, root)
        for package in PACKAGES:
            target = scratch / package.name
            target.mkdir()
            split(root, package, target)
            if not any(target.iterdir()):  # -DWFLOW_MPI="openmpi;mpich" builds the trainer for MPICH
                continue
            pack(package, values, formatdate(int(stamp)), target, output, scratch)
