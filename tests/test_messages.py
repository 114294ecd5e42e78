"""Messages are equal where they say the same, and not where Python only takes it for the same."""

import json
from collections.abc import Sequence
from itertools import product

from rollout_fsm.messages import JSON, OtherPart, TextPart, UserMessage

ALIKE: Sequence[JSON] = (1, 1.0, True, 0, 0.0, -0.0, False, None, "1", [], {})


def said(value: JSON) -> UserMessage:
    return UserMessage((TextPart("look"), OtherPart({"type": "seen", "by": [{"value": value}]})))


def test_messages_are_equal_exactly_where_their_parts_are_the_same_json() -> None:
    for one, other in product(ALIKE, repeat=2):
        same = json.dumps(one) == json.dumps(other)
        assert (said(one) == said(other)) is same
        assert (said(one) != said(other)) is not same
        assert (said(one).key == said(other).key) is same


def test_a_part_is_equal_to_no_other_thing() -> None:
    assert OtherPart({"type": "text"}) != {"type": "text"}
    assert OtherPart({"type": "a", "b": 1}) == OtherPart({"b": 1, "type": "a"})
