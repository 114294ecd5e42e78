"""What a harness that nobody trusts sees from inside a box: nothing but the box."""

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from rollout_fsm.testing.contract import check
from rollout_fsm.testing.expecting import expect, raised_by
from rollout_fsm.testing.runtime import scripts
from rollout_fsm.testing.runtime.base import RuntimeChecks
from rollout_fsm.testing.site import open_site

__all__ = ["IsolationChecks"]

DECLARE = "isolated = False declares that this runtime keeps nothing apart"


class IsolationChecks(RuntimeChecks):
    """Only where `isolated` is True."""

    @check
    async def test_processes_of_the_machine_are_not_seen(self) -> None:
        """A program sees neither command lines nor environments of the machine's other processes (L42)."""
        self._needs_isolation()
        secret = secrets.token_hex()
        with _process(secret):
            async with self.box() as box:
                seen = (await box.run(box.command(scripts.SPY))).stdout
        expect(
            secret not in seen, "a program reads the environment of a process outside", f"unshare processes; {DECLARE}"
        )

    @check
    async def test_processes_of_other_boxes_are_not_seen(self) -> None:
        """A program sees neither command lines nor environments of another box's programs (L42)."""
        self._needs_isolation()
        secret = secrets.token_hex()
        async with self.box("kit-one") as one, self.box("kit-two") as other:
            pipe, up = await one.pipes()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.run, one.command(scripts.HANG, pipe, up, secret))
                await one.sh(scripts.SHOW, up)
                seen = (await other.run(other.command(scripts.SPY))).stdout
                nursery.cancel_scope.cancel()
        expect(secret not in seen, "a program reads the command line of another box's", f"unshare processes; {DECLARE}")

    @check
    async def test_files_of_other_boxes_are_not_seen(self) -> None:
        """A program reads no file of another box's workspace, and neither does the box (L42)."""
        self._needs_isolation()
        secret = secrets.token_hex()
        async with self.box("kit-one") as one, self.box("kit-two") as other:
            await one.write("secret", secret)
            folder = (await one.sh(scripts.WHERE)).stdout.strip()
            for path in ("secret", f"{folder}/secret"):
                shown = (await other.run(other.command(scripts.SHOW, path))).stdout
                expect(
                    secret not in shown,
                    f"a program reads {path} of another box",
                    f"mount its own folder only; {DECLARE}",
                )
                came = await raised_by(other.read(path))
                expect(isinstance(came, FileNotFoundError), f"read({path!r}) finds what is another box's", DECLARE)

    @check
    async def test_services_of_the_machine_are_not_reached(self) -> None:
        """A program of the execution reaches no service on the machine's loopback interface but the framework's own
        routes, also without a policy (L5)."""
        self._needs_isolation()
        async with open_site() as own, open_site() as other, self.box() as box:
            await self.needs_fetching(box)
            await box.execute(own.route)
            for url in (other.route, box.runtime.host_url(other.route)):
                fetched = await box.fetch(url)
                expect(
                    fetched.exit_code != 0 and not other.visits,
                    f"a program reached {url}, which is no route",
                    f"give programs a network of their own, and the routes; {DECLARE}",
                )

    def _needs_isolation(self) -> None:
        if not self.isolated:
            self.skip("isolated is False: programs see the machine that they run on")


@contextmanager
def _process(secret: str) -> Iterator[None]:
    """A process of the machine with a secret in its environment, for a block."""
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, "KIT_SECRET": secret}) as process:
        try:
            yield
        finally:
            process.kill()
