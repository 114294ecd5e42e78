"""The summary of a run on a screen: how it ended, what was measured, how long it took, what it spent.

Every number is one of `reports.summary`; nothing is calculated here. What is missing stands out: a mean over some of
the rollouts has the others beside it.
"""

from collections.abc import Sequence

from rich.box import Box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rollout_fsm.cli.harmless import one_line
from rollout_fsm.cli.numbers import number, seconds
from rollout_fsm.reports.summary import Outcome, Signal, Spread, Summary, Total

__all__ = ["summary_tables"]

_RULE = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
_STATES = {"completed": "green", "failed": "red", "aborted": "yellow"}
_NAMES = {
    "turns": "turns",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "total_tokens": "total tokens",
}
_LONGEST = 48
_REASON = 160


def summary_tables(summary: Summary) -> RenderableType:
    """The tables of a run that had at least one rollout."""
    parts: list[RenderableType] = [_outcomes(summary)]
    if summary.reasons:
        parts.append(_reasons(summary))
    if len(summary.endings) > 1 or not all(ending.counts for ending in summary.endings):
        parts.append(_endings(summary))
    if summary.retried:
        parts.append(_retries(summary))
    if summary.rewards or summary.metrics:
        parts.append(_signals(summary))
    if summary.spans:
        parts.append(_spans(summary.spans))
    parts.append(_totals(list(summary.totals.values())))
    if summary.warnings:
        parts.append(_warnings(summary))
    return Padding(Group(*(Padding(part, (0, 0, 1, 0)) for part in parts)), (0, 0, 0, 1))


def _outcomes(summary: Summary) -> Table:
    table = _table("outcome", "stop condition", "error", "rollouts:")
    order = list(_STATES)

    def place(item: tuple[Outcome, int]) -> tuple[int, int, str]:
        outcome, count = item
        return order.index(outcome.state) if outcome.state in order else len(order), -count, str(outcome.stop_condition)

    before = ""
    for outcome, count in sorted(summary.outcomes.items(), key=place):
        table.add_row(
            Text(outcome.state if outcome.state != before else "", _STATES.get(outcome.state, "")),
            _named(outcome.stop_condition),
            _named(outcome.error, "red"),
            str(count),
        )
        before = outcome.state
    if len(summary.outcomes) > 1:
        table.add_section()
        table.add_row(Text("all", "dim"), "", "", Text(str(summary.rollouts), "dim"))
    return table


def _reasons(summary: Summary) -> Table:
    """Why: the first message of each type of error; `show` has the others."""
    table = _table("error", "the first of them")
    for kind, message in summary.reasons.items():
        table.add_row(Text(one_line(kind, _LONGEST), "red"), one_line(message, _REASON))
    return table


def _endings(summary: Summary) -> Table:
    """Who brought each ending about, and whether its reward is a verdict on the agent."""
    table = _table("ending", "cause", "reward counts", "rollouts:")
    for ending, count in summary.endings.most_common():
        counts = Text("yes") if ending.counts else Text("no", "yellow")
        table.add_row(one_line(ending.name, _LONGEST), ending.cause, counts, str(count))
    return table


def _retries(summary: Summary) -> Table:
    """What the attempts that were followed by another ended with."""
    table = _table("tried again after", "attempts:", "rollouts:")
    for kind, count in summary.earlier.most_common():
        table.add_row(Text(one_line(kind, _LONGEST), "yellow"), str(count), "")
    table.add_section()
    table.add_row(Text("together", "dim"), str(summary.earlier.total()), str(summary.retried))
    return table


def _signals(summary: Summary) -> Table:
    table = _table("measured", "weight:", "mean:", "in rollouts:", "missing:")
    if summary.rewards:
        table.add_row(Text("reward", "bold"), "", *_measured(summary.reward, "bold"))
    for title, signals in (("rewards", summary.rewards), ("metrics", summary.metrics)):
        if signals:
            table.add_section()
            for signal in signals:
                weights = " ".join(number(weight) for weight in signal.weights)
                kind = Text.assemble(
                    ("reward " if title == "rewards" else "metric ", "dim"), one_line(signal.name, _LONGEST)
                )
                table.add_row(kind, weights, *_measured(signal))
    return table


def _measured(signal: Signal, style: str = "") -> tuple[Text, Text, Text]:
    mean = Text(number(signal.mean), style or ("" if signal.measured else "yellow"))
    share = Text(f"{signal.measured} of {signal.of}", "yellow" if signal.missing else style)
    return mean, share, Text(str(signal.missing), "bold yellow") if signal.missing else Text("·", "dim")


def _spans(spans: Sequence[Spread]) -> Table:
    table = _table("time", "median:", "p95:", "in rollouts:")
    for span in spans:
        whole, dot, share = span.name.partition(".")
        name = Text(f"  {share}", "dim") if dot else Text(whole)
        table.add_row(name, seconds(span.median), seconds(span.p95), Text(f"{span.measured} of {span.of}", "dim"))
    return table


def _totals(totals: Sequence[Total]) -> Table:
    table = _table("spent", "total:", "mean:", "most:", "known in:")
    for total in totals:
        known = Text(f"{total.known} of {total.of}", "yellow" if total.known < total.of else "dim")
        row = (
            (f"{total.total:,}", f"{total.mean or 0:,.1f}", number(total.most)) if total.known else ("unknown", "", "")
        )
        table.add_row(_NAMES[total.name], *row, known)
    return table


def _warnings(summary: Summary) -> Table:
    table = _table("warnings", "times:")
    for kind, count in summary.warnings.most_common():
        table.add_row(Text(one_line(kind, _LONGEST), "yellow"), str(count))
    return table


def _table(*columns: str) -> Table:
    """A table without a frame; a column whose name ends in a colon is of numbers."""
    table = Table(box=_RULE, pad_edge=False, show_edge=False, header_style="dim", border_style="dim", padding=(0, 1))
    for place, column in enumerate(columns):
        numeric = column.endswith(":")
        table.add_column(
            column.removesuffix(":"),
            justify="right" if numeric else "left",
            no_wrap=True,
            min_width=22 if place == 0 else 0,
        )
    return table


def _named(name: str | None, style: str = "") -> Text:
    return Text("") if name is None else Text(one_line(name, _LONGEST), style)
