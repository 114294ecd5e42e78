"""What a rollout is doing: whom it waits for, since when, with how much time left."""

from typing import Any

import trio

from rollout_fsm import Activity, RetryPolicy, RolloutTimeouts, Trace, open_engine
from tests.test_attempts import failing
from tests.world import World, agent, held_in, sleeps, world_task


class Watch:
    """Notes what it is told, each change once."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None, str, int]] = []

    def on_activity(self, trace: Trace, activity: Activity) -> None:
        now = (activity.state, activity.waiting_on, activity.doing, activity.attempt)
        if not self.seen or self.seen[-1] != now:
            self.seen.append(now)


async def test_every_change_is_told_with_the_party_that_has_to_act() -> None:
    world, watch = World(), Watch()
    async with open_engine(gateway=False, observers=[watch]) as engine:
        await engine.run(world_task(world, served=["a"]), **agent(world))
    told = [(state, party, doing) for state, party, doing, _ in watch.seen if state != "created"]
    assert told == [
        ("booting", "sandbox", "booting"),
        ("booting", "harness", "entering the harness"),
        ("booting", "provider", "entering the model"),
        ("booting", "sandbox", "starting the runtime"),
        ("booting", "sandbox", "preparing the runtime for setup"),
        ("setup", "task", "task setup"),
        ("setup", "harness", "harness setup"),
        ("setup", "task", "naming the task's tool servers"),
        ("setup", "toolset", "building the tool servers"),
        ("setup", "interception", "opening the interception slot"),
        ("setup", "toolset", "starting tool server 'a'"),
        ("setup", "sandbox", "mapping the URL of tool server 'a' into the runtime"),
        ("setup", "sandbox", "applying the network policy"),
        ("setup", "task", "prompt interception"),
        ("setup", "harness", "opening the harness session"),
        ("waiting", "caller", "the caller's next call"),
        ("stepping", "harness", "segment"),
        ("stepping", "task", "interception of the user's message"),
        ("stepping", "harness", "segment"),
        ("stepping", "provider", "a model call"),
        ("stepping", "harness", "segment"),
        ("waiting", "caller", "the caller's next call"),
        ("closing", "harness", "the release of the harness session"),
        ("closing", "toolset", "the release of the tool server 'a'"),
        ("finalizing", "task", "finalize"),
        ("scoring", "task", "scoring"),
        ("releasing", "harness", "the release of the harness 'ScriptedHarness'"),
        ("releasing", "sandbox", f"the release of the runtime '{box(told)}'"),
    ]


async def test_with_a_gateway_the_slot_is_waited_for_when_it_opens_and_when_it_is_released() -> None:
    world, watch = World(), Watch()
    async with open_engine(observers=[watch]) as engine:
        await engine.run(world_task(world, served=["a"]), **agent(world))
    told = [(state, party, doing) for state, party, doing, _ in watch.seen]
    assert [one for one in told if one[1] == "interception"] == [
        ("setup", "interception", "opening the interception slot"),
        ("closing", "interception", "the release of the interception slot"),
    ]
    assert [doing for state, _, doing in told if state == "closing"] == [
        "the release of the harness session",
        "the release of the tool server 'a'",
        "the release of the interception slot",
    ]


def box(told: list[tuple[str, str | None, str]]) -> str:
    return told[-1][2].rpartition("runtime ")[2].strip("'")


async def test_an_activity_says_since_when_and_how_much_time_is_left() -> None:
    async with held_in("stepping", timeouts=RolloutTimeouts(agent=100)) as held:
        began = trio.current_time()
        await trio.sleep(30)
        activity = held.rollout.activity
        now = held.rollout.trace.timing.start + trio.current_time() - began
        assert (activity.state, activity.time_left) == ("stepping", 70)
        assert 29 < now - activity.since <= 31


async def test_a_pause_shows_whom_a_turn_waits_for() -> None:
    world = World(turns=2, script={"model": sleeps(10)})
    async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:
        rollout = engine.rollout(world_task(world), **agent(world, timeouts=RolloutTimeouts(agent=100)))
        await rollout.open()
        nursery.start_soon(rollout.step)
        await trio.sleep(5)
        engine.pause()
        assert (rollout.activity.waiting_on, rollout.activity.doing) == ("provider", "a model call")
        await trio.sleep(10)
        shown = rollout.activity
        assert (shown.waiting_on, shown.doing, shown.time_left) == ("engine", "the end of the pause", 95)
        engine.resume()
        await trio.sleep(20)
        assert (rollout.state, rollout.activity.time_left) == ("waiting", None)


async def test_the_number_of_the_attempt_is_told() -> None:
    world, watch = World(script={"model": failing(1)}), Watch()
    policy = RetryPolicy(max_retries=1, backoff=lambda retry: 1)
    async with open_engine(gateway=False, observers=[watch]) as engine:
        await engine.run(world_task(world), retry=policy, **agent(world))
    started = [attempt for *_, doing, attempt in watch.seen if doing == "starting the runtime"]
    assert started == [1, 2]


async def test_an_observer_that_raises_in_it_disturbs_nothing(caplog: Any) -> None:
    class Broken:
        def on_activity(self, trace: Trace, activity: Activity) -> None:
            raise ValueError("mine")

    world = World()
    async with open_engine(gateway=False, observers=[Broken()]) as engine:
        assert (await engine.run(world_task(world), **agent(world))).ok
    assert "Broken raised in on_activity" in caplog.text
