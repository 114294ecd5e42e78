"""A picture as DOT text, for Graphviz.

The text is compared byte for byte, and the SVG is made of it. Where things stand is Graphviz's business, but for a few
hints below, found by looking: they make the picture narrow enough for a page and change nothing that it says.
"""

from collections.abc import Iterable, Iterator
from html import escape

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

WRAP = 20
"""The longest line of a label, in characters, that is not broken if it can be."""

ORDER: tuple[Group, ...] = ("failure", "closing", "exchange", "opening", "cancellation")
"""The groups as Graphviz should meet them: it then puts failures on the left, and cancellations below everything."""

NAMED_BELOW: tuple[Group, ...] = ("failure", "closing", "cancellation")
"""Groups that arrows enter from above; their names stand where nothing runs through them."""

SPINE = (("waiting", "stopped"),)
"""Arrows between groups that should run straight down."""

BESIDE = (("finalizing", "discarding"),)
"""States that stand at one height."""

LOOSE = (("created", "aborted"),)
"""Arrows that do not push their target below their source."""

BELOW = (("completed", "aborting"),)
"""States of which the second stands below the first, although no arrow leads there."""

LEGEND: dict[Kind, str] = {
    "resting": "waits for the caller",
    "active": "one activity, whose outcome is the next trigger",
    "shielded": "active, and not interrupted",
    "final": "the end",
}

NOTES = (
    "trigger [guard] / stop condition that is set, if none is yet; of several guards the first row decides",
    "an arrow from a frame leaves every active state in it; cancel also the resting ones, but for the initial one",
    "red leads into a failure, which sets error; violet into a cancellation; cancel sets cancelled",
)

PATH_NOTE = "The path is numbered; times are those since (1)."


def render_dot(picture: Picture) -> str:
    """The picture as DOT text. A path is drawn over the dimmed rest, its hops numbered."""
    return "\n".join(_lines(picture)) + "\n"


def _lines(picture: Picture) -> Iterator[str]:
    names = {state.name for state in picture.states}
    yield "digraph rollout {"
    yield "  rankdir=TB; compound=true; newrank=true; nodesep=0.2; ranksep=0.36"
    yield f'  fontname="{FONT}"; fontsize=14; fontcolor="#555555"'
    yield f'  node [shape=box label="\\N" fontname="{FONT}" fontsize=15 height=0.36 margin="0.12,0.04"]'
    yield f'  edge [fontname="{FONT}" fontsize=12 arrowsize=0.7 color="#444444"]'
    for group in sorted(picture.groups, key=ORDER.index):
        yield f"  subgraph cluster_{group} {{"
        place = "b" if group in NAMED_BELOW else "t"
        yield f'    label="{group}"; labeljust=r; labelloc={place}; style=rounded; color="#999999"'
        yield from (f"    {state.name} [{_look(picture, state)}]" for state in picture.groups[group])
        yield "  }"
    yield from (f"  {{rank=same; {one}; {other}}}" for one, other in BESIDE if {one, other} <= names)
    yield "  start [shape=point width=0.14]"
    yield f"  start -> {picture.initial}"
    yield from (f"  {_arrow(picture, arrow)}" for arrow in picture.arrows)
    yield from (f"  {one} -> {other} [style=invis weight=0]" for one, other in BELOW if {one, other} <= names)
    for (source, target), told in picture.astray().items():
        yield f"  {source} -> {target} [{_hot(told)} constraint=false]"
    yield _legend(picture)
    yield "}"


def _look(picture: Picture, state: State) -> str:
    look = f'style="rounded,filled" fillcolor="{FILLS[state.kind]}"{LINES[state.kind]}'
    if state.name in picture.visited:
        return f'{look} color="{HOT}"'
    return f'{look} color="{DIM}" fontcolor="{DIM}"' if picture.path else look


def _legend(picture: Picture) -> str:
    kinds = "".join(
        f'<td bgcolor="{FILLS[kind]}" border="{3 if kind == "shielded" else 1}">{kind}</td><td>{text}&nbsp;&nbsp;</td>'
        for kind, text in LEGEND.items()
    )
    title = f"<b>{escape(picture.title)}</b>"
    lines = [title, PATH_NOTE] if picture.path else [title, *NOTES]
    table = '<table border="0" cellborder="0" cellspacing="2" cellpadding="3">'
    rows = "".join(f'<tr><td align="left">{line}</td></tr>' for line in lines)
    return f"  label=<{table}{rows}<tr><td>{table}<tr>{kinds}</tr></table></td></tr></table>>; fontsize=12; labeljust=l"


def _arrow(picture: Picture, arrow: Arrow) -> str:
    tail = picture.tail(arrow).name if arrow.lifted else arrow.source
    if told := picture.told(arrow):
        look = [_hot(told)]
    else:
        colour = DIM if picture.path else LEADS.get(picture.group_of(arrow.target))
        look = [f'label="{_text(_lines_of(arrow.labels))}"']
        look += [f'color="{colour}" fontcolor="{colour}"'] if colour else []
    return f"{tail} -> {arrow.target} [{' '.join([*look, *_layout(picture, arrow)])}]"


def _layout(picture: Picture, arrow: Arrow) -> Iterator[str]:
    if arrow.lifted:
        yield f"ltail=cluster_{arrow.source} weight=2"
    elif (arrow.source, arrow.target) in LOOSE:
        yield "constraint=false"
    elif (arrow.source, arrow.target) in SPINE:
        yield "weight=10"
    elif picture.group_of(arrow.source) == picture.group_of(arrow.target):
        yield "weight=20"


def _hot(told: Iterable[str]) -> str:
    return f'label="{_text(told)}" color="{HOT}" fontcolor="{HOT}" penwidth=2'


def _lines_of(labels: Iterable[Label]) -> Iterator[str]:
    """Every line of the labels; those after a label's first are set in."""
    for label in labels:
        first, *further = label.lines(WRAP)
        yield first
        yield from (f"    {line}" for line in further)


def _text(lines: Iterable[str]) -> str:
    return "".join(" " + line.replace("\\", "\\\\").replace('"', '\\"') + "\\l" for line in lines)
