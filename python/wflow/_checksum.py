# SPDX-License-Identifier: Apache-2.0
"""Checksums of data that is read: XXH3 by libxxhash, or by the package xxhash if that is installed."""
from __future__ import annotations

import ctypes
import ctypes.util
import warnings


class _Digest128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def _functions():
    """Returns functions for XXH3-64 and XXH3-128 of bytes, as whole numbers; nothing if there is neither library nor package."""
    for name in ("libxxhash.so.0", ctypes.util.find_library("xxhash")):
        try:
            library = ctypes.CDLL(name)
            small, large = library.XXH3_64bits, library.XXH3_128bits
        except (OSError, AttributeError, TypeError):
            continue
        small.restype, large.restype = ctypes.c_uint64, _Digest128
        small.argtypes = large.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

        def of_128(data):
            digest = large(data, len(data))
            return digest.high << 64 | digest.low

        return lambda data: small(data, len(data)), of_128
    try:
        import xxhash
    except ImportError:
        return None
    return xxhash.xxh3_64_intdigest, xxhash.xxh3_128_intdigest


_found = _functions()
_warned = False


def _matches(which, data, expected):
    if _found is not None:
        return _found[which](data) == expected
    global _warned
    if not _warned:
        _warned = True
        warnings.warn("the data's checksums are not compared: install libxxhash (apt install libxxhash0) or the package xxhash (pip install xxhash)",
                      RuntimeWarning, stacklevel=2)
    return None


def xxh3_64(data: bytes, expected: int):
    """Returns whether the checksum matches, or None, with one warning, if no library can compute it."""
    return _matches(0, data, expected)


def xxh3_128(data: bytes, expected: int):
    return _matches(1, data, expected)


_KEY = b'"wflow_checksum"'


def checked_json(text: bytes):
    """Returns the bytes of a JSON file of wflow without the line of its checksum (base/checksum.h), and whether it matches. None: not known."""
    key = text.find(_KEY)
    if key < 0:
        return text, None
    end = text.find(b"\n", key)
    line = text[key:end]
    value = line[len(_KEY) + 3:-2]
    try:
        expected = int(value, 16)
    except ValueError:
        return text, False
    if not (text[:2] == b"{\n" and not text[2:key].strip(b" ") and line == _KEY + b': "' + value + b'",' and len(value) == 32):
        return text, False
    body = text[:2] + text[end + 1:]
    return body, xxh3_128(body, expected)
