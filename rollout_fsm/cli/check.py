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
from rollout_fsm.machine import DeclarationError, check_machine, load_machine

__all__ = ["PROPERTIES", "check"]

PROPERTIES = {
    "P1": "every state can be reached, and every state that is not final leads to a final one",
    "P2": "nothing that leaves failing, discarding or aborting is ever scored",
    "P3": "every way to completed passes closing, finalizing, scoring, releasing, in this order",
    "P4": "every way from booting or later to an end passes exactly one release",
    "P5": "every state that is neither final nor shielded accepts cancel",
    "P6": "for every valuation of the guards exactly one row is taken, and no row is dead",
    "P7": "active and shielded states have one activity, others none; every name exists and is used",
    "P8": "the agent clock runs in stepping and stopping, and nowhere else",
    "P9": "every outcome that an activity can have has a row wherever it can be running",
    "P10": "every resting and every final state takes close",
}


def check(
    *traces: Annotated[Path, Parameter(metavar="TRACES")],
) -> Command:
    """Prove the declared machine, or check that recorded traces are legal lives of it. Exits with 1 on faults.

    Parameters
    ----------
    traces
        Files of traces, or folders of runs. Without any, the properties P1 to P10 of the declaration are proven.
    """

    def command(screen: Screen) -> int:
        return _traces(traces, screen) if traces else _machine(screen)

    return command


def _machine(screen: Screen) -> int:
    try:
        declaration = load_machine()
    except DeclarationError as error:
        for fault in error.faults:
            screen.complain(fault, "red")
        return EXIT_FAULTS
    faults = check_machine(declaration)
    states, rows = len(declaration.states), len(declaration.rows)
    screen.say(f"the declaration: {states} states, {rows} rows")
    for name in PROPERTIES:
        wrong = [fault for fault in faults if fault.property == name]
        mark = ("fails", "bold red") if wrong else ("holds", "green")
        screen.say(Text.assemble("  ", mark, f"  {name:<4} ", PROPERTIES[name]))
        for broken in wrong:
            screen.say(Text.assemble("           ", (harmless(str(broken), keep=""), "red")))
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
