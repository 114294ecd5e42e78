"""The commands by name, and what becomes of what they return or raise."""

import signal
from collections.abc import Sequence

from cyclopts import App
from cyclopts.exceptions import CycloptsError, UnknownCommandError, UnusedCliTokensError

from rollout_fsm.cli.faults import EXIT_INTERRUPTED, EXIT_UNWRITTEN, EXIT_USAGE, UsageError
from rollout_fsm.cli.screen import Screen, open_screen

__all__ = ["make_app", "run_app"]

COMMANDS = {
    "run": "Run tasks, each as one rollout or several, and write their traces.",
    "resume": "Go on with a run that was cut off or interrupted, and do what it still owes.",
    "score": "Score finished traces again, offline, without a runtime.",
    "show": "Show one trace as a timeline.",
    "check": "Prove the declared machine, or check that recorded traces are legal lives of it.",
    "simulate": "Run scenarios in virtual time and print their outcomes as JSON.",
    "diagram": "Draw the declared machine, or one rollout's path over it.",
}


def make_app(screen: Screen, asked: str = "") -> App:
    """The commands. Only their names are known here; the module of the one that is asked for is imported, which tells
    more of itself."""
    app = App(
        name="rollout-fsm",
        help="Run LLM-agent rollouts through a lifecycle that is declared, executed, proven and drawn.",
        version=_version,
        console=screen.out,
        error_console=screen.err,
        exit_on_error=False,
        print_error=False,
        help_on_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
        help_format="plaintext",
    )
    for name, what in COMMANDS.items():
        app.command(f"rollout_fsm.cli.{name}:{name}", name=name, help=None if name == asked else what)
    return app


def run_app(arguments: Sequence[str]) -> int:
    """Parse, do, and return the exit code."""
    screen = open_screen()
    try:
        command = make_app(screen, next(iter(arguments), ""))(list(arguments))
        code = command(screen) if callable(command) else 0
    except UnknownCommandError as error:
        code = _refuse(screen, _no_command(next(iter(error.unused_tokens or ()), "")))
    except UnusedCliTokensError as error:
        more = ", ".join(map(repr, error.unused_tokens or ()))
        code = _refuse(screen, f"too many arguments: {more}; see --help, and quote what has blanks in it")
    except CycloptsError as error:
        error.verbose = False
        code = _refuse(screen, str(error).rstrip("\n"))
    except UsageError as error:
        _refuse(screen, *error.lines)
        code = error.exit_code
    except KeyboardInterrupt:
        screen.complain("rollout-fsm: interrupted")
        code = EXIT_INTERRUPTED + signal.SIGINT
    screen.flush()
    if code == 0 and (unwritten := screen.outlet.unwritten) is not None:
        screen.complain(f"rollout-fsm: standard output could not be written: {unwritten.strerror}")
        return EXIT_UNWRITTEN
    return code


def _refuse(screen: Screen, *lines: str) -> int:
    for line in lines:
        screen.complain(f"rollout-fsm: {line}")
    return EXIT_USAGE


def _no_command(word: str) -> str:
    from rollout_fsm.machine.exact import suggestion  # not needed for anything else here, and the machine comes with it

    return f"there is no command {word!r}{suggestion(word, COMMANDS)}"


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # takes as long as a fourth of --help

    try:
        return version("rollout-fsm")
    except PackageNotFoundError:
        return "unknown: the package is not installed"
