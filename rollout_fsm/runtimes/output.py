"""What is kept of a stream that may be longer than anybody wants to hold: its head and its tail.

Knows no pipe and no program. The invariant: never more than `cap` bytes are held, and the bytes shown plus the bytes
said to be cut are the bytes fed, whatever the chunks they came in.
"""

import codecs

from attrs import define, field, validators

LONGEST_CHARACTER = 4
"""Bytes of the longest character in UTF-8."""


@define(eq=False, repr=False)
class HeadTail:
    """A buffer that keeps the first and the last bytes of what it is fed, `cap` bytes in all, and counts the rest."""

    cap: int = field(validator=validators.ge(0))
    total: int = field(init=False, default=0)
    """Bytes fed so far."""
    _head: bytearray = field(init=False, factory=bytearray)
    _tail: bytearray = field(init=False, factory=bytearray)

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(chunk)
        room = self.cap - self.cap // 2 - len(self._head)
        self._head += chunk[:room]
        rest = memoryview(chunk)[room:]
        keep = self.cap // 2
        self._tail += rest[max(0, len(rest) - keep) :]
        del self._tail[: max(0, len(self._tail) - keep)]

    @property
    def held(self) -> int:
        """Bytes in memory; never more than `cap`."""
        return len(self._head) + len(self._tail)

    @property
    def cut(self) -> int:
        """Bytes that were fed and are not held."""
        return self.total - self.held

    def text(self) -> str:
        """What is held, as UTF-8 with errors replaced; a line where the cut is says how many bytes are missing.

        A character that the cut went through counts among the missing bytes.
        """
        if not self.cut:
            return (self._head + self._tail).decode(errors="replace")
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        head = decoder.decode(self._head)
        pending = len(decoder.getstate()[0])
        torn = 0
        while torn < min(LONGEST_CHARACTER - 1, len(self._tail)) and self._tail[torn] & 0xC0 == 0x80:
            torn += 1
        tail = self._tail[torn:].decode(errors="replace")
        return f"{head}\n[--- {self.cut + pending + torn} of {self.total} bytes cut here ---]\n{tail}"

    def __repr__(self) -> str:
        return f"<HeadTail {self.held} of {self.total} bytes held, cap {self.cap}>"
