"""The rollouts of `run_all`, for asyncio: an async context manager around an async iterator of what comes of them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar, cast

from attrs import define, field

from rollout_fsm import batch as trio_batch
from rollout_fsm.aio.delegation import StandsFor

T = TypeVar("T")


@define(eq=False, repr=False)
class Batch(StandsFor[trio_batch.Batch[T]], AsyncIterator[T], Generic[T]):
    """Leaving the block cancels what is left and waits for its release."""

    _kept: deque[T] = field(factory=deque, init=False)
    """What had come when the wait for it was cancelled: the next one to ask has it."""

    async def __aenter__(self) -> "Batch[T]":
        await self._enter(self._inner.__aenter__, partial(self._inner.__aexit__, None, None, None))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave(self._inner.__aexit__, error, abandon=partial(self._inner.__aexit__, None, None, None))

    def __aiter__(self) -> "Batch[T]":
        return self

    async def __anext__(self) -> T:
        if self._kept:
            return self._kept.popleft()
        work = self._caller.submit(self._inner.__anext__)
        try:
            return await work.result()
        except asyncio.CancelledError:
            if work.returned:
                self._kept.append(cast("T", work.value))
            raise
