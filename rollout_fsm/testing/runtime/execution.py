"""The execution: from `prepare_execution` on, programs are the harness's, can be killed as such, and reach what the
engine lets them reach (L5, L13)."""

from contextlib import suppress

from rollout_fsm.errors import SandboxError
from rollout_fsm.network import NetworkPolicy
from rollout_fsm.runtime import ProgramResult
from rollout_fsm.testing.contract import check
from rollout_fsm.testing.expecting import expect
from rollout_fsm.testing.runtime import scripts
from rollout_fsm.testing.runtime.base import RuntimeChecks
from rollout_fsm.testing.site import open_site
from rollout_fsm.testing.sweep import Strike, sweep

__all__ = ["ExecutionChecks"]

NOTHING = NetworkPolicy(allow=())
"""Lets nothing be reached but the framework's own routes."""

LET_THROUGH = "keep the routes of prepare_execution() open, and map their URLs in host_url() to what programs reach"


class ExecutionChecks(RuntimeChecks):
    """`prepare_execution`, `kill`, `restrict` and `host_url`."""

    @check
    async def test_programs_run_before_and_after_the_execution_begins(self) -> None:
        """`prepare_setup` and then `prepare_execution` are called, once each; programs and files work after both (L2,
        L5)."""
        async with self.box() as box:
            await box.sh(scripts.PUT, "file", "setup")
            await box.execute()
            await box.sh(scripts.SHOW, "file")
            read = await box.read("file")
            expect(
                read == b"setup", f"a file of the setup has {read!r} in the execution, not b'setup'", "keep the files"
            )

    @check
    async def test_kill_ends_what_the_harness_started(self) -> None:
        """`kill` ends every process that was started since `prepare_execution`, waits for them, and returns True
        (L13)."""
        async with self.box() as box:
            await box.execute()
            pipe = await box.leave()
            killed = await box.kill()
            expect(
                killed is True, f"kill() returned {killed!r}", "return True once none is left, False if some survive"
            )
            expect(await box.silent(pipe), "a process that the harness left behind lives on after kill()", "kill it")

    @check
    async def test_kill_spares_what_the_setup_started(self) -> None:
        """What was started before `prepare_execution` is the task's, and stays until `stop` (L13)."""
        async with self.box() as box:
            server = await box.serve()
            before = await box.kill()
            expect(
                before is True,
                f"kill() before prepare_execution() returned {before!r}",
                "return True: nothing survives",
            )
            await box.execute()
            await box.leave()
            await box.kill()
            answers = await box.answers(server)
            expect(
                answers, "a server of the setup does not answer any more after kill()", "kill what came after it only"
            )

    @check
    async def test_a_kill_that_is_cancelled_anywhere_is_finished_by_another(self) -> None:
        """A cancellation may come at any step of `kill`; a further `kill` ends what is left, and the box goes on
        (L13, L70)."""
        async with self.box() as box:
            await box.execute()

            async def life(strike: Strike) -> None:
                pipe = await box.leave()
                await strike.call(box.runtime.kill)
                again = await box.kill()
                expect(again is True, f"a further kill() returned {again!r}", "end what is left, and return True")
                expect(await box.silent(pipe), "a process lives on after a further kill()", "end what is left")

            await sweep(life, self.points)

    @check
    async def test_host_url_maps_a_url_to_a_url(self) -> None:
        """`host_url` returns the URL, as text, under which programs in the box reach one of the engine's host
        (L5)."""
        async with self.box() as box:
            url = box.runtime.host_url("http://127.0.0.1:8000/v1")
            expect(
                isinstance(url, str) and url.startswith("http://") and url.endswith("/v1"),
                f"host_url('http://127.0.0.1:8000/v1') returned {url!r}",
                "change the host and the port at most",
            )

    @check
    async def test_the_frameworks_own_routes_are_reached_in_the_execution(self) -> None:
        """The routes given to `prepare_execution` are reached by programs at the URL that `host_url` says (L5)."""
        async with open_site() as site, self.box() as box:
            await self.needs_fetching(box)
            await box.execute(site.route)
            self._reached(await box.fetch(box.runtime.host_url(site.route)), site.page)

    @check
    async def test_a_policy_is_enforced_or_refused(self) -> None:
        """`restrict` holds programs to a network policy and says so by `restricted`, or raises `SandboxError`: one that
        is ignored is worse than none (L5)."""
        runtime = self.make("kit")
        before = runtime.restricted
        expect(isinstance(before, bool), f"restricted is {before!r}", "return a bool: whether anything is kept away")
        try:
            runtime.restrict(NOTHING)
        except SandboxError:
            after = runtime.restricted
            expect(after is before, f"restricted is {after!r} though restrict() refused", "change nothing then")
        else:
            after = runtime.restricted
            expect(after is True, f"restricted is {after!r} after restrict()", "return True, or raise a SandboxError")

    @check
    async def test_the_policy_of_a_task_ends_with_it(self) -> None:
        """A borrowed runtime is asked again before each use: the policy of a task takes the place of that of the task
        before, and with None there is none (L5)."""
        runtime = self.make("kit")
        before = runtime.restricted
        with suppress(SandboxError):
            runtime.restrict(NOTHING)
        runtime.restrict(None)
        after = runtime.restricted
        expect(after is before, f"restricted is {after!r} after restrict(None)", "forget the policy of the task before")

    @check
    async def test_the_frameworks_own_routes_stay_open_under_a_policy(self) -> None:
        """The framework's own routes stay open whatever the policy (L5)."""
        self.needs_restricting()
        async with open_site() as site, self.box(network=NOTHING) as box:
            await self.needs_fetching(box)
            await box.execute(site.route)
            self._reached(await box.fetch(box.runtime.host_url(site.route)), site.page)

    @check
    async def test_a_policy_that_allows_nothing_lets_nothing_else_be_reached(self) -> None:
        """Under a policy that allows nothing, programs of the execution reach the framework's own routes alone (L5)."""
        self.needs_restricting()
        async with open_site() as other, self.box(network=NOTHING) as box:
            await self.needs_fetching(box)
            await box.execute()
            for url in (other.route, box.runtime.host_url(other.route)):
                fetched = await box.fetch(url)
                expect(
                    fetched.exit_code != 0 and not other.visits,
                    f"a program reached {url}, a service of the machine that is no route",
                    "take the network away in prepare_execution(), but for the routes",
                )

    def needs_restricting(self) -> None:
        """Skip the test where the runtime refuses policies."""
        try:
            self.make("kit").restrict(NOTHING)
        except SandboxError as refused:
            self.skip(f"restrict() refuses policies: {refused}")

    @staticmethod
    def _reached(fetched: ProgramResult, page: str) -> None:
        came = f"a program that asked for it ended with {fetched.exit_code}: {fetched.stderr or fetched.stdout}"
        expect(fetched.exit_code == 0 and fetched.stdout == page, came, LET_THROUGH)
