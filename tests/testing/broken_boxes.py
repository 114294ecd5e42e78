"""Runtimes that each break one promise of the contract, under the name of the test that finds it."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import trio

from rollout_fsm.errors import SandboxError
from rollout_fsm.messages import JSON
from rollout_fsm.network import NetworkPolicy
from rollout_fsm.runtime import ProgramResult, Route
from rollout_fsm.testing.runtime import scripts
from tests.testing.memory_box import MACHINE, MemoryBox, Process, Program, Standing, checkpoint, printed

Kind = TypeVar("Kind", bound=type[MemoryBox])

BROKEN: defaultdict[str, list[type[MemoryBox]]] = defaultdict(list)

DESERTED: list[Process] = []
"""Processes that are left of boxes that were stopped."""


def breaks(test: str) -> Callable[[Kind], Kind]:
    """Says which test finds it."""

    def found(kind: Kind) -> Kind:
        BROKEN[test].append(kind)
        return kind

    return found


# --- its life


@breaks("test_a_box_bears_the_name_it_was_made_with")
class Nameless(MemoryBox):
    def __init__(self, name: str) -> None:
        super().__init__("box")


@breaks("test_a_box_that_was_only_made_holds_nothing")
class Early(MemoryBox):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        MACHINE[f"early-{self.token}"] = Standing()

    async def stop(self) -> None:
        MACHINE.pop(f"early-{self.token}", None)
        await super().stop()


@breaks("test_stopped_says_whether_stop_was_called")
class NeverStopped(MemoryBox):
    @property
    def stopped(self) -> bool:
        return False


@breaks("test_a_box_that_stands_is_alive_and_a_stopped_one_is_not")
class Dead(MemoryBox):
    async def alive(self) -> bool:
        return False


@breaks("test_stop_leaves_nothing_of_a_box_that_was_used")
class Hoarding(MemoryBox):
    async def put(self, program: Program) -> ProgramResult:
        MACHINE[f"hoarded-{self.token}"] = Standing()
        return await super().put(program)


@breaks("test_stop_ends_what_programs_left_running")
class Deserting(MemoryBox):
    def end_at_stop(self, standing: Standing, process: Process) -> None:
        if process.connection is None:
            standing.end(process)
        else:
            DESERTED.append(process)


@breaks("test_stop_may_be_called_again")
class StoppedOnce(MemoryBox):
    used = False

    async def make_pipes(self, program: Program) -> ProgramResult:
        self.used = True
        return await super().make_pipes(program)

    async def stop(self) -> None:
        if self._stopped and not self.used:
            raise SandboxError("it is stopped already")
        await super().stop()


@breaks("test_stop_copes_with_a_start_that_never_came")
class StoppedAfterStart(MemoryBox):
    async def stop(self) -> None:
        if not self.began and self.name == "kit":
            raise SandboxError("it was not started")
        await super().stop()


@breaks("test_stop_copes_with_a_start_that_failed")
class StoppedAfterSuccess(MemoryBox):
    async def stop(self) -> None:
        if self.cannot_start:
            raise KeyError(self.token)
        await super().stop()


@breaks("test_stop_copes_with_a_start_that_failed")
class LeavesHalfAStart(MemoryBox):
    async def start(self) -> None:
        if self.cannot_start:
            MACHINE[f"half-{self.token}"] = Standing()
        await super().start()


@breaks("test_a_start_that_is_cancelled_anywhere_is_released_by_stop")
class Unshielded(MemoryBox):
    async def start(self) -> None:
        MACHINE[f"handle-{self.token}"] = Standing()
        await checkpoint()  # the handle is asked for, and not stored yet
        del MACHINE[f"handle-{self.token}"]
        await super().start()


@breaks("test_a_start_that_is_cancelled_anywhere_is_released_by_stop")
class TurnsCancellations(MemoryBox):
    async def start(self) -> None:
        try:
            await super().start()
        except trio.Cancelled:
            raise SandboxError("the start was interrupted") from None


@breaks("test_a_stop_that_is_cancelled_anywhere_is_finished_by_another")
class StopsOnce(MemoryBox):
    async def stop(self) -> None:
        if not self._stopped:
            await super().stop()


@breaks("test_a_program_that_runs_when_the_box_is_stopped_ends")
class Outliving(MemoryBox):
    def end_at_stop(self, standing: Standing, process: Process) -> None:
        if process.scope is None:
            standing.end(process)


@breaks("test_a_box_that_does_not_stand_runs_nothing")
class RunsAnywhere(MemoryBox):
    async def run(self, argv: Sequence[str], **settings: object) -> ProgramResult:
        if self.began:
            return await super().run(argv, **settings)  # type: ignore[arg-type]
        return printed("")


@breaks("test_a_stopped_box_has_no_files")
class Remembering(MemoryBox):
    async def read(self, path: str) -> bytes:
        return b"" if self._stopped else await super().read(path)


@breaks("test_a_stopped_box_has_no_files")
class WritesAnywhere(MemoryBox):
    async def write(self, path: str, data: bytes | str) -> None:
        if not self._stopped:
            await super().write(path, data)


@breaks("test_a_box_is_found_again_by_its_lease")
class NotReclaimed(MemoryBox):
    @classmethod
    async def reclaim(cls, lease: Mapping[str, JSON]) -> None:
        await checkpoint()


# --- programs


@breaks("test_the_exit_status_of_a_program_is_told")
class SevenBits(MemoryBox):
    async def exit(self, program: Program) -> ProgramResult:
        return ProgramResult(exit_code=(await super().exit(program)).exit_code & 127)


@breaks("test_the_signal_that_ended_a_program_is_told_as_a_minus_number")
class AsAShellSays(MemoryBox):
    async def strike_itself(self, program: Program) -> ProgramResult:
        return ProgramResult(exit_code=128 - (await super().strike_itself(program)).exit_code)


@breaks("test_the_two_outputs_come_apart_and_as_text")
class OneOutput(MemoryBox):
    async def both_outputs(self, program: Program) -> ProgramResult:
        return printed("".join(program.arguments))


@breaks("test_the_two_outputs_come_apart_and_as_text")
class StrictlyText(MemoryBox):
    async def no_text(self, program: Program) -> ProgramResult:
        return printed(b"before\377\376after".decode())


@breaks("test_arguments_reach_a_program_as_they_are")
class Trimming(MemoryBox):
    def as_given(self, arguments: Sequence[str]) -> Sequence[str]:
        return [each.strip() for each in arguments] if len(arguments) > 3 else arguments


@breaks("test_variables_are_added_to_the_runtimes_own")
class NoEmptyVariables(MemoryBox):
    def variables(self, added: Mapping[str, str]) -> Mapping[str, str]:
        return super().variables({name: value for name, value in added.items() if value})


@breaks("test_variables_are_added_to_the_runtimes_own")
class KeepsVariables(MemoryBox):
    def variables(self, added: Mapping[str, str]) -> Mapping[str, str]:
        return super().variables({**self.environment, **added})


@breaks("test_no_variable_of_the_engine_reaches_a_program")
class InheritsVariables(MemoryBox):
    def variables(self, added: Mapping[str, str]) -> Mapping[str, str]:
        return super().variables({**os.environ, **added})


@breaks("test_input_is_what_a_program_reads")
class NoEndOfInput(MemoryBox):
    async def copy(self, program: Program) -> ProgramResult:
        if program.input is None:
            await trio.sleep_forever()
        return await super().copy(program)


@breaks("test_input_that_nobody_reads_hinders_nothing")
class BrokenPipe(MemoryBox):
    async def exit(self, program: Program) -> ProgramResult:
        if program.input:
            raise BrokenPipeError("nobody reads the input")
        return await super().exit(program)


@breaks("test_long_outputs_are_cut_and_say_so")
class Uncapped(MemoryBox):
    def capped(self, output: str) -> str:
        return output


@breaks("test_long_outputs_are_cut_and_say_so")
class KeepsTheHead(MemoryBox):
    def capped(self, output: str) -> str:
        return output[:1000] + "[the rest is left out]" * (len(output) > 1000)


@breaks("test_long_outputs_are_cut_and_say_so")
class CutsInSilence(MemoryBox):
    def capped(self, output: str) -> str:
        return output if len(output) < 1000 else output[:300] + output[-300:]


@breaks("test_a_program_that_is_not_there_is_said_to_be_missing")
class BlamesTheBox(MemoryBox):
    def missing(self, program: str) -> Exception:
        return SandboxError(f"{program} cannot be run")


@breaks("test_programs_run_side_by_side")
class OneByOne(MemoryBox):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._lock = trio.Lock()

    async def ask(self, program: Program) -> ProgramResult:
        async with self._lock:
            return await super().ask(program)

    async def answer(self, program: Program) -> ProgramResult:
        async with self._lock:
            return await super().answer(program)


@breaks("test_what_a_program_leaves_behind_lives_on")
class TidyInSetup(MemoryBox):
    def is_served(self, pipe: str) -> bool:
        return self.executing and super().is_served(pipe)


@breaks("test_a_timeout_kills_the_program_and_what_it_started")
class KillsTheProgramOnly(MemoryBox):
    def end_timed_out(self, standing: Standing, program: Program, before: set[Process]) -> None:
        if program.script != scripts.HANG:
            super().end_timed_out(standing, program, before)


@breaks("test_a_timeout_kills_what_ignores_being_asked")
class AsksOnly(MemoryBox):
    def end_timed_out(self, standing: Standing, program: Program, before: set[Process]) -> None:
        if program.script != scripts.HANG_STUBBORNLY:
            super().end_timed_out(standing, program, before)


@breaks("test_a_run_that_is_cancelled_anywhere_leaves_no_program")
class DetachedWhenCancelled(MemoryBox):
    def end_cancelled(self, standing: Standing, program: Program, before: set[Process]) -> None:
        standing.end(program.process)


# --- files


@breaks("test_a_file_is_read_as_it_was_written")
class OneKindOfLine(MemoryBox):
    async def write(self, path: str, data: bytes | str) -> None:
        await super().write(path, data.replace("\r\n", "\n") if isinstance(data, str) else data)


@breaks("test_a_file_that_is_there_is_replaced")
class WritesOver(MemoryBox):
    async def write(self, path: str, data: bytes | str) -> None:
        before = self.standing.files.get(path, b"")
        await super().write(path, data)
        files = self.standing.files
        files[path] += before[len(files[path]) :]


@breaks("test_folders_are_made_as_needed")
class NoFolders(MemoryBox):
    async def write(self, path: str, data: bytes | str) -> None:
        if path.count("/") > 1:
            raise FileNotFoundError(f"there is no folder {path!r}")
        await super().write(path, data)


@breaks("test_programs_and_the_engine_share_the_workspace")
class RelativeOnly(MemoryBox):
    def file(self, path: str) -> str:
        return path


@breaks("test_a_file_that_is_not_there_is_said_to_be_missing")
class NoSuchKey(MemoryBox):
    async def read(self, path: str) -> bytes:
        if path == "no/such/file":
            raise KeyError(path)
        return await super().read(path)


# --- the execution


@breaks("test_programs_run_before_and_after_the_execution_begins")
class FreshForExecution(MemoryBox):
    async def prepare_execution(self, routes: Sequence[Route]) -> None:
        await super().prepare_execution(routes)
        self.standing.files.clear()


@breaks("test_kill_ends_what_the_harness_started")
class SaysNothingOfItsFirstKill(MemoryBox):
    has_killed = False

    async def kill(self) -> bool:
        before, self.has_killed = self.has_killed, self.executing
        return await super().kill() and before is self.executing


@breaks("test_kill_spares_what_the_setup_started")
class KillsAll(MemoryBox):
    def is_harness(self, process: Process) -> bool:
        return self.executing


@breaks("test_a_kill_that_is_cancelled_anywhere_is_finished_by_another")
class ForgetsWhomToKill(MemoryBox):
    async def kill(self) -> bool:
        doomed = [process for process in self.standing.processes if process.of_harness]
        for process in doomed:
            process.of_harness = False
        await checkpoint()
        for process in doomed:
            self.standing.end(process)
        return True


@breaks("test_host_url_maps_a_url_to_a_url")
class DropsThePath(MemoryBox):
    def host_url(self, url: str) -> str:
        return super().host_url(url).removesuffix("/v1")


@breaks("test_the_frameworks_own_routes_are_reached_in_the_execution")
class NoRoutes(MemoryBox):
    def reaches(self, url: str) -> bool:
        return super().reaches(url) and (self.policy is not None or url.endswith("/endless"))


@breaks("test_a_policy_is_enforced_or_refused")
class IgnoresPolicies(MemoryBox):
    @property
    def restricted(self) -> bool:
        return False


@breaks("test_a_policy_is_enforced_or_refused")
class SaysThePolicy(MemoryBox):
    @property
    def restricted(self) -> bool:
        return self.policy  # type: ignore[return-value]


@breaks("test_a_policy_is_enforced_or_refused")
class TakesWhatItRefuses(MemoryBox):
    def restrict(self, network: NetworkPolicy | None) -> None:
        super().restrict(network)
        if network is not None:
            raise SandboxError("this box holds nobody to a policy")


@breaks("test_the_policy_of_a_task_ends_with_it")
class KeepsPolicies(MemoryBox):
    def restrict(self, network: NetworkPolicy | None) -> None:
        super().restrict(network or self.policy)


@breaks("test_the_policy_of_a_task_ends_with_it")
class WantsAPolicy(MemoryBox):
    def restrict(self, network: NetworkPolicy | None) -> None:
        if network is None:
            raise SandboxError("there is no policy to hold anybody to")
        super().restrict(network)


@breaks("test_the_frameworks_own_routes_stay_open_under_a_policy")
class PolicyAboveAll(MemoryBox):
    def reaches(self, url: str) -> bool:
        return super().reaches(url) and self.policy is None


@breaks("test_a_policy_that_allows_nothing_lets_nothing_else_be_reached")
class OpenUnderAPolicy(MemoryBox):
    def reaches(self, url: str) -> bool:
        return super().reaches(url) or self.policy is not None


# --- what is seen from inside


def environments() -> Iterator[str]:
    """The variables of all processes that can be seen; some are gone by then, others somebody else's."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            yield from path.read_text(errors="replace").split("\0")


@breaks("test_processes_of_the_machine_are_not_seen")
class SeesTheMachine(MemoryBox):
    async def spy(self, program: Program) -> ProgramResult:
        return printed("".join(word for word in environments() if word.startswith("KIT")))


@breaks("test_processes_of_other_boxes_are_not_seen")
class SeesOtherProcesses(MemoryBox):
    def visible(self) -> Sequence[Process]:
        return [process for standing in MACHINE.values() for process in standing.processes]


@breaks("test_files_of_other_boxes_are_not_seen")
class SeesOtherFiles(MemoryBox):
    def content(self, path: str) -> bytes | None:
        return next((box.files[path] for box in MACHINE.values() if path in box.files), None)


@breaks("test_files_of_other_boxes_are_not_seen")
class ReadsOtherFiles(MemoryBox):
    async def read(self, path: str) -> bytes:
        if found := next((box.files[path] for box in MACHINE.values() if path in box.files), None):
            return found
        return await super().read(path)


@breaks("test_services_of_the_machine_are_not_reached")
class OpenWithoutAPolicy(MemoryBox):
    def reaches(self, url: str) -> bool:
        return super().reaches(url) or self.policy is None
