# SPDX-License-Identifier: Apache-2.0
"""A wheel: the Python package, and in its folder _prefix what the portable archive contains."""
import base64
import hashlib
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

from archive import ROOT, documents, glibc_text, install, version_of

PROGRAMS = ["wflow", "wflow-convert", "wflow-train", "wflow-plot", "wflow-cola"]
COSMOFLOW = ["cosmoflow-baseline", "cosmoflow-whole-box"]
METADATA = """Metadata-Version: 2.1
Name: wflow
Version: {version}
Summary: Workflow engine for simulations and training: programs, training data, campaigns and models
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: h5py>=3
Requires-Dist: numpy
Provides-Extra: torch
Requires-Dist: torch; extra == "torch"
Provides-Extra: campaign
Requires-Dist: pandas; extra == "campaign"
Description-Content-Type: text/markdown

{readme}"""


def record(folder):
    rows = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
        rows.append(f"{path.relative_to(folder)},sha256={digest},{path.stat().st_size}")
    return rows


def pack(folder, target):
    """Sorted names and one date: the same folder gives the same bytes. pip keeps the right to execute."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as out:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            info = zipfile.ZipInfo(str(path.relative_to(folder)), date_time=(1980, 1, 1, 0, 0, 0))
            info.external_attr = (0o100755 if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(info, path.read_bytes())


def entry_points():
    """pip makes scripts of these that work in folders with spaces, too."""
    lines = [f"{name} = wflow_programs:main" for name in PROGRAMS] + [f"{name} = wflow_programs:cosmoflow" for name in COSMOFLOW]
    return "[console_scripts]\n" + "\n".join(lines) + "\n"


def make(build, output):
    version = version_of(build)
    with tempfile.TemporaryDirectory(dir=output) as scratch:
        folder = Path(scratch)
        package, data = folder / "wflow", folder / f"wflow-{version}.data"
        shutil.copytree(ROOT / "python" / "wflow", package, ignore=shutil.ignore_patterns("__pycache__", "README.md"))
        prefix = package / "_prefix"
        bundle, least = install(build, prefix)
        documents(prefix, bundle)
        for name in COSMOFLOW:
            (prefix / "bin" / name).unlink()  # a link, which a wheel cannot contain
        shutil.rmtree(prefix / "share" / "wflow" / "python")
        for name in ("man", "bash-completion", "zsh", "fish"):
            shutil.copytree(prefix / "share" / name, data / "data" / "share" / name)
        shutil.copy(Path(__file__).parent / "wflow_programs.py", folder)
        # The tag of PEP 600 names the least glibc. Programs bring their own, and the package is Python; libwflow_loader, which wflow.torch.Loader
        # loads into the interpreter, says what it lacks on an older machine.
        tag = f"manylinux_2_17_{os.uname().machine}"
        info = folder / f"wflow-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(METADATA.format(version=version, readme=(ROOT / "python" / "README.md").read_text()))
        (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: wflow scripts/package\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n")
        (info / "entry_points.txt").write_text(entry_points())
        shutil.copy(ROOT / "LICENSE", info / "LICENSE")
        (info / "RECORD").write_text("\n".join([*record(folder), f"{info.name}/RECORD,,"]) + "\n")
        target = output / f"wflow-{version}-py3-none-{tag}.whl"
        pack(folder, target)
        print(f"{target}: {target.stat().st_size / 1e6:.1f} MB; programs use the machine's glibc from {glibc_text(least)} on, else their own")
