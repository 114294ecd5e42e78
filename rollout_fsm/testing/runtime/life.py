"""A box is started and stopped, whatever becomes of it in between (L2, L8)."""

import trio

from rollout_fsm.errors import SandboxError
from rollout_fsm.foreign import call
from rollout_fsm.testing.contract import check
from rollout_fsm.testing.expecting import expect, raised_by, said
from rollout_fsm.testing.leases import check_leases
from rollout_fsm.testing.runtime import scripts
from rollout_fsm.testing.runtime.base import RuntimeChecks
from rollout_fsm.testing.site import open_site
from rollout_fsm.testing.sweep import Strike, sweep

__all__ = ["LifeChecks"]

REFUSE = "raise a SandboxError where the box does not stand: it was not started, or was stopped"


class LifeChecks(RuntimeChecks):
    """From the making of a box to its end."""

    @check
    async def test_a_box_bears_the_name_it_was_made_with(self) -> None:
        """`name` is the text that the factory was called with: an owned runtime is named after its trace (L2)."""
        name = self.make("kit-name").name
        expect(name == "kit-name", f"make('kit-name').name is {name!r}", "keep the name that the factory is given")

    @check
    async def test_a_box_that_was_only_made_holds_nothing(self) -> None:
        """Making a runtime acquires nothing: what never began to start is never stopped (L8)."""
        with self.nothing_left("acquire in start(), not in the constructor"):
            stopped = self.make("kit").stopped
        expect(
            stopped is False, f"stopped is {stopped!r} before start()", "let stopped be False until stop() is called"
        )

    @check
    async def test_stopped_says_whether_stop_was_called(self) -> None:
        """`stopped` tells an owner's bug from a failure: it is False until `stop` is called, and True from then on
        (L3)."""
        async with self.box() as box:
            standing = box.runtime.stopped
            expect(
                standing is False,
                f"stopped is {standing!r} in a box that stands",
                "return False until stop() is called",
            )
        after = box.runtime.stopped
        expect(after is True, f"stopped is {after!r} after stop()", "return True once stop() was called")

    @check
    async def test_a_box_that_stands_is_alive_and_a_stopped_one_is_not(self) -> None:
        """`alive` says whether the box still answers; it is asked after a program failed (L41)."""
        async with self.box() as box:
            standing = await call(box.runtime.alive)
            expect(
                standing is True, f"alive() returned {standing!r} for a box that stands", "return True while it answers"
            )
        after = await call(box.runtime.alive)
        expect(after is False, f"alive() returned {after!r} after stop()", "return False once the box is gone")

    @check
    async def test_stop_leaves_nothing_of_a_box_that_was_used(self) -> None:
        """`stop` takes the box down with everything in it (L8, L55)."""
        with self.nothing_left("remove in stop() all that start(), run() and write() have made"):
            async with self.box() as box:
                await box.write("folder/file", "x" * 1000)
                await box.sh(scripts.PUT, "made-by-a-program", "x")
                await box.leave()

    @check
    async def test_stop_ends_what_programs_left_running(self) -> None:
        """After `stop` no process of the box is left (L8, L55)."""
        async with open_site() as site:
            async with self.box() as box:
                await self.needs_fetching(box)
                await box.execute(site.route, site.endless)
                await box.sh(scripts.BACKGROUND, *box.fetching(box.runtime.host_url(site.endless)))
                with self.in_time(
                    "a program's connection to the host", "let programs reach the framework's own routes"
                ):
                    await site.held.wait()
            with self.in_time("a process of a box that was stopped", "end every process of the box in stop()"):
                await site.hung_up.wait()

    @check
    async def test_stop_may_be_called_again(self) -> None:
        """A further `stop` changes nothing, and raises nothing (L8)."""
        async with self.box() as box:
            await box.stop()
            again = await raised_by(box.stop())
            expect(again is None, f"the second stop() {said(again)}", "return where nothing is left to be stopped")

    @check
    async def test_stop_copes_with_a_start_that_never_came(self) -> None:
        """`stop` copes with a box that was never started (L8)."""
        with self.nothing_left("acquire nothing in stop()"):
            stop = await raised_by(call(self.make("kit").stop))
        expect(stop is None, f"stop() without start() {said(stop)}", "return where there is nothing to be stopped")

    @check
    async def test_stop_copes_with_a_start_that_failed(self) -> None:
        """`stop` follows a `start` that failed, copes with that, and releases what had begun (L8)."""
        if (runtime := self.make_failing("kit")) is None:
            self.skip("make_failing() is not defined: it returns a runtime whose start fails")
        with self.nothing_left("release in stop() what a start that failed has begun"):
            start = await raised_by(call(runtime.start))
            stop = await raised_by(call(runtime.stop))
        expect(start is not None, "start() of make_failing() returned", "have make_failing() return what cannot start")
        expect(stop is None, f"stop() after a start that failed {said(stop)}", "return where there is nothing to stop")

    @check
    async def test_a_start_that_is_cancelled_anywhere_is_released_by_stop(self) -> None:
        """A cancellation may come at any step of `start`; it passes on, and `stop` releases what had begun (L8,
        L70)."""

        async def life(strike: Strike) -> None:
            runtime = self.make("kit")
            with self.nothing_left("shield the step between asking for a handle and storing it; release it in stop()"):
                try:
                    await strike.call(runtime.start)
                finally:
                    stop = await raised_by(call(runtime.stop))
            expect(stop is None, f"stop() {said(stop)}", "cope in stop() with whatever start() had come to")

        await sweep(life, self.points)

    @check
    async def test_a_stop_that_is_cancelled_anywhere_is_finished_by_another(self) -> None:
        """A cancellation may come at any step of `stop`; a further `stop` releases what is left (L70)."""

        async def life(strike: Strike) -> None:
            with self.nothing_left("forget in stop() only what is gone, so that a further one goes on"):
                async with self.box() as box:
                    await box.write("folder/file", "x")
                    await box.leave()
                    await strike.call(box.runtime.stop)
                    stop = await raised_by(box.stop())
                    expect(stop is None, f"a further stop() {said(stop)}", "go on with what a cancelled stop() left")

        await sweep(life, self.points)

    @check
    async def test_a_program_that_runs_when_the_box_is_stopped_ends(self) -> None:
        """`stop` may come while a program runs: that `run` ends with a result or a `SandboxError`, and soon (L8)."""
        async with self.box() as box:
            pipe, up = await box.pipes()

            async def runs() -> None:
                ended = await raised_by(box.run(box.command(scripts.HANG, pipe, up)))
                expect(
                    ended is None or isinstance(ended, SandboxError),
                    f"run() {said(ended)}",
                    "raise a SandboxError that says that the box was stopped",
                )

            with self.in_time("run()", "end in stop() whatever runs, so that its run() ends, too"):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(runs)
                    await box.sh(scripts.SHOW, up)
                    await box.stop()

    @check
    async def test_a_box_that_does_not_stand_runs_nothing(self) -> None:
        """`run` raises `SandboxError` where the box cannot run programs: before `start` and after `stop` (L40)."""
        never = self.boxed(self.make("kit"))
        async with self.box() as stopped:
            pass
        for when, box in {"before start()": never, "after stop()": stopped}.items():
            came = await raised_by(box.run(box.command(scripts.EXIT, "0")))
            expect(isinstance(came, SandboxError), f"run() {when} {said(came)}", REFUSE)

    @check
    async def test_a_stopped_box_has_no_files(self) -> None:
        """`read` and `write` raise after `stop`; nothing of the box is made anew (L8)."""
        with self.nothing_left("make nothing in a box that was stopped"):
            async with self.box() as box:
                await box.write("file", "x")
            came = {"read": await raised_by(box.read("file")), "write": await raised_by(box.write("file", "x"))}
        for what, error in came.items():
            expect(isinstance(error, SandboxError), f"{what}() after stop() {said(error)}", REFUSE)

    @check
    async def test_a_box_is_found_again_by_its_lease(self) -> None:
        """Another process removes or takes over the box of one that has died, by its lease alone (L73)."""
        if not self.has_leases:
            self.skip("has_leases is False: boxes of this runtime are not found again")
        program = [*self.shell, scripts.EXIT, "kit", "0"]
        faults = await check_leases(self.make, program=program)
        expect(
            not faults,
            "; ".join(faults),
            "see `Runtime.lease`, `reclaim` and `adopt`; has_leases = False says that no box is found again",
        )
