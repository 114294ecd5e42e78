"""A plan: what happens to one rollout, drawn as a record that a person can read, change and paste.

It starts with the rollout in any state, says what its caller and others do, one thing after the other, and what the
outside parties do when they are asked. Whatever is not said goes well and at once.
"""

from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve, field, fields, frozen
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from tests.world import HELD_AT, STATES

VERBS = ("open", "step", "step hello", "close", "cancel", "stop", "fail")
"""What is called, each by a task of its own; `stop` and `fail` return at once."""
CHANCES = ("let go", "cancel caller", "owner stops", "+1", "+5", "+11", "+21")
"""What hangs is let go of; the oldest pending call is cancelled; the borrowed runtime is stopped; seconds pass."""
ANSWERS = ("fail", "hang", "slow", "swallow", "interrupt")
"""Raise; wait until let go of; take three seconds; wait, and return as if nothing had been when interrupted; raise a
KeyboardInterrupt."""
PARTIES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(
        (
            *("runtime.start", "task.setup", "harness.setup", "session.open", "finalize", "score.good", "score.steps"),
            *("session.close", "harness.cleanup", "runtime.stop"),
        ),
        ANSWERS,
    ),
    "harness.enter": ("fail", "hang", "slow"),
    "model": ("fail", "overlong", *ANSWERS[1:]),
    "runtime.kill": ("no", "fail", "hang", "slow"),
    "runtime.alive": ("no", "fail", "hang"),
}
"""The outside parties, and what each may do instead of answering."""
MOVES = ("turn", "insist", "fail", "exit", "hang", "swallow")
"""What a harness does in a segment: a turn; a turn whose refusal or failure it swallows; raise; exit with 1; wait until
let go of; wait, swallow the interruption and go on."""


@frozen(kw_only=True, repr=False)
class Plan:
    """What happens to one rollout."""

    start: str = "created"
    does: Sequence[str] = ()
    """`VERBS` and `CHANCES`, in order; before each the world has come to rest."""
    says: Mapping[str, Sequence[str]] = field(factory=dict)
    """What a party does the first time that it is asked from the start state on, the second time …; then it answers."""
    segments: Sequence[Sequence[str]] = ()
    """`MOVES` of each segment; those that are not here make a turn."""
    prompt: bool = True
    has_user: bool = True
    borrowed: bool = False
    expiry_stops: bool = False
    no_progress_fails: bool = False
    max_turns: int | None = None
    schedule: int = 0
    """In which order tasks run that could run at once."""

    @property
    def held_at(self) -> str | None:
        """The party that waits until it is let go of, in a start state that has an activity."""
        if self.start == "booting" and self.borrowed:
            return "harness.enter"
        return HELD_AT.get(self.start)

    def __repr__(self) -> str:
        """As it is written, without what is as usual."""
        said = [(one.name, getattr(self, one.name)) for one in fields(type(self))]
        usual = Plan()
        return f"Plan({', '.join(f'{name}={value!r}' for name, value in said if value != getattr(usual, name))})"

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:
        """As hypothesis is to print it."""
        printer.text(repr(self))


# ---- plans that together take every row


