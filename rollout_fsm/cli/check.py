"""`rollout-fsm check`: the proofs on the declaration, or the conformance of files of traces."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from rollout_fsm.cli.command import Command
from rollout_fsm.cli.faults import EXIT_FAULTS, UsageError
from rollout_fsm.cli.harmless import harmless
from rollout_fsm.cli.screen import Screen
from rollout_fsm.cli.trace_files import traces_in, traces_path
from rollout_fsm.conformance import check_trace
from rollout_fsm.machine import DeclarationError, load_machine
from rollout_fsm.machine.check import STRUCTURE
from rollout_fsm.machine.endings_file import load_endings
from rollout_fsm.machine.endings_proof import ENDING_PROPERTIES, check_endings
from rollout_fsm.machine.proofs import PROPERTIES, prove

__all__ = ["check"]


def check(
    *traces: Annotated[Path, Parameter(metavar="TRACES")],
) -> Command:
    """Prove the declared machine, or check that recorded traces are legal lives of it. Exits with 1 on faults.

    Parameters
    ----------
    traces
        Files of traces, or folders of runs. Without any, the declaration is proven: P1 to P10, D1 and D2 on its rows,
        S1 to S4 by following every life that a rollout could have on it, M1 by firing the compiled machine, E1 and E2
        on the table of endings.
    """

    def command(screen: Screen) -> int:
        return _traces(traces, screen) if traces else _machine(screen)

    return command


def _machine(screen: Screen) -> int:
    try:
        declaration = load_machine()
        endings = load_endings(declaration=declaration)
    except DeclarationError as error:
        for fault in error.faults:
            screen.complain(fault, "red")
        return EXIT_FAULTS
    faults = [*prove(declaration), *check_endings(endings)]
    sound = not any(fault.property in STRUCTURE for fault in faults)
    states, rows = len(declaration.states), len(declaration.rows)
    screen.say(f"the declaration: {states} states, {rows} rows, {len(endings.rows)} endings")
    for name, meaning in {**PROPERTIES, **ENDING_PROPERTIES}.items():
        wrong = [fault for fault in faults if fault.property == name]
        mark = ("fails", "bold red") if wrong else ("holds", "green") if sound or name in STRUCTURE else ("  ?  ", "")
        screen.say(Text.assemble("  ", mark, f"  {name:<4} ", meaning))
        for broken in wrong:
            screen.say(Text.assemble("           ", (harmless(str(broken), keep=""), "red")))
    if not sound:
        screen.say("?: not tried, since these proofs stand on those before")
    if faults:
        screen.say(Text(f"{len(faults)} fault{'s' if len(faults) > 1 else ''}", "bold red"))
    return EXIT_FAULTS if faults else 0


def _traces(files: tuple[Path, ...], screen: Screen) -> int:
    paths = [traces_path(path) for path in files]  # a misspelt name is said before anything is read
    found = 0
    for path in paths:
        unreadable: list[str] = []
        count = wrong = 0
        for trace in traces_in(path, screen, unreadable):
            faults = check_trace(trace)
            count += 1
            wrong += bool(faults)
            for fault in faults:
                screen.say(
                    Text.assemble((harmless(trace.id, keep=""), "bold"), ": ", (harmless(fault, keep=""), "red"))
                )
        for line in unreadable:
            screen.say(line, "red")
        found += wrong + len(unreadable)
        if not count and not unreadable:
            raise UsageError(f"{path}: there are no traces in it")
        verdict = f"{wrong} do not conform" if wrong else "all conform"
        verdict += f", {len(unreadable)} more lines are no traces" if unreadable else ""
        screen.say(
            f"{path}: {count} trace{'' if count == 1 else 's'}, {verdict}", "" if wrong or unreadable else "green"
        )
    return EXIT_FAULTS if found else 0
