"""A picture as Mermaid text, which code hosts draw by themselves.

State diagrams there cannot style an arrow, so a path is shown on its states, and its hops are numbered in the labels.
"""

from collections.abc import Iterator

from rollout_fsm.machine.picture import Arrow, Picture
from rollout_fsm.machine.vocabulary import Group, Kind

STYLES: dict[Kind, str] = {
    "resting": "fill:#ffffff,stroke:#333333,color:#111111",
    "active": "fill:#dbe8fb,stroke:#1a56b0,color:#111111",
    "shielded": "fill:#fbe3c4,stroke:#b06a00,stroke-width:3px,color:#111111",
    "final": "fill:#e4e4e4,stroke:#333333,stroke-width:2px,color:#111111",
}

VISITED = "fill:#ffd9a8,stroke:#b03a00,stroke-width:3px,color:#111111"


def render_mermaid(picture: Picture) -> str:
    """The picture as Mermaid text, `stateDiagram-v2`."""
    return "\n".join(_lines(picture)) + "\n"


def _lines(picture: Picture) -> Iterator[str]:
    yield "---"
    yield "title: The rollout lifecycle"
    yield "---"
    yield "stateDiagram-v2"
    yield "  direction TB"
    yield from (f"  classDef {kind} {style}" for kind, style in STYLES.items())
    if picture.path:
        yield f"  classDef visited {VISITED}"
    for group, members in picture.groups.items():
        yield f'  state "{group}" as {_id(group)} {{'
        yield from (f"    {state.name}" for state in members)
        yield from (f"    {_arrow(picture, arrow)}" for arrow in picture.inside(group))
        yield "  }"
    yield f"  [*] --> {picture.initial}"
    yield from (f"  {_arrow(picture, arrow)}" for arrow in picture.across())
    yield from _hops(picture)
    yield from (f"  {state.name} --> [*]" for state in picture.states if state.kind == "final")
    for state in picture.states:
        yield f"  class {state.name} {'visited' if state.name in picture.visited else state.kind}"


def _id(group: Group) -> str:
    """A group's identifier; its name alone may be a state's too."""
    return f"{group}_group"


def _arrow(picture: Picture, arrow: Arrow) -> str:
    source = next(_id(group) for group in picture.groups if group == arrow.source) if arrow.lifted else arrow.source
    steps = () if arrow.lifted else picture.steps.get((arrow.source, arrow.target), ())
    lines = [*(f"({number}) {hop}" for number, hop in steps), *map(str, arrow.labels)]
    return f"{source} --> {arrow.target}: {'<br>'.join(lines)}"


def _hops(picture: Picture) -> Iterator[str]:
    """The hops that go by a group's arrow: they get an arrow of their own."""
    drawn = {(arrow.source, arrow.target) for arrow in picture.arrows if not arrow.lifted}
    for (source, target), steps in picture.steps.items():
        if (source, target) not in drawn:
            yield f"  {source} --> {target}: {'<br>'.join(f'({number}) {hop}' for number, hop in steps)}"
