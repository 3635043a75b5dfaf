# SPDX-License-Identifier: Apache-2.0
"""The table of licences of files that were copied from Debian's packages, and the packages' own copyright files."""
import re
import shutil
import subprocess
from pathlib import Path


def package_of(path):
    """The Debian package that a file belongs to. dpkg knows files by the paths before /lib and /usr/lib became one folder."""
    for candidate in (path, Path(str(path).removeprefix("/usr"))):
        done = subprocess.run(["dpkg-query", "--search", candidate], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split(":")[0].split(",")[0]
    raise SystemExit(f"package: {path} belongs to no Debian package, so that its licence is unknown")


def names(text):
    """Licences that a copyright file in Debian's machine-readable format names, the most frequent first."""
    found = re.findall(r"^License: *(\S.*)$", text, re.M)
    return sorted(set(found), key=lambda name: (-found.count(name), name))


def write(origins, folder):
    """LICENCES.md and a copyright file for each package, of {file: where it came from}. Returns the number of packages."""
    files = {}
    for target, origin in origins.items():
        files.setdefault(package_of(origin), []).append(target.name)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for package, inside in sorted(files.items()):
        status = subprocess.run(["dpkg-query", "--show", "--showformat", "${Version}\t${source:Package}\t${Homepage}", package], capture_output=True,
                                text=True, check=True).stdout
        version, source, page = status.split("\t")
        notice = Path("/usr/share/doc") / package / "copyright"
        shutil.copy(notice, folder / f"{package}.txt")
        licences = names(notice.read_text(encoding="utf-8", errors="replace"))
        summary = ", ".join(licences[:6]) + (", and more" if len(licences) > 6 else "") if licences else "see its file"
        some = ", ".join(sorted(inside)[:3]) + (f" and {len(inside) - 3} more" if len(inside) > 3 else "")
        rows.append(f"| [{package}]({package}.txt) | {version} | {source} | {summary} | {some} |")
    head = ["# Licences of what is inside", "",
            "wflow itself is under the Apache License 2.0 (`../LICENSE`). These files are copies of Debian's; their packages' own copyright files",
            "lie beside this table. Debian has the sources of each version: https://snapshot.debian.org/package/SOURCE/VERSION/.", "",
            "| package | version | source | licences that it names | files |", "|---|---|---|---|---|"]
    (folder / "README.md").write_text("\n".join(head + rows) + "\n")
    return len(rows)
