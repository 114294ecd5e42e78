"""A slot lives as long as the gateway: once it is closed, it holds nothing of what was said."""

import weakref

import pytest

from rollout_fsm.errors import TurnRefused
from rollout_fsm.gateway.dialects.recall import Recall
from rollout_fsm.gateway.slots import Slot, Slots
from rollout_fsm.messages import Request, UserMessage

from .sessions import Scripted


def open_slot() -> Slot:
    return Slots().open(Scripted(), url="http://gateway/v1", model_name="m")


def read(recall: Recall) -> "weakref.ref[UserMessage]":
    """Read a request, and let go of it."""
    (message,) = recall(["hello"], lambda _: UserMessage("hello"))
    assert isinstance(message, UserMessage)
    return weakref.ref(message)


def test_an_open_slot_keeps_what_was_sent() -> None:
    slot = open_slot()
    assert read(slot.recall)() is not None


def test_a_slot_forgets_what_was_sent_when_it_closes() -> None:
    slot = open_slot()
    said = read(slot.recall)
    slot.close()
    assert said() is None


def test_a_slot_that_closed_while_a_body_arrived_keeps_nothing_of_it() -> None:
    slot = open_slot()
    slot.close()
    assert read(slot.recall)() is None


def test_a_slot_that_closed_while_a_body_was_read_keeps_nothing_of_it() -> None:
    slot = open_slot()
    recall = slot.recall  # which a thread has
    slot.close()
    said = read(recall)
    del recall
    assert said() is None


async def test_a_closed_slot_says_that_its_rollout_is_concluded() -> None:
    slot = open_slot()
    slot.close()
    slot.close()
    for ask in (
        lambda: slot.respond(Request(messages=()), deliver=None),
        lambda: slot.count_tokens(Request(messages=())),
    ):
        with pytest.raises(TurnRefused, match=r"^rollout concluded$"):
            await ask()
