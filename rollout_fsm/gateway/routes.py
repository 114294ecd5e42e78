"""The routes of the gateway: a model call in each dialect, the count of a prompt's tokens, and the list of models."""

from functools import partial

import trio
from attrs import field, frozen

from rollout_fsm.gateway.bodies import Reader
from rollout_fsm.gateway.calls import ModelCall, came_to
from rollout_fsm.gateway.connection import Call, Head
from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.dialects.dialect import Dialect, DialectError
from rollout_fsm.gateway.outgoing import Outgoing
from rollout_fsm.gateway.reply import Failure, Reply, error_reply, failure_of, json_reply
from rollout_fsm.gateway.router import VERSION, Route
from rollout_fsm.gateway.slots import Slot, Slots
from rollout_fsm.messages import JSON

MODELS = "/models"
COUNT = "/messages/count_tokens"

STARTED = "1970-01-01T00:00:00Z"
"""When a model was made, for a client that must be told: it is not known."""


def model_routes(slots: Slots, nursery: trio.Nursery) -> tuple[Route, ...]:
    """All that a model's client asks for. Turns run in the nursery."""
    reader = Reader()
    calls = tuple(
        TurnRoute(dialect=dialect, slots=slots, reader=reader, nursery=nursery) for dialect in DIALECTS.values()
    )
    return (*calls, CountRoute(slots=slots, reader=reader), ModelsRoute(slots=slots))


@frozen(kw_only=True)
class TurnRoute:
    """One turn, in a dialect."""

    dialect: Dialect
    slots: Slots = field(repr=False)
    reader: Reader
    nursery: trio.Nursery = field(repr=False)
    methods: tuple[str, ...] = field(default=("POST",), init=False)

    @property
    def title(self) -> str:
        """What is served."""
        return f"POST {VERSION}{self.dialect.path}"

    def matches(self, path: str) -> bool:
        """Whether this is the dialect's own path."""
        return path == self.dialect.path

    def find(self, secret: bytes) -> Slot | None:
        """A rollout's slot, by its key for the model."""
        return self.slots.find(secret)

    def answer(self, head: Head, path: str, slot: Slot) -> Call:
        """The call that takes the turn."""
        return ModelCall(head=head, dialect=self.dialect, slot=slot, reader=self.reader, nursery=self.nursery)


@frozen(kw_only=True)
class CountRoute:
    """How many tokens a prompt has, in Anthropic's way. No turn."""

    slots: Slots = field(repr=False)
    reader: Reader
    dialect: Dialect = field(factory=lambda: DIALECTS["messages"], init=False)
    methods: tuple[str, ...] = field(default=("POST",), init=False)
    title: str = field(default=f"POST {VERSION}{COUNT}", init=False)

    def matches(self, path: str) -> bool:
        """Whether this is the path of the count."""
        return path == COUNT

    def find(self, secret: bytes) -> Slot | None:
        """A rollout's slot, by its key for the model."""
        return self.slots.find(secret)

    def answer(self, head: Head, path: str, slot: Slot) -> Call:
        """The call that counts."""
        return partial(self._count, head, slot)

    async def _count(self, head: Head, slot: Slot, body: bytearray, out: Outgoing) -> Reply:
        try:
            request, _ = await self.reader.read(head, body, self.dialect, slot.recall)
        except DialectError as error:
            return error_reply(failure_of(error), self.dialect)
        body.clear()
        came = await came_to(partial(slot.count_tokens, request))
        return error_reply(came, self.dialect) if isinstance(came, Failure) else json_reply({"input_tokens": came})


@frozen(kw_only=True)
class ModelsRoute:
    """The rollout's one model, in a shape that OpenAI's clients and Anthropic's both read."""

    slots: Slots = field(repr=False)
    dialect: Dialect = field(factory=lambda: DIALECTS["chat"], init=False)
    methods: tuple[str, ...] = field(default=("GET", "HEAD"), init=False)
    title: str = field(default=f"GET {VERSION}{MODELS}", init=False)

    def matches(self, path: str) -> bool:
        """Whether this is the list, or one of its models."""
        return path == MODELS or path.startswith(f"{MODELS}/")

    def find(self, secret: bytes) -> Slot | None:
        """A rollout's slot, by its key for the model."""
        return self.slots.find(secret)

    def answer(self, head: Head, path: str, slot: Slot) -> Reply:
        """The list, or a model of it."""
        name = slot.model_name
        model: dict[str, JSON] = {
            "id": name,
            "object": "model",
            "type": "model",
            "created": 0,
            "created_at": STARTED,
            "display_name": name,
            "owned_by": "rollout-fsm",
        }
        asked = path.removeprefix(MODELS).removeprefix("/")
        if asked not in ("", name):
            message = f"this rollout has no model {asked!r}: its model is {name!r}"
            return error_reply(Failure(status=404, message=message, code="model_not_found"), self.dialect)
        if asked:
            return json_reply(model)
        return json_reply({"object": "list", "data": [model], "has_more": False, "first_id": name, "last_id": name})
