"""A picture as Mermaid text, which code hosts draw by themselves.

State diagrams there cannot style an arrow, so a path is shown on its states, and its hops, numbered, are the labels of
the arrows that it took.
"""

import json
from collections.abc import Iterator

from rollout_fsm.machine.picture import Arrow, Picture
from rollout_fsm.machine.vocabulary import Group, Kind

STYLES: dict[Kind, str] = {
    "resting": "fill:#ffffff,stroke:#333333,color:#111111",
    "active": "fill:#dbe8fb,stroke:#1a56b0,color:#111111",
    "shielded": "fill:#fbe3c4,stroke:#b06a00,stroke-width:3px,color:#111111",
    "final": "fill:#e4e4e4,stroke:#333333,stroke-width:2px,color:#111111",
}

WRAP = 15
"""The longest line of a label, in characters, that is not broken if it can be: narrow ones do not cover each other."""

VISITED = "stroke:#b03a00,stroke-width:4px"


def render_mermaid(picture: Picture) -> str:
    """The picture as Mermaid text, `stateDiagram-v2`."""
    return "\n".join(_lines(picture)) + "\n"


def _lines(picture: Picture) -> Iterator[str]:
    yield "---"
    yield f"title: {json.dumps(picture.title, ensure_ascii=False)}"
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
    # In this order the labels of arrows that leave one frame stand apart.
    yield from (f"  {_arrow(picture, arrow)}" for arrow in reversed(picture.across()))
    for (source, target), lines in picture.astray().items():
        yield f"  {source} --> {target}: {'<br>'.join(lines)}"
    yield from (f"  {state.name} --> [*]" for state in picture.states if state.kind == "final")
    for state in picture.states:
        yield f"  class {state.name} {state.kind}"
    yield from (f"  class {state.name} visited" for state in picture.states if state.name in picture.visited)


def _id(group: Group) -> str:
    """A group's identifier; its name alone may be a state's too."""
    return f"{group}_group"


def _arrow(picture: Picture, arrow: Arrow) -> str:
    source = next((_id(group) for group in picture.groups if arrow.lifted and group == arrow.source), arrow.source)
    lines = picture.told(arrow) or (line for label in arrow.labels for line in label.lines(WRAP))
    return f"{source} --> {arrow.target}: {'<br>'.join(lines)}"
