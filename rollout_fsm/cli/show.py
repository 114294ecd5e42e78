"""`rollout-fsm show`: one trace as a timeline, or a line for each trace of a file. What a trace says is shown, never
obeyed."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from rollout_fsm.cli.command import Command
from rollout_fsm.cli.harmless import harmless, one_line
from rollout_fsm.cli.numbers import MISSING, number, seconds
from rollout_fsm.cli.screen import Screen
from rollout_fsm.cli.trace_files import find_trace, traces_in, traces_path
from rollout_fsm.machine.vocabulary import SPANS
from rollout_fsm.reports.summary import Outcome
from rollout_fsm.reports.timeline import Moment, timeline
from rollout_fsm.trace import Trace

__all__ = ["show"]

NARROWEST = 40
_STYLES = {"completed": "green", "failed": "red", "aborted": "yellow"}


def show(
    traces: Annotated[Path, Parameter(metavar="TRACES")],
    id: Annotated[str | None, Parameter(metavar="ID")] = None,
    /,
    *,
    full: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> Command:
    """Show one trace as a timeline: every transition with its time and reason, the turns, rewards, metrics, errors,
    warnings.

    Parameters
    ----------
    traces
        A file of traces, or the folder of a run.
    id
        The trace's id, or the beginning of it. Without one: the only trace, or a line for each.
    full
        Do not shorten what was said.
    """

    def command(screen: Screen) -> int:
        path = traces_path(traces)
        if id is not None:
            _show(find_trace(path, id, screen), screen, full=full)
            return 0
        found = traces_in(path, screen)
        first = list(islice(found, 2))
        if not first:
            screen.complain(f"rollout-fsm: there are no traces in {path}")
        elif len(first) == 1:
            _show(first[0], screen, full=full)
        else:
            _list(first, found, screen)
        return 0

    return command


def _list(first: list[Trace], rest: Iterator[Trace], screen: Screen) -> None:
    screen.say(
        Text(f"{'id':<32}  {'outcome':<10} {'stop or error':<18} {'reward':>8} {'turns':>5} {'time':>8}  task", "dim")
    )
    for trace in (*first, *rest):
        outcome = Outcome.of(trace)
        stop = outcome.error or outcome.stop_condition or MISSING
        line = Text.assemble(
            f"{one_line(trace.id, 32):<32}  ",
            (f"{one_line(outcome.state, 10):<10}", _STYLES.get(outcome.state, "")),
            f" {one_line(stop, 18):<18} {number(trace.reward):>8} {trace.num_turns:>5} {seconds(_lasted(trace)):>8}  ",
            one_line(_task(trace), 60),
        )
        screen.say(line)
        if screen.outlet.broken is not None:
            return  # nobody reads on


def _show(trace: Trace, screen: Screen, *, full: bool) -> None:
    width = screen.out.width if screen.outlet.isatty() else 160
    for line in (*_head(trace), Text(), *_story(trace, None if full else max(NARROWEST, width)), *_measured(trace)):
        screen.say(line)
    for title, style, records in (
        ("errors", "red", [(error.type, _error(error.message, error.status_code)) for error in trace.errors]),
        ("warnings", "yellow", [(warning.kind, warning.message) for warning in trace.warnings]),
    ):
        if records:
            screen.say(Text(f"\n{title}", "bold"))
            for kind, message in records:
                text = harmless(message, keep="\t") if full else one_line(message, max(NARROWEST, 3 * width))
                screen.say(Text.assemble("  ", (harmless(kind, keep=""), style), "  ", text))


def _head(trace: Trace) -> Iterator[Text]:
    outcome = Outcome.of(trace)
    yield Text.assemble("rollout ", (harmless(trace.id, keep=""), "bold"))
    ended = Text(outcome.state, f"bold {_STYLES.get(outcome.state, '')}".strip())
    if outcome.stop_condition is not None:
        ended.append(f", {one_line(outcome.stop_condition, 60)}", "")
    rows: list[tuple[str, Text | str]] = [("task", one_line(_task(trace), 100)), ("ended", ended)]
    config = trace.agent.config
    harness, runtime = config.get("harness"), (trace.agent.runtime or {}).get("type")
    who = [harness.get("id") if isinstance(harness, dict) else harness, config.get("model"), runtime]
    rows.insert(1, ("agent", one_line(" × ".join(part for part in who if isinstance(part, str)), 100)))
    rows.append(("reward", number(trace.reward)))
    tokens = f"{trace.num_input_tokens:,} in, {trace.num_output_tokens:,} out" if trace.usage else "unknown"
    rows.append(("turns", f"{trace.num_turns}, tokens {tokens}"))
    spans = [(name, getattr(trace.timing, name)) for name in SPANS]
    rows.append(("time", ", ".join(f"{name} {seconds(span.duration)}" for name, span in spans if span is not None)))
    for name, value in rows:
        if value:
            yield Text.assemble((f"  {name:<8}", "dim"), value)


def _story(trace: Trace, width: int | None) -> Iterator[Text]:
    """The timeline, a line for each moment; None for no width at all."""
    for moment in timeline(trace):
        at = (f"{moment.at:>9.3f}  ", "dim")
        yield _transition(at, moment) if moment.kind == "transition" else _utterance(at, moment, width)


def _transition(at: tuple[str, str], moment: Moment) -> Text:
    line = Text.assemble(at, (f"{harmless(moment.who, keep=''):<14} ", "cyan"), harmless(moment.text, keep=""))
    return line.append(f"   {harmless(moment.note, keep='')}", "dim") if moment.note else line


def _utterance(at: tuple[str, str], moment: Moment, width: int | None) -> Text:
    style = {"reply": "bold green", "failed call": "red", "tool": "magenta"}.get(moment.kind, "bold")
    note = one_line(moment.note, 80)
    head = Text.assemble(at, "  ", (f"{one_line(moment.who, 40):<12} ", style))
    if width is None:
        body = harmless(moment.text).replace("\n", "\n" + " " * 26)
    else:
        room = width - head.cell_len - (len(note) + 3 if note else 0)
        body = one_line(moment.text, max(NARROWEST // 2, room))
    head.append(body, "" if moment.text else "dim")
    return head.append(f"   {note}", "dim") if note else head


def _measured(trace: Trace) -> Iterator[Text]:
    for title, values in (
        ("rewards", {name: None if reward is None else reward.score for name, reward in trace.rewards.items()}),
        ("metrics", trace.metrics),
    ):
        if values:
            yield Text(f"\n{title}", "bold")
        for name, value in values.items():
            line = Text.assemble("  ", f"{one_line(name, 40):<28} ")
            reward = trace.rewards.get(name) if title == "rewards" else None
            if value is None:
                line.append("not measured", "yellow")
            else:
                line.append(number(value))
                if reward is not None and reward.weight != 1:
                    line.append(f"   × {number(reward.weight)}", "dim")
            yield line


def _error(message: str, status: int | None) -> str:
    return message if status is None else f"[HTTP {status}] {message}"


def _lasted(trace: Trace) -> float | None:
    return trace.transitions[-1].time - trace.timing.start if trace.transitions else None


def _task(trace: Trace) -> str:
    name, place = trace.task.data.get("name"), trace.task.data.get("idx")
    parts = [trace.task.type, *([f"#{place}"] if place is not None else []), *([str(name)] if name else [])]
    return " ".join(parts)
