# SPDX-License-Identifier: Apache-2.0
"""Calls libwflow_loader by ctypes. Threads of the library read, inflate, cast and scale batches of float32 (converters/load/loader_c.h)."""
from __future__ import annotations

import ctypes
import glob
import os
import shutil
import sys
from pathlib import Path

import numpy as np

from wflow._errors import DamagedData, Error

_VERSION = 3
_EXIT_DATA = 4
_library = None


def _candidates():
    """Yields the places of the library: the path that the user names, this package, and the folder of the program wflow-convert."""
    if "WFLOW_LOADER" in os.environ:
        yield os.environ["WFLOW_LOADER"]
        return
    roots = [Path(__file__).parent / "_prefix", Path(__file__).resolve().parents[4]]
    program = shutil.which("wflow-convert")
    if program:
        roots.append(Path(program).resolve().parents[1])
    for root in roots:
        for pattern in ("lib/libwflow_loader.so", "lib/*/libwflow_loader.so", "lib64/libwflow_loader.so"):
            yield from sorted(glob.glob(os.path.join(glob.escape(str(root)), pattern)))


def library():
    """Returns the loaded library. Raises Error if there is none."""
    global _library
    if _library is None:
        _library = _load()
    return _library


def _load():
    problem = "it is installed with wflow; or name the file in WFLOW_LOADER"
    for path in _candidates():
        try:
            found = ctypes.CDLL(path)
        except OSError as error:
            problem = str(error)
            continue
        found.wflow_loader_version.restype = ctypes.c_int32
        if found.wflow_loader_version() != _VERSION:
            problem = f"{path} is of version {found.wflow_loader_version()}, this package knows {_VERSION}"
            continue
        c, i32, i64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
        for name, result, arguments in (
                ("error", ctypes.c_char_p, []), ("open", c, [ctypes.c_char_p, ctypes.c_char_p, i32]), ("close", None, [c]),
                ("samples", i64, [c]), ("values", i64, [c, i32]), ("keep", i32, [c, i64, i32, c]),
                ("submit", i64, [c, i64, c, i32, c, c, c, c]), ("wait", i32, [c, i64])):
            function = getattr(found, "wflow_loader_" + name)
            function.restype, function.argtypes = result, arguments
        return found
    raise Error(f"libwflow_loader.so was not found: {problem}")


class _Memory:
    """Memory of batches, reused once no reference to its last batch remains: new pages cost as much as inflating."""

    _LEAST = 1 << 18  # values; smaller arrays are not reused
    _MOST = 16  # pieces

    def __init__(self):
        self._pieces: list = []

    def array(self, shape) -> np.ndarray:
        count = int(np.prod(shape, dtype=np.int64))
        if count < self._LEAST:
            return np.empty(shape, np.float32)
        for k in range(len(self._pieces)):
            piece = self._pieces[k]
            # Three references are those of the list, of `piece`, and of the call. Arrays and tensors made of it add more.
            if piece.size == count and sys.getrefcount(piece) == 3:
                self._pieces.append(self._pieces.pop(k))
                return piece.reshape(shape)
        piece = np.empty(count, np.float32)
        self._pieces = [*self._pieces[-self._MOST + 1:], piece]
        return piece.reshape(shape)


class Batch:
    """A batch that is being read."""

    def __init__(self, number, arrays):
        self.number, self.arrays = number, arrays


class Loader:
    """A split, read by `threads` threads of the library. Belongs to the process that opened it."""

    def __init__(self, directory, split: str, threads: int):
        self._library = library()
        self._memory = _Memory()
        self._waiting: dict = {}  # the library writes to it: keep it alive
        self._handle = self._library.wflow_loader_open(os.fsencode(directory), split.encode(), threads)
        if not self._handle:
            raise DamagedData(self._library.wflow_loader_error().decode())

    def __len__(self):
        return self._library.wflow_loader_samples(self._handle)

    def keep(self, size: int, fields):
        """Keeps the samples of these fields (numbers in the manifest) in up to `size` bytes; -1: a quarter of the memory that this process could
        take. Call it once, before the first batch."""
        numbers = np.ascontiguousarray(fields, np.int32)
        if self._library.wflow_loader_keep(self._handle, size, len(numbers), numbers.ctypes.data):
            raise Error(self._library.wflow_loader_error().decode())

    def submit(self, samples, fields) -> Batch:
        """Starts to read. `fields`: (number in the manifest, shape of a sample, (parts, 3) factors, offsets and centres or None)."""
        samples = np.ascontiguousarray(samples, np.int64)
        arrays = [self._memory.array((len(samples), *shape)) for _, shape, _ in fields]
        scales = [np.ascontiguousarray(s, np.float64) if s is not None else np.empty((0, 3)) for _, _, s in fields]
        numbers = np.array([number for number, _, _ in fields], np.int32)
        parts = np.array([len(s) for s in scales], np.int32)
        to = (ctypes.c_void_p * len(fields))(*(a.ctypes.data for a in arrays))
        of_scales = (ctypes.c_void_p * len(fields))(*(s.ctypes.data for s in scales))
        number = self._library.wflow_loader_submit(self._handle, len(samples), samples.ctypes.data, len(fields), numbers.ctypes.data, to,
                                                   parts.ctypes.data, of_scales)
        if number < 0:
            raise Error(self._library.wflow_loader_error().decode())
        batch = Batch(number, arrays)
        self._waiting[number] = batch
        return batch

    def wait(self, batch: Batch) -> list:
        """Returns the arrays of a batch, in the order of its fields."""
        code = self._library.wflow_loader_wait(self._handle, batch.number)
        del self._waiting[batch.number]
        if code:
            raise (DamagedData if code == _EXIT_DATA else Error)(self._library.wflow_loader_error().decode())
        return batch.arrays

    def close(self):
        """Ends the threads once they have read their present batch."""
        if self._handle:
            self._library.wflow_loader_close(self._handle)
            self._handle = None
            self._waiting.clear()

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()
