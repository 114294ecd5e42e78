"""What was read before is recalled only where it says exactly the same, and never more of it than is bounded."""

import json
import weakref
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.dialects.recall import CONVERSATIONS, Recollection, afresh
from rollout_fsm.messages import JSON, Message, UserMessage
from tests.gateway.dialects.golden import REQUESTS
from tests.gateway.dialects.strategies import wire

ALIKE: Sequence[JSON] = ("1", 1, 1.0, True, 0, 0.0, -0.0, False, None, "", [], {}, 2**70, float(2**70))
VALUES = st.recursive(
    st.sampled_from(ALIKE),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


class Reading:
    """Reads a value as a message that says all of it, and counts."""

    def __init__(self) -> None:
        self.recall = Recollection()
        self.read = 0

    def __call__(self, given: Sequence[JSON]) -> tuple[Message, ...]:
        def read(place: int) -> Message:
            self.read += 1
            return exactly(given[place])

        return self.recall(given, read)


def exactly(value: JSON) -> Message:
    return UserMessage(json.dumps(value, sort_keys=True))


@given(st.lists(st.lists(VALUES, max_size=4), max_size=8))
def test_what_is_recalled_is_what_would_be_read(conversations: list[list[JSON]]) -> None:
    reading = Reading()
    for conversation in conversations:
        assert reading(conversation) == tuple(map(exactly, conversation))


@given(st.lists(VALUES, min_size=1, max_size=6), st.lists(VALUES, max_size=3))
def test_what_is_sent_again_is_the_very_message_and_is_not_read_again(begun: list[JSON], more: list[JSON]) -> None:
    reading = Reading()
    first = reading(json.loads(json.dumps(begun)))
    second = reading(json.loads(json.dumps([*begun, *more])))
    assert all(one is other for one, other in zip(first, second, strict=False))
    assert reading.read == len(begun) + len(more)


def test_so_many_conversations_go_on_in_turn_and_one_more_is_forgotten() -> None:
    reading = Reading()
    conversations: list[list[JSON]] = [["hello", place] for place in range(CONVERSATIONS)]
    for conversation in conversations:
        reading(conversation)
    before = reading.read
    for turn in range(3):
        for conversation in conversations:
            conversation.append(turn)
            reading(conversation)
    assert reading.read == before + 3 * CONVERSATIONS
    reading(["another"])
    before = reading.read
    reading(conversations[-1])
    assert reading.read == before
    reading(conversations[0])
    assert reading.read == before + len(conversations[0]) - 1  # the greeting is another's, too
    assert len(reading.recall._kept) == CONVERSATIONS


def test_a_conversation_that_was_cut_short_is_recalled_as_far_as_it_goes() -> None:
    reading = Reading()
    whole = reading(["a", "b", "c"])
    assert reading(["a", "b"]) == whole[:2]
    assert reading(["a", "b", "d"])[:2] == whole[:2]
    assert reading(["a", "b", "c"])[2] is whole[2]
    assert reading.read == 4


def test_what_is_sent_again_is_held_once() -> None:
    class Said(dict[str, JSON]):
        """What a test sees go."""

    def sent(*texts: str) -> list[weakref.ref[Said]]:
        given = [Said(content=text) for text in texts]
        reading(given)
        return list(map(weakref.ref, given))

    reading = Reading()
    first = sent("a", "b")
    again = sent("a", "b", "c")
    shorter = sent("a", "d")
    assert [said() is not None for said in (*first, *again, *shorter)] == [True, True, False, False, True, False, True]
    assert reading.read == 4


def test_what_cannot_be_read_is_not_recalled() -> None:
    recall = Recollection()

    def fails(place: int) -> Message:
        raise ValueError(place)

    recall(["a"], lambda _: UserMessage("a"))
    for _ in range(2):
        with pytest.raises(ValueError, match="1"):
            recall(["a", "b"], fails)


@pytest.mark.parametrize("known", [1, 2, 3, 4])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_read_the_same_whatever_is_recalled(name: str, known: int) -> None:
    body, dialect = REQUESTS[name], DIALECTS[name.split()[0]]
    field = "input" if dialect.name == "responses" else "messages"
    shorter = {**body, field: body[field][:known]}
    recall = Recollection()
    first = dialect.parse_request(wire(shorter), recall)
    again, fresh = dialect.parse_request(wire(body), recall), dialect.parse_request(wire(body), afresh)
    assert again == fresh
    assert again.native is not None
    assert again.native.messages == again.messages
    shared = sum(one is other for one, other in zip(first.messages, again.messages, strict=False))
    assert shared >= len(first.messages) - 1  # what belongs together may have been cut apart
