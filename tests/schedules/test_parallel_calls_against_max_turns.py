"""Parallel calls against `max_turns`: several sub-agents ask at whatever moments, and there are never more turns than
the cap, in flight or committed (L15-L17, L20, L24)."""

from collections import Counter
from itertools import combinations

import pytest
import trio
from attrs import define, field, frozen

from rollout_fsm import ProviderError, Request, RolloutLimits, Task, Trace, TurnRefused, stop
from tests.schedules.conftest import Every
from tests.schedules.racing import RACED, Race, RacedTask, racing
from tests.schedules.scheduler import Scheduler
from tests.world import error_types

REPLY, REFUSED, FAILED = "reply", "max_turns", "ProviderError"


@frozen(kw_only=True)
class Asking(RacedTask):
    """Its stop takes a step before each turn, between the limit and the model."""

    @stop
    async def never(self, trace: Trace) -> bool:
        await trio.lowlevel.checkpoint()
        return False


@define(eq=False)
class Calls:
    """Several calls of one segment, each made by a task of its own."""

    race: Race
    cap: int
    failing: int = 0
    """So many calls of the model fail, the first ones."""
    told: dict[str, str] = field(factory=dict)
    answering: int = 0
    most: int = 0
    """How many turns were committed or on their way at once."""

    async def model(self) -> None:
        """Answers after a step, or fails."""
        failing = self.failing > 0
        self.failing -= failing
        self.answering += 1
        self.most = max(self.most, self.race.trace.num_turns + self.answering)
        await trio.lowlevel.checkpoint()
        self.answering -= 1
        if failing:
            raise ProviderError("the provider is down", status_code=503)

    async def ask(self, who: str, *, any_moment: bool) -> None:
        """One call, and what it was told."""
        exchange = self.race.world.exchange
        if any_moment:
            await self.race.scheduler.any_moment()
        try:
            await exchange.respond(Request(messages=exchange.prompt))
            self.told[who] = REPLY
        except TurnRefused as refused:
            self.told[who] = str(refused.condition)
        except ProviderError as failed:
            self.told[who] = type(failed).__name__

    async def run(self, count: int, *, any_moment: bool = False) -> Counter[str]:
        """One segment with so many calls at once; how many were told what."""

        async def segment() -> None:
            async with trio.open_nursery() as nursery:
                for number in range(count):
                    who = f"call {number}"
                    nursery.start_soon(lambda who: self.ask(who, any_moment=any_moment), who, name=who)

        self.race.world.script |= {"segment": segment, "model": self.model}

        async def driver() -> bool:
            return await self.race.rollout.step()

        await self.race.run(driver=driver)
        told = Counter(self.told.values())
        trace = self.race.trace
        assert sum(told.values()) == count
        assert trace.num_turns == told[REPLY] <= self.most <= self.cap
        assert len(trace.calls) == told[REPLY] + told[FAILED]
        assert ("refused" in self.race.taken) is any(who not in (REPLY, FAILED) for who in told)
        return told


@pytest.mark.parametrize("task", [RACED, Asking(prompt="hello")], ids=["plain", "a stop asks"])
@pytest.mark.parametrize(("count", "cap"), [(2, 1), (2, 2), (3, 1), (3, 2)])
def test_as_many_calls_as_the_cap_allows_are_answered_and_the_others_refused(
    every: Every, count: int, cap: int, task: Task
) -> None:
    async def case(scheduler: Scheduler) -> tuple[str, ...]:
        async with racing(scheduler, task=task, limits=RolloutLimits(max_turns=cap)) as race:
            calls = Calls(race, cap)
            told = await calls.run(count)
            assert told == Counter({REPLY: min(count, cap)} | ({REFUSED: count - cap} if count > cap else {}))
            assert race.rollout.state == ("stopped" if count > cap else "waiting")
            assert race.trace.stop_condition == (REFUSED if count > cap else None)
            await race.close()
            assert race.rollout.state == "completed"
            return tuple(calls.told[f"call {number}"] for number in range(count))

    ways = {tuple(REPLY if number in chosen else REFUSED for number in range(count)) for chosen in choices(count, cap)}
    every(case).expect(ways)


def choices(count: int, cap: int) -> list[tuple[int, ...]]:
    """Every way to choose those that get a turn."""
    return list(combinations(range(count), min(count, cap)))


@pytest.mark.parametrize(("count", "cap"), [(2, 1), (3, 1), (3, 2)])
def test_a_call_that_fails_gives_its_place_to_a_later_one_and_a_refusal_stands(
    every: Every, count: int, cap: int
) -> None:
    """The calls come at any moments. The one that fails makes room for one that comes after; one that came before was
    refused, and the rollout stops, though fewer turns were made than allowed (L15)."""

    async def case(scheduler: Scheduler) -> tuple[int, int, int]:
        async with racing(scheduler, limits=RolloutLimits(max_turns=cap)) as race:
            calls = Calls(race, cap, failing=1)
            told = await calls.run(count, any_moment=True)
            assert told[FAILED] == 1
            if told[REFUSED]:
                assert race.rollout.state == "stopped"
                assert (race.trace.stop_condition, race.trace.errors) == (REFUSED, [])
            else:  # the failure is kept unless a call ended well after it (L20)
                kept = race.trace.calls[-1].error is not None
                assert race.rollout.state == ("failing" if kept else "waiting")
                assert error_types(race.trace) == [FAILED] * kept
            await race.close()
            return told[REPLY], told[FAILED], told[REFUSED]

    # who is refused, is so because of so many calls in flight or committed, of which at most one fails
    every(case, ci=70).expect(
        {(replies, 1, count - 1 - replies) for replies in range(cap - 1, min(count - 1, cap) + 1)}
    )


def test_a_token_cap_is_soft_by_the_turns_in_flight_and_by_no_more(every: Every) -> None:
    """A call that comes when one has been counted is refused; those that came before it all complete (L15)."""

    async def case(scheduler: Scheduler) -> tuple[int, int]:
        async with racing(scheduler, limits=RolloutLimits(max_output_tokens=1)) as race:
            calls = Calls(race, cap=3)
            told = await calls.run(3, any_moment=True)
            await race.close()
            return told[REPLY], told["max_output_tokens"]

    every(case, ci=70).expect({(1, 2), (2, 1), (3, 0)})
