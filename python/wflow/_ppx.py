# SPDX-License-Identifier: Apache-2.0
"""The messages of PPX (plugin/ppx/ppx.fbs), written and read without the package flatbuffers: a simulator needs few of
them, and the general writer takes longer than many a simulator."""

import struct

HANDSHAKE, HANDSHAKE_RESULT, RUN, RUN_RESULT, SAMPLE, SAMPLE_RESULT, OBSERVE, OBSERVE_RESULT, TAG, TAG_RESULT, RESET = range(1, 12)
NORMAL, UNIFORM, CATEGORICAL, POISSON, _BERNOULLI, BETA, EXPONENTIAL, GAMMA = range(1, 9)


class Table:
    """Fields by their number in the schema: a Table, a text, an Array, or an integer of one byte."""

    def __init__(self, fields):
        self.fields = fields


class Array:
    """The elements of a vector, and the letter of their type for struct."""

    def __init__(self, letter, values):
        self.letter, self.values = letter, values


def message(body_type, body=Table({})):
    """The bytes of a Message."""
    out = bytearray(8)
    out[4:8] = b"PPXF"
    _place(out, 0, _write(out, Table({0: body_type, 1: body})))
    return bytes(out)


def tensor(values, shape):
    return Table({0: Array("d", values), 1: Array("i", shape)})


def _align(out, size, after=0):
    out.extend(bytes(-(len(out) + after) % size))


def _place(out, at, position):
    """An offset, which counts from where it stands."""
    struct.pack_into("<I", out, at, position - at)


def _write(out, value):
    if isinstance(value, Table):
        return _write_table(out, value.fields)
    text = value.encode() + b"\0" if isinstance(value, str) else None
    size = 4 if text is not None else struct.calcsize(value.letter)
    _align(out, max(4, size), after=4)
    position = len(out)
    if text is not None:
        out += struct.pack("<I", len(text) - 1) + text
    else:
        out += struct.pack(f"<I{len(value.values)}{value.letter}", len(value.values), *value.values)
    return position


def _write_table(out, fields):
    """Its list of places, the table, then what its fields refer to: offsets to the fields lead onwards."""
    count = max(fields, default=-1) + 1
    places, size = [0] * count, 4
    for number, value in sorted(fields.items(), key=lambda field: isinstance(field[1], int)):  # bytes come last
        places[number] = size
        size += 1 if isinstance(value, int) else 4
    _align(out, 4, after=4 + 2 * count)
    start = len(out)
    out += struct.pack(f"<HH{count}H", 4 + 2 * count, size, *places)
    table = len(out)
    out += struct.pack("<i", table - start) + bytes(size - 4)
    for number, value in fields.items():
        if isinstance(value, int):
            out[table + places[number]] = value
        else:
            _place(out, table + places[number], _write(out, value))
    return table


def read_message(data):
    """The type of a Message, and of a SampleResult the values and their shape. struct.error or IndexError if it is none."""
    root = struct.unpack_from("<I", data)[0]
    kind = data[_field(data, root, 0)]
    if kind != SAMPLE_RESULT:
        return kind, (), ()
    result = _follow(data, _field(data, _follow(data, _field(data, root, 1)), 0))
    return kind, _vector(data, _field(data, result, 0), "d"), _vector(data, _field(data, result, 1), "i")


def _follow(data, at):
    return at + struct.unpack_from("<I", data, at)[0]


def _field(data, table, number):
    """Where a field is; 0 where there is none."""
    places = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, places)[0]:
        return 0
    offset = struct.unpack_from("<H", data, places + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _vector(data, at, letter):
    if at == 0:
        return ()
    start = _follow(data, at)
    return struct.unpack_from(f"<{struct.unpack_from('<I', data, start)[0]}{letter}", data, start + 4)
