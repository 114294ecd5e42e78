"""Programs run in a box to their end, say how they ended, and are ended when they are not waited for any more (L13,
L41)."""

import os
from signal import Signals

import trio

from rollout_fsm.testing.contract import check
from rollout_fsm.testing.expecting import expect, raised_by, said
from rollout_fsm.testing.runtime import scripts
from rollout_fsm.testing.runtime.base import RuntimeChecks
from rollout_fsm.testing.runtime.box import Box
from rollout_fsm.testing.sweep import Strike, sweep

__all__ = ["ProgramChecks"]

SECRET = "ROLLOUT_FSM_KIT_SECRET"
SHORT = 0.5
"""Seconds after which a program that never ends is first given up; twice as many if it was not up by then."""
UNREAD = 1 << 20
"""Bytes of an input that nobody reads: more than any pipe holds."""
ALL_KILLED = "kill the program and all that it started, and wait for them, before run() is left"


class ProgramChecks(RuntimeChecks):
    """What `run` takes, what it returns, and what it leaves."""

    @check
    async def test_the_exit_status_of_a_program_is_told(self) -> None:
        """`exit_code` is the status that the program exited with; one that is not 0 is no exception (L41)."""
        async with self.box() as box:
            for status in (0, 1, 77, 255):
                code = (await box.run(box.command(scripts.EXIT, str(status)))).exit_code
                expect(code == status, f"`exit {status}` has exit_code {code!r}", "return the program's own status")

    @check
    async def test_the_signal_that_ended_a_program_is_told_as_a_minus_number(self) -> None:
        """`exit_code` is minus the number of the signal that ended the program (L41)."""
        async with self.box() as box:
            for signal in (Signals.SIGKILL, Signals.SIGTERM):
                name = signal.name.removeprefix("SIG")
                code = (await box.run(box.command(scripts.STRIKE_ITSELF, name))).exit_code
                expect(
                    code == -signal,
                    f"a program that {signal.name} ended has exit_code {code!r}",
                    f"return {-signal}; shells and containers say {128 + signal}",
                )

    @check
    async def test_the_two_outputs_come_apart_and_as_text(self) -> None:
        """`stdout` and `stderr` are what the program printed on each, as text, also where it is no UTF-8
        (L41)."""
        async with self.box() as box:
            result = await box.sh(scripts.BOTH_OUTPUTS, "one ä", "two\n")
            came = f"stdout is {result.stdout!r} and stderr is {result.stderr!r}, printed were 'one ä' and 'two\\n'"
            expect(
                (result.stdout, result.stderr) == ("one ä", "two\n"), came, "capture each of them, and change nothing"
            )
            odd = (await box.sh(scripts.NO_TEXT)).stdout
            expect(
                isinstance(odd, str) and odd.startswith("before") and odd.endswith("after"),
                f"bytes that are no UTF-8 are told as {odd!r}",
                "decode with errors='replace'",
            )

    @check
    async def test_arguments_reach_a_program_as_they_are(self) -> None:
        """`argv` is a list of arguments: no shell looks at them."""
        given = ["two words", "$HOME", "'\"`\\", "", "*", "ä\n"]
        async with self.box() as box:
            printed = (await box.sh(scripts.ARGUMENTS, *given)).stdout
            expect(
                printed == "".join(f"<{each}>" for each in given),
                f"a program was given {given!r} and saw {printed!r}",
                "hand argv over as a list; where it has to pass a shell, quote each (shlex.join)",
            )

    @check
    async def test_variables_are_added_to_the_runtimes_own(self) -> None:
        """`env` is added to the runtime's few variables: programs are found with it and without."""
        async with self.box() as box:
            result = await box.run(["env"], env={"KIT_ONE": "two words", "KIT_TWO": ""})
            lines = result.stdout.splitlines()
            expect(
                result.exit_code == 0 and "KIT_ONE=two words" in lines and "KIT_TWO=" in lines,
                f"`env` ended with {result.exit_code} and printed {lines!r}",
                "give a program the variables of `env`, and a PATH",
            )
            lines = (await box.run(["env"])).stdout.splitlines()
            stays = [line for line in lines if line.startswith("KIT_")]
            expect(
                not stays, f"the next program still has {stays!r}", "keep what belongs to one program out of the next"
            )

    @check
    async def test_no_variable_of_the_engine_reaches_a_program(self) -> None:
        """Programs have no variables but the runtime's few and those of `env`: the engine's hold its keys."""
        os.environ[SECRET] = "secret"
        try:
            async with self.box() as box:
                printed = (await box.run(["env"])).stdout
        finally:
            del os.environ[SECRET]
        expect(
            SECRET not in printed,
            f"a program sees {SECRET} of this process",
            "start programs with variables of their own",
        )

    @check
    async def test_input_is_what_a_program_reads(self) -> None:
        """`input` is the program's standard input, bytes or text; without, that is empty."""
        async with self.box() as box:
            for given in ("text ä", b"bytes\n", None):
                with self.in_time(f"a program that reads its input, which is {given!r},", "close its standard input"):
                    printed = (await box.run(["cat"], input=given)).stdout
                meant = given.decode() if isinstance(given, bytes) else given or ""
                expect(
                    printed == meant, f"of the input {given!r} the program read {printed!r}", "hand it over as it is"
                )

    @check
    async def test_input_that_nobody_reads_hinders_nothing(self) -> None:
        """A program may end without having read its input."""
        async with self.box() as box:
            with self.in_time("a program that does not read its input", "stop writing when the program has ended"):
                code = (await box.run(box.command(scripts.EXIT, "3"), input=b"x" * UNREAD)).exit_code
            expect(code == 3, f"its exit_code is {code!r}, not 3", "take a closed standard input for no failure")

    @check
    async def test_long_outputs_are_cut_and_say_so(self) -> None:
        """`stdout` and `stderr` are capped: the head and the tail are kept, and the text says what was cut (L41)."""
        async with self.box() as box:
            printed = (await box.sh(scripts.FLOOD, str(self.flood))).stdout
        expect(
            len(printed) < self.flood,
            f"of {self.flood} bytes, all {len(printed)} were kept",
            "cap it (see rollout_fsm.runtimes.HeadTail); `flood` says what is longer than your cap",
        )
        ends = (printed[:20], printed[-20:])
        expect(
            printed.startswith("first\n") and printed.endswith("last\n"),
            f"it begins with {ends[0]!r} and ends with {ends[1]!r}, not with 'first' and 'last'",
            "keep the head and the tail of an output, where the reasons stand",
        )
        notice = printed.replace("first\n", "").replace("last\n", "").replace("filler\n", "")
        expect(len(notice) > len("filler" * 2), "nothing in the text says that it was cut", "say how much was left out")

    @check
    async def test_a_program_that_is_not_there_is_said_to_be_missing(self) -> None:
        """`run` raises `FileNotFoundError` where there is no such program: it is the harness's mistake, not the box's
        (L40)."""
        async with self.box() as box:
            came = await raised_by(box.run(["rollout-fsm-no-such-program"]))
            expect(
                isinstance(came, FileNotFoundError),
                f"run() of a program that is not there {said(came)}",
                "raise a FileNotFoundError that names it, and where it was looked for",
            )

    @check
    async def test_programs_run_side_by_side(self) -> None:
        """Any number of programs may run at once: tools, servers, parallel agents (L24)."""
        async with self.box() as box:
            here, there = await box.pipes()
            with self.in_time(
                "one of two programs that wait for each other", "let run() be called again while it runs"
            ):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(box.sh, scripts.ASK, here, there, "one")
                    nursery.start_soon(box.sh, scripts.ANSWER, here, there, "two")

    @check
    async def test_what_a_program_leaves_behind_lives_on(self) -> None:
        """What a program started lives on after its end until the box is stopped: a reward may probe the server that
        the agent built (L13)."""
        async with self.box() as box:
            server = await box.serve()
            expect(await box.answers(server), "a server that a program left behind does not answer", "leave it alone")

    @check
    async def test_a_timeout_kills_the_program_and_what_it_started(self) -> None:
        """After `timeout` seconds the program and all that it started are killed, and `TimeoutError` is raised; the box
        goes on (L74)."""
        await self._times_out(scripts.HANG, ALL_KILLED)

    @check
    async def test_a_timeout_kills_what_ignores_being_asked(self) -> None:
        """A program that ignores TERM is killed all the same (L74)."""
        await self._times_out(scripts.HANG_STUBBORNLY, "send KILL to what does not end by TERM")

    @check
    async def test_a_run_that_is_cancelled_anywhere_leaves_no_program(self) -> None:
        """A cancellation may come at any step of `run`; it passes on once the program and its group are dead, and the
        box goes on (L13, L70)."""
        async with self.box() as box:

            async def life(strike: Strike) -> None:
                pipe, _ = await box.pipes()
                done = box.name()
                await strike.call(box.runtime.run, box.command(scripts.LEAVE_AND_COPY, pipe, done), input="x" * 100)
                if await raised_by(box.read(done)) is not None:  # it had not come to its end by itself
                    expect(await box.silent(pipe), "what the program started lives on", ALL_KILLED)

            await sweep(life, self.points)

    async def _times_out(self, script: str, change: str) -> None:
        async with self.box() as box:
            pipe = await self._given_up(box, script)
            expect(await box.silent(pipe), "what the program started lives on after the TimeoutError", change)

    async def _given_up(self, box: Box, script: str) -> str:
        """Run what never ends until it is up, and given up; returns its pipe."""
        seconds = SHORT
        while True:
            pipe, _ = await box.pipes()
            up = box.name()
            with self.in_time(f"run() with a timeout of {seconds:g} s", "end the program when its time is out"):
                came = await raised_by(box.run(box.command(script, pipe, up), timeout=seconds))
            expect(
                isinstance(came, TimeoutError), f"run() {said(came)}", "raise TimeoutError, once the program is dead"
            )
            if await raised_by(box.read(up)) is None:
                return pipe
            seconds *= 2
