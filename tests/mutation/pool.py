"""Asking about many mutants at once, in processes that may hang or die without taking the others along.

A worker is a fork that knows the mutants and the witnesses already; it is sent a number and sends back what came of
that mutant. One that does not answer in time is killed, and its mutant counts as noticed: it hung.
"""

import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from time import monotonic

from attrs import define, field

from tests.mutation.mutants import Mutant
from tests.mutation.noticing import Notice, notice
from tests.mutation.scenarios import Witness

PATIENCE = 600.0
"""Seconds for one mutant, after which its worker is killed. The plays have bounds of their own, far below it."""

_processes = multiprocessing.get_context("fork")


@define(eq=False)
class _Worker:
    """One process, and the mutant that it was asked about."""

    mutants: Sequence[Mutant]
    witnesses: Sequence[Witness]
    asked: int = 0
    since: float = 0.0
    pipe: Connection = field(init=False)
    process: multiprocessing.process.BaseProcess = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin, or begin again after an end."""
        self.pipe, theirs = _processes.Pipe()
        self.process = _processes.Process(target=_answer, args=(theirs, self.mutants, self.witnesses), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, number: int) -> None:
        """Send the number of a mutant."""
        self.asked, self.since = number, monotonic()
        self.pipe.send(number)

    def answer(self) -> Notice:
        """What the worker said; a worker that died has answered by that."""
        try:
            said: Notice = self.pipe.recv()
        except EOFError:
            return self.replaced("its process died")
        return said

    def replaced(self, why: str) -> Notice:
        """Kill the process and start another; what its mutant came to."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        self.start()
        return Notice(mutant=self.mutants[self.asked].name, level="scenarios", said=why)

    def end(self) -> None:
        """No more questions."""
        self.pipe.send(None)
        self.process.join()
        self.pipe.close()


def _answer(pipe: Connection, mutants: Sequence[Mutant], witnesses: Sequence[Witness]) -> None:
    with suppress(EOFError):  # whoever asks is gone
        while (number := pipe.recv()) is not None:
            pipe.send(notice(mutants[number], witnesses))


def notices(mutants: Sequence[Mutant], witnesses: Sequence[Witness], *, workers: int = 2) -> Iterator[Notice]:
    """What came of each mutant, in the order in which it is known."""
    left = iter(range(len(mutants)))
    idle = [_Worker(mutants, witnesses) for _ in range(workers)]
    busy: list[_Worker] = []
    while True:
        for worker in idle:
            if (number := next(left, None)) is None:
                worker.end()
            else:
                worker.ask(number)
                busy.append(worker)
        if not busy:
            return
        answered = wait([worker.pipe for worker in busy], timeout=1.0)
        late = [worker for worker in busy if monotonic() - worker.since > PATIENCE and worker.pipe not in answered]
        idle = [worker for worker in busy if worker.pipe in answered]
        yield from [worker.answer() for worker in idle]
        yield from [worker.replaced(f"it hung for more than {PATIENCE:g} s") for worker in late]
        idle += late
        busy = [worker for worker in busy if worker not in idle]