def seeds() -> Iterator[Plan]:
    """Plans that together take every row that a driver can take; what is drawn is most often one of them, disturbed."""
    yield from (Plan(start="created", does=[verb]) for verb in ("open", "close", "cancel", "fail"))
    yield Plan(start="created", does=["owner stops", "open"], borrowed=True)
    yield Plan(start="created", does=["open"], prompt=False, has_user=False)
    yield from (Plan(start="waiting", does=[verb]) for verb in ("step", "stop", "close", "fail", "cancel"))
    yield Plan(start="waiting", does=["owner stops", "step"], borrowed=True)
    yield Plan(start="stopped", does=["owner stops", "close"], borrowed=True)
    yield from (Plan(start="waiting", does=["step", said]) for said in ("step", "step hello"))
    yield Plan(start="waiting", has_user=False)
    for start in ("stopped", "failing"):
        yield from (Plan(start=start, does=[verb]) for verb in ("step", "stop", "close", "fail", "cancel"))
    for start in ("completed", "failed"):
        yield from (Plan(start=start, does=[verb]) for verb in ("close", "cancel"))
    yield from (Plan(start="aborted", does=[verb]) for verb in ("open", "step", "stop", "close", "cancel"))
    for start in ("booting", "setup", "stepping", "stopping", "finalizing", "scoring"):
        yield Plan(start=start, does=["cancel"])
        yield Plan(start=start, does=["+21"])
        yield Plan(start=start, does=["owner stops", "+21"], borrowed=True)
        yield _failing(start, does=["let go"])
        yield _failing(start, does=["owner stops", "let go"], borrowed=True)
        yield _failing(start, does=["+21"], answer="swallow")
    yield Plan(start="setup", does=["stop", "stop", "let go"])
    for start in HELD_AT:
        yield Plan(start=start, does=["let go", "close"])
        yield Plan(start=start, does=["open", "step", "stop", "fail", "close", "cancel"])
    for does in (["let go", "+21"], ["let go", "cancel"]):
        yield Plan(start="finalizing", does=does, says={"score.steps": ["fail"], "score.good": ["hang"]})
    for start in ("stepping", "stopping"):
        yield Plan(start=start, does=["+21"], says={"runtime.kill": ["no"]})
        yield Plan(start=start, does=["+21", "+11"], says={"runtime.kill": ["hang"]})
        yield Plan(start=start, does=["let go"], says={"runtime.kill": ["no"]}, segments=[["fail"]])
    yield Plan(start="stepping", does=["let go"], says={"model": ["fail"], "runtime.kill": ["no"]})
    yield Plan(start="stepping", does=["let go"], says={"model": ["fail"]}, segments=[["insist"]])
    yield Plan(start="stepping", does=["stop", "let go"], segments=[[]])
    yield Plan(start="stepping", does=["let go"], segments=[[]])
    yield Plan(start="stepping", does=["let go"], segments=[[]], no_progress_fails=True)
    yield Plan(start="stepping", does=["+21"], expiry_stops=True)
    yield Plan(start="stopping", does=["let go"], segments=[["insist"]])
    yield from (
        Plan(start=start, does=["cancel caller"]) for start in ("closing", "releasing", "discarding", "aborting")
    )


def _failing(start: str, *, does: Sequence[str], answer: str = "fail", borrowed: bool = False) -> Plan:
    """What the start state is about fails once it is let go of, or gives another answer."""
    if start in ("stepping", "stopping"):
        return Plan(start=start, does=does, segments=[[answer]], borrowed=borrowed)
    held_at = Plan(start=start, borrowed=borrowed).held_at
    return Plan(start=start, does=does, says={str(held_at): [answer]}, borrowed=borrowed)


# ---- any plan

_events = st.sampled_from([*VERBS, *CHANCES])
_segment = st.lists(st.sampled_from(MOVES), max_size=3)
_answers = st.sampled_from([(party, answer) for party, can in PARTIES.items() for answer in can])
_seeds = st.sampled_from([*seeds(), *(Plan(start=start) for start in STATES)])


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any plan: a start state, and what may happen to it, with anything else in between."""
    seed = draw(_seeds)
    does, says = list(seed.does), {party: list(answers) for party, answers in seed.says.items()}
    for event in draw(st.lists(_events, max_size=5)):
        does.insert(draw(st.integers(0, len(does))), event)
    for party, answer in draw(st.lists(_answers, max_size=3)):
        says.setdefault(party, []).append(answer)
    has_user = seed.has_user and draw(st.booleans())
    return evolve(
        seed,
        does=does,
        says=says,
        segments=[*seed.segments, *draw(st.lists(_segment, max_size=2))],
        prompt=seed.prompt and not (has_user and draw(st.booleans())),
        has_user=has_user,
        borrowed=seed.borrowed or (not seed.says and draw(st.booleans())),
        expiry_stops=seed.expiry_stops or draw(st.booleans()),
        no_progress_fails=seed.no_progress_fails or draw(st.booleans()),
        max_turns=draw(st.sampled_from([None, None, 0, 1])),
        schedule=draw(st.integers(0, 3)),
    )
