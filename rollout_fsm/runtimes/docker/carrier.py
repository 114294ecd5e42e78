"""Runs in a container, as a program of its own: listens on the loopback interface there, and carries what connects over
its own standard input and output.

Given to the container's python3 as text, so it imports nothing but the standard library of any version 3. relay.py has
the frames, and the other side.
"""

import os
import queue
import socket
import struct
import sys
import threading
from contextlib import suppress

HEAD = struct.Struct(">cIH")
CHUNK = 32768
WINDOW = 8
AT_ONCE = 128
"""How many connections there are at once; further ones wait."""


class Line:
    """A connection. What is sent is what was granted, what is received waits in the inbox."""

    def __init__(self, carrier: "Carrier", number: int, connection: socket.socket) -> None:
        self.carrier = carrier
        self.number = number
        self.connection = connection
        self.inbox: queue.Queue = queue.Queue()  # type: ignore[type-arg]
        self.granted = threading.Semaphore(WINDOW)

    def carry_out(self) -> None:
        """From the connection to the engine, until it ends."""
        try:
            while True:
                data = self.connection.recv(CHUNK)
                self.granted.acquire()
                self.carrier.say(b"D" if data else b"E", self.number, data)
                if not data:
                    return
        except OSError:
            self.close()

    def carry_in(self) -> None:
        """From the engine to the connection, until either is closed."""
        try:
            while True:
                kind, data = self.inbox.get()
                if kind == b"C":
                    break
                if kind == b"E":
                    self.connection.shutdown(socket.SHUT_WR)
                else:
                    self.connection.sendall(data)
                    self.carrier.say(b"A", self.number)
        except OSError:
            self.close()
        else:
            self.close()

    def close(self) -> None:
        """Once: whichever direction ends it."""
        if self.carrier.lines.pop(self.number, None) is None:
            return
        self.carrier.say(b"C", self.number)
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.granted.release()
        self.inbox.put((b"C", b""))
        self.connection.close()
        self.carrier.places.release()


class Carrier:
    """All connections, and the pipes that they share."""

    def __init__(self) -> None:
        self.lines: dict = {}  # type: ignore[type-arg]
        self.count = 0
        self.counting = threading.Lock()
        self.writing = threading.Lock()
        self.places = threading.Semaphore(AT_ONCE)

    def say(self, kind: bytes, number: int, data: bytes = b"") -> None:
        """Send a frame."""
        with self.writing:
            sys.stdout.buffer.write(HEAD.pack(kind, number, len(data)) + data)
            sys.stdout.buffer.flush()

    def accept(self, which: int, listener: socket.socket) -> None:
        """Take connections at one place, for ever."""
        while True:
            self.places.acquire()
            connection, _ = listener.accept()
            with self.counting:
                self.count += 1
                number = self.count
            line = self.lines[number] = Line(self, number, connection)
            self.say(b"O", number, bytes([which]))
            for work in (line.carry_out, line.carry_in):
                threading.Thread(target=work, daemon=True).start()

    def run(self, places: "list[str]") -> None:
        """Listen at the places, and take what the engine says until it ends."""
        listeners = [_listener(place) for place in places]
        self.say(b"R", 0)
        for which, listener in enumerate(listeners):
            threading.Thread(target=self.accept, args=(which, listener), daemon=True).start()
        while True:
            head = sys.stdin.buffer.read(HEAD.size)
            if len(head) < HEAD.size:
                os._exit(0)
            kind, number, length = HEAD.unpack(head)
            data = sys.stdin.buffer.read(length)
            line = self.lines.get(number)
            if line is not None and kind == b"A":
                line.granted.release()
            elif line is not None:
                line.inbox.put((kind, data))


def _listener(place: str) -> socket.socket:
    host, _, port = place.rpartition(":")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, int(port)))
    listener.listen(AT_ONCE)
    return listener


if __name__ == "__main__":
    Carrier().run(sys.argv[1:])
