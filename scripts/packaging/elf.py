# SPDX-License-Identifier: Apache-2.0
"""What the dynamic linker reads in an ELF file: needed libraries, symbols and their versions."""
import re
import subprocess
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

# The libraries of glibc come from the machine: they fit its kernel, its name services and its dynamic linker.
GLIBC = {"libc.so.6", "libm.so.6", "libmvec.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2", "libutil.so.1",
         "libanl.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


@dataclass
class Elf:
    needed: list = field(default_factory=list)
    run_path: list = field(default_factory=list)
    undefined: set = field(default_factory=set)  # names without versions
    weak: set = field(default_factory=set)  # those of `undefined` that may be absent
    defined: set = field(default_factory=set)
    versions: dict = field(default_factory=dict)  # library: the versions of its symbols that this file asks for


def is_elf(path):
    if path.is_symlink() or not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def parse(text):
    """The output of readelf --wide --dynamic --dyn-syms --version-info."""
    elf = Elf()
    library = None
    for line in text.splitlines():
        if match := re.search(r"\((NEEDED|RPATH|RUNPATH)\).*\[(.*)\]", line):
            if match[1] == "NEEDED":
                elf.needed.append(match[2])
            else:
                elf.run_path += match[2].split(":")
        elif match := re.search(r"Version: \d+  File: (\S+)  Cnt:", line):
            library = elf.versions.setdefault(match[1], set())
        elif (match := re.search(r"^\s+\S+:\s+Name: (\S+)  Flags: \S.*Version: \d+$", line)) and library is not None:
            library.add(match[1])
        elif match := re.match(r"\s*\d+: [0-9a-f]+ +\S+ +\S+ +(\S+) +\S+ +(?:\[[^]]*\] +)?(\S+) (\S+)", line):
            binding, section, name = match[1], match[2], match[3].partition("@")[0]
            if section != "UND":
                if binding != "LOCAL":
                    elf.defined.add(name)
            else:
                elf.undefined.add(name)
                if binding == "WEAK":
                    elf.weak.add(name)
    return elf


def read(path):
    done = subprocess.run(["readelf", "--wide", "--dynamic", "--dyn-syms", "--version-info", path], capture_output=True, text=True, check=True)
    return parse(done.stdout)


def number(version):
    """GLIBC_2.34 as (2, 34); nothing for GLIBC_PRIVATE and the versions of other libraries."""
    match = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)*)", version)
    return tuple(map(int, match[1].split("."))) if match else None


def check(files, inside):
    """Returns the least glibc that runs the files {path: Elf}, which may need those of `inside` {name: Elf} and glibc, and a
    sentence for each thing that they lack."""
    least, problems = (0,), []
    system = {symbol for name in GLIBC for symbol in glibc_symbols(name)}
    everywhere = system.union(*(elf.defined for elf in files.values()), *(elf.defined for elf in inside.values()))
    for path, elf in sorted(files.items()):
        for name in elf.needed:
            if name not in inside and name not in GLIBC:
                problems.append(f"{path} needs {name}, which is not inside")
        for folder in elf.run_path:
            if not folder.startswith("$ORIGIN"):
                problems.append(f"{path} looks for libraries in {folder}, which is not relative")
        for symbol in sorted(elf.undefined - elf.weak - everywhere):
            problems.append(f"{path} needs the symbol {symbol}, which no library inside defines")
        for library, versions in elf.versions.items():
            for version in versions:
                if library in GLIBC and number(version):
                    least = max(least, number(version))
                elif library in GLIBC and version == "GLIBC_PRIVATE":
                    problems.append(f"{path} needs a private symbol of {library}, which differs between releases of glibc")
    return least, problems


@lru_cache
def glibc_symbols(name):
    path = located().get(name)
    return read(path).defined if path else set()


_located = {}


def located():
    """Libraries of this machine by name."""
    if not _located:
        listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
        for name, path in re.findall(r"^\s+(\S+) \(libc6,[^)]*x86-64[^)]*\) => (\S+)", listing, re.M):
            _located.setdefault(name, Path(path))
    return _located
