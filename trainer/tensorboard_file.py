# SPDX-License-Identifier: Apache-2.0
"""Reads TensorBoard's event files with Debian's protobuf and the format's definitions, without code of this project.

The framing: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details. The messages:
tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto.
"""

import pathlib
import struct

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DOUBLE, FLOAT, INT64, STRING, MESSAGE, ENUM = 1, 2, 3, 9, 11, 5  # an enum's number, read as int32
MESSAGES = {
    "Value": [("tag", 1, STRING), ("simple_value", 2, FLOAT)],
    "Summary": [("value", 1, "Value")],
    "SessionLog": [("status", 1, ENUM), ("checkpoint_path", 2, STRING), ("msg", 3, STRING)],
    "Event": [("wall_time", 1, DOUBLE), ("step", 2, INT64), ("file_version", 3, STRING), ("summary", 5, "Summary"),
              ("session_log", 7, "SessionLog")],
}


def event_message():
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="tensorboard", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            repeated = name == "Summary"
            entry = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if isinstance(kind, str):
                entry.type, entry.type_name = MESSAGE, f".tensorboard.{kind}"
            else:
                entry.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName("tensorboard.Event"))


def masked_crc32c(data):
    """Computed bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data = pathlib.Path(path).read_bytes()
    while data:
        length, crc = struct.unpack_from("<QI", data)
        assert crc == masked_crc32c(data[:8]), "the length's checksum"
        content = data[12:12 + length]
        assert struct.unpack_from("<I", data, 12 + length)[0] == masked_crc32c(content), "a record's checksum"
        yield content
        data = data[16 + length:]


def events(path):
    event = event_message()
    return [event.FromString(record) for record in records(path)]


def scalars(folder):
    """Returns {(tag, step): value} of the folder's only event file, with the checks that TensorBoard makes."""
    (path,) = pathlib.Path(folder).iterdir()
    assert path.name.startswith("events.out.tfevents."), path
    head, start, *rest = events(path)
    assert head.file_version == "brain.Event:2", head
    assert start.session_log.status == 1 and start.step == 0, start
    times = [event.wall_time for event in (head, start, *rest)]
    assert times == sorted(times), times
    return {(value.tag, event.step): value.simple_value for event in rest for value in event.summary.value}
