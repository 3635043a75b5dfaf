# SPDX-License-Identifier: Apache-2.0
"""A TCP relay of the chaos tests: relay.py FOLDER

Listens on the port that FOLDER/target names ("address port") and passes connections on to that address. FOLDER/mode says how:
  normal          at once
  delay MS SEED   each piece of each direction waits 0 to MS milliseconds: messages of different workers overtake each other
  hold            nothing is passed on, and no connection ends: half-open, for both sides
  reset           all connections are reset, once
"""

import asyncio
import random
import struct
import socket
import sys
from pathlib import Path

POLL_S = 0.02
PIECE = 1 << 14


class Relay:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.mode, self.words = "normal", []
        self.target = None
        self.server = None
        self.writers = set()
        self.rng = random.Random(0)

    async def run(self):
        while True:
            self.look_at_mode()
            await self.look_at_target()
            await asyncio.sleep(POLL_S)

    def read(self, name):
        try:
            return (self.folder / name).read_text().split()
        except OSError:
            return []

    def look_at_mode(self):
        words = self.read("mode") or ["normal"]
        if words == self.words:
            return
        self.mode, self.words = words[0], words
        if self.mode == "delay":
            self.rng = random.Random(int(words[2]))
        if self.mode == "reset":
            for writer in list(self.writers):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.close()

    async def look_at_target(self):
        target = self.read("target")
        if len(target) != 2 or target == self.target:
            return
        if self.server:
            self.server.close()
        self.target = target
        self.server = await asyncio.start_server(self.serve, "0.0.0.0", int(target[1]))

    async def serve(self, reader, writer):
        try:
            there, back = await asyncio.wait_for(asyncio.open_connection(*self.target), 5)
        except (OSError, asyncio.TimeoutError):
            writer.close()
            return
        self.writers |= {writer, back}
        await asyncio.gather(self.carry(reader, back), self.carry(there, writer))
        self.writers -= {writer, back}

    async def carry(self, reader, writer):
        try:
            while piece := await reader.read(PIECE):
                if self.mode == "delay":
                    await asyncio.sleep(self.rng.random() * float(self.words[1]) / 1000)
                while self.mode == "hold":
                    await asyncio.sleep(POLL_S)
                writer.write(piece)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        while self.mode == "hold":
            await asyncio.sleep(POLL_S)
        writer.close()


asyncio.run(Relay(sys.argv[1]).run())
