# SPDX-License-Identifier: Apache-2.0
"""Compares the packages of two builds: byte by byte, and where they differ, file by file inside."""
import subprocess
import tempfile
from pathlib import Path

# Files inside of packages that may differ between two builds of the same source, with the reason. None is known.
KNOWN = {}


def unpack(package, folder):
    folder.mkdir()
    if package.name.endswith(".deb"):
        subprocess.run(["dpkg-deb", "--raw-extract", package, folder], check=True)
    elif package.name.endswith(".whl"):
        subprocess.run(["python3", "-m", "zipfile", "-e", package, folder], check=True)
    else:
        subprocess.run(["tar", "--extract", "--file", package, "--directory", folder], check=True)


def content(path):
    if path.is_symlink():
        return path.readlink()
    return (path.stat().st_mode & 0o777, path.read_bytes()) if path.is_file() else None


def files_that_differ(first, second):
    """Names below two folders whose content, mode or target of a link is not the same, or that only one of them has."""
    names = {path.relative_to(folder) for folder in (first, second) for path in folder.rglob("*")}
    both = [name for name in names if all((folder / name).is_symlink() or (folder / name).exists() for folder in (first, second))]
    differ = [name for name in both if content(first / name) != content(second / name)]
    return sorted(map(str, differ + [name for name in names if name not in set(both)]))


def compare(first, second):
    """A sentence for each difference of two packages that is not known; none if they are the same bytes."""
    if first.read_bytes() == second.read_bytes():
        return []
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch) / "first", Path(scratch) / "second"]
        for package, folder in zip((first, second), folders):
            unpack(package, folder)
        names = files_that_differ(*folders)
    unknown = [name for name in names if name not in KNOWN]
    if not names:
        return [f"{first.name}: the same files in other bytes (order, dates or compression)"]
    return [f"{first.name}: {name} differs" for name in unknown]
