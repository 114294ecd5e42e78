"""A picture as DOT text, for Graphviz.

The text is compared byte for byte, and the SVG is made of it. Where things stand is Graphviz's business, but for a few
hints below, found by looking: they make the picture narrow enough for a page and change nothing that it says.
"""

from collections.abc import Iterable, Iterator

from rollout_fsm.machine.declaration import State
from rollout_fsm.machine.picture import Arrow, Label, Picture
from rollout_fsm.machine.vocabulary import Group, Kind

FILLS: dict[Kind, str] = {"resting": "#ffffff", "active": "#dbe8fb", "shielded": "#fbe3c4", "final": "#e4e4e4"}

LINES: dict[Kind, str] = {"resting": "", "active": "", "shielded": " penwidth=2.5", "final": " peripheries=2"}

LEADS: dict[Group, str] = {"failure": "#b03030", "cancellation": "#6a4c93"}
"""The colours of arrows by where they lead; the others are grey."""

FONT = "Helvetica,Arial,sans-serif"

HOT = "#b03a00"
"""The colour of a path."""

DIM = "#a8a8a8"
"""The colour of what is not on the path, where there is one."""

WRAP = 24
"""The longest label in characters that stays on one line although it has a guard."""

SPINE = (("setup", "waiting"), ("stopping", "stopped"))
"""Arrows between groups that should run straight down."""

BESIDE = (("stopping", "failing"),)
"""States that stand at one height, the second beside the group of the first."""

UPWARD = (("stopped", "failing"),)
"""Arrows that do not push their target below their source."""

LEGEND: dict[Kind, str] = {
    "resting": "waits for the caller",
    "active": "one activity, whose outcome is the next trigger",
    "shielded": "active, and not interrupted",
    "final": "the end",
}

NOTES = (
    "trigger [guard] / stop condition that is set; of several guards the first in transitions.md decides",
    "into failing and discarding the condition set is error, by cancel it is cancelled",
    "an arrow from a frame leaves every active state in it; cancel also the resting ones, but for the initial one",
)


def render_dot(picture: Picture) -> str:
    """The picture as DOT text. A path is drawn over the dimmed rest, its hops numbered."""
    return "\n".join(_lines(picture)) + "\n"


def _lines(picture: Picture) -> Iterator[str]:
    yield "digraph rollout {"
    yield "  rankdir=TB; compound=true; newrank=true; nodesep=0.3; ranksep=0.42"
    yield f'  fontname="{FONT}"; fontsize=12; fontcolor="#555555"'
    yield f'  node [shape=box label="\\N" fontname="{FONT}" fontsize=13 height=0.36 margin="0.12,0.04"]'
    yield f'  edge [fontname="{FONT}" fontsize=10 arrowsize=0.7 color="#444444"]'
    for group, members in picture.groups.items():
        yield f"  subgraph cluster_{group} {{"
        yield f'    label="{group}"; labeljust=r; style=rounded; color="#999999"'
        yield from (f"    {state.name} [{_look(picture, state)}]" for state in members)
        yield "  }"
    names = {state.name for state in picture.states}
    yield from (f"  {{rank=same; {one}; {other}}}" for one, other in BESIDE if {one, other} <= names)
    yield "  start [shape=point width=0.14]"
    yield f"  start -> {picture.initial}"
    drawn = {(arrow.source, arrow.target) for arrow in picture.arrows}
    yield from (f"  {_arrow(picture, arrow)}" for arrow in picture.arrows)
    for source, target in picture.steps:
        if (source, target) not in drawn:
            yield f"  {source} -> {target} [{_hot(picture, source, target)}]"
    yield _legend()
    yield "}"


def _look(picture: Picture, state: State) -> str:
    look = f'style="rounded,filled" fillcolor="{FILLS[state.kind]}"{LINES[state.kind]}'
    if state.name in picture.visited:
        return f'{look} color="{HOT}"'
    return f'{look} color="{DIM}" fontcolor="{DIM}"' if picture.path else look


def _legend() -> str:
    kinds = "".join(
        f'<td bgcolor="{FILLS[kind]}" border="{3 if kind == "shielded" else 1}">{kind}</td><td>{text}&nbsp;&nbsp;</td>'
        for kind, text in LEGEND.items()
    )
    notes = "".join(f'<tr><td align="left">{note}</td></tr>' for note in NOTES)
    table = '<table border="0" cellborder="0" cellspacing="2" cellpadding="3">'
    return (
        f"  label=<{table}<tr><td>{table}<tr>{kinds}</tr></table></td></tr>{notes}</table>>; fontsize=10; labeljust=l"
    )


def _arrow(picture: Picture, arrow: Arrow) -> str:
    tail = picture.tail(arrow).name if arrow.lifted else arrow.source
    if not arrow.lifted and (arrow.source, arrow.target) in picture.steps:
        look = [_hot(picture, arrow.source, arrow.target)]
    else:
        colour = DIM if picture.path else LEADS.get(picture.group_of(arrow.target))
        look = [f'label="{_text(line for label in arrow.labels for line in _wrapped(label))}"']
        look += [f'color="{colour}" fontcolor="{colour}"'] if colour else []
    return f"{tail} -> {arrow.target} [{' '.join([*look, *_layout(picture, arrow)])}]"


def _layout(picture: Picture, arrow: Arrow) -> Iterator[str]:
    if arrow.lifted:
        yield f"ltail=cluster_{arrow.source} weight=2"
    elif (arrow.source, arrow.target) in UPWARD:
        yield "constraint=false"
    elif (arrow.source, arrow.target) in SPINE:
        yield "weight=10"
    elif picture.group_of(arrow.source) == picture.group_of(arrow.target):
        yield "weight=20"


def _hot(picture: Picture, source: str, target: str) -> str:
    label = _text(f"{number}. {hop}" for number, hop in picture.steps[source, target])
    return f'label="{label}" color="{HOT}" fontcolor="{HOT}" penwidth=2'


def _wrapped(label: Label) -> Iterator[str]:
    text = str(label)
    if len(text) <= WRAP or label.guard is None:
        yield text
    else:
        yield ", ".join(label.triggers)
        yield "    " + text[text.index("[") :]


def _text(lines: Iterable[str]) -> str:
    return "".join(" " + line.replace("\\", "\\\\").replace('"', '\\"') + "\\l" for line in lines)
