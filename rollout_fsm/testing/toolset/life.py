"""A tool server begins and ends with its rollout, and is that rollout's alone (L5, L8, L50)."""

import trio

from rollout_fsm.engine import open_engine
from rollout_fsm.task import Task
from rollout_fsm.testing.contract import check
from rollout_fsm.testing.expecting import expect, raised_by
from rollout_fsm.testing.sweep import Strike, sweep
from rollout_fsm.testing.toolset.base import Call, ToolsetChecks, answers, called, settled, unwarned
from rollout_fsm.tool_client import ToolClient, text_of

__all__ = ["LifeChecks"]

END = "end in stop() what start() began; what context.serve() began is ended by the engine"
UNDO = "release in start() what had begun, when it fails or is cancelled"


class LifeChecks(ToolsetChecks):
    """`start` and `stop`."""

    @check
    async def test_the_server_ends_with_its_rollout(self) -> None:
        """`stop` ends the server: nobody answers any more, and nothing is left (L50)."""
        with self.nothing_left(END):
            async with self.served() as served:
                expect(
                    await answers(served.url), f"no tool server answers under {served.url!r}", "return the server's URL"
                )
                await served.rollout.close()
                expect(not await answers(served.url), f"{served.url!r} still answers after stop()", END)
        unwarned(served.rollout, END)

    @check
    async def test_a_client_that_stays_does_not_hold_up_the_end(self) -> None:
        """`stop` ends the server while a client is connected, in time (L51)."""
        async with self.served() as served, served.client() as client:
            await client.list_tools()
            with self.in_time("the end of the rollout", "close the connections of the server in stop()"):
                await served.rollout.close()
        unwarned(served.rollout, END)

    @check
    async def test_a_call_that_runs_does_not_hold_up_the_end(self) -> None:
        """`stop` ends the server while a tool runs, in time (L51)."""
        if self.waits is None:
            self.skip("waits is not declared: it names a call that does not end by itself")
        async with self.served() as served, served.client() as client, trio.open_nursery() as nursery:
            nursery.start_soon(_until_it_ends, client, self.waits)
            await settled()
            with self.in_time("the end of the rollout", "cancel in stop() the calls that run"):
                await served.rollout.close()
            nursery.cancel_scope.cancel()
        unwarned(served.rollout, END)

    @check
    async def test_rollouts_have_servers_of_their_own(self) -> None:
        """Each rollout has a URL of its own, and the end of one is not the end of another (L42)."""
        async with open_engine() as engine, self.served(engine) as one, self.served(engine) as other:
            expect(
                one.url != other.url, f"two rollouts were given {one.url!r}", "put a secret of its own into each URL"
            )
            await one.rollout.close()
            expect(await answers(other.url), "a rollout's server ended with another one's", "stop its own server only")

    @check
    async def test_rollouts_do_not_share_what_they_write(self) -> None:
        """What a tool keeps belongs to its rollout (L42)."""
        if self.writes is None or self.reads is None:
            self.skip("writes and reads are not declared: they name calls that change and show what a tool keeps")
        async with (
            open_engine() as engine,
            self.served(engine) as one,
            self.served(engine) as other,
            one.client() as writer,
            other.client() as reader,
        ):
            before = text_of(await called(reader, self.reads))
            await called(writer, self.writes)
            written = text_of(await called(writer, self.reads))
            after = text_of(await called(reader, self.reads))
        expect(
            written != before,
            f"{self.reads!r} shows {written!r} before and after {self.writes!r}",
            "declare other calls",
        )
        expect(after == before, f"another rollout sees what {self.writes!r} wrote: {after!r}", "keep it in trace.state")

    @check
    async def test_a_start_that_fails_undoes_itself(self) -> None:
        """A start that fails undoes itself: it is not followed by `stop` (L8, L9)."""
        if (toolset := self.make_failing()) is None:
            self.skip("make_failing() is not defined: it returns a tool server whose start fails")
        with self.nothing_left(UNDO):
            async with (
                open_engine() as engine,
                engine.rollout(Task(), has_user=True, **self.settings(toolset)) as rollout,
            ):
                opened = await rollout.open()
        expect(not opened, "the rollout could be opened", "have make_failing() return what cannot start")
        unwarned(rollout, UNDO)

    @check
    async def test_a_start_that_is_cancelled_anywhere_undoes_itself(self) -> None:
        """A cancellation may come at any step of `start`; it passes on, and nothing is left (L8, L70)."""
        async with open_engine() as engine:

            async def life(strike: Strike) -> None:
                with self.nothing_left(UNDO):
                    async with engine.rollout(Task(), has_user=True, **self.settings()) as rollout:
                        await strike.call(rollout.open)
                unwarned(rollout, UNDO)

            await sweep(life, self.points)


async def _until_it_ends(client: ToolClient, call: Call) -> None:
    """Call a tool; its server ends first, so that this fails."""
    await raised_by(called(client, call))
