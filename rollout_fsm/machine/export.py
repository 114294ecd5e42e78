"""The files in `diagrams/`: what they contain, writing them, and finding those that no longer match the declaration.

Texts are compared byte for byte. The SVG is not, since its bytes differ between versions of Graphviz: it carries the
digest of the DOT text that it was made of, and is fresh as long as that is. Rendering it needs the extra `diagrams`;
everything else, checking it included, does not.
"""

from collections.abc import Mapping
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from rollout_fsm.machine.declaration import Declaration, load_machine
from rollout_fsm.machine.dot import render_dot
from rollout_fsm.machine.mermaid import render_mermaid
from rollout_fsm.machine.picture import draw
from rollout_fsm.machine.scxml import render_scxml
from rollout_fsm.machine.table import render_table

SVG = "lifecycle.svg"
"""The file that is rendered from `lifecycle.dot`."""


def diagram_texts(declaration: Declaration) -> Mapping[str, str]:
    """Every exported text by its file name."""
    picture = draw(declaration)
    texts = {
        "lifecycle.mmd": render_mermaid(picture),
        "lifecycle.dot": render_dot(picture),
        "lifecycle.scxml": render_scxml(declaration),
        "transitions.md": render_table(declaration),
    }
    return MappingProxyType(texts)


def render_svg(dot: str) -> str:
    """The DOT text as SVG, its digest in a comment. Raises RuntimeError without the extra `diagrams`."""
    try:
        from pygraphviz import AGraph  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        message = "rendering an SVG needs Graphviz: pip install 'rollout-fsm[diagrams]'"
        raise RuntimeError(message) from error
    graph = AGraph(string=dot)
    drawn: bytes = graph.draw(format="svg", prog="dot")
    graph.close()
    head, svg, body = drawn.decode().partition("<svg")
    return f"{head}<!-- {_digest(dot)} -->\n{svg}{body}"


def write_diagrams(folder: Path, declaration: Declaration | None = None) -> list[str]:
    """Write every file that is missing or stale into the folder, which is made if need be; return their names.

    An SVG whose digest is fresh is left as it is. Raises RuntimeError without the extra `diagrams`, if one has to be
    rendered; the texts are written by then.
    """
    texts = diagram_texts(declaration or load_machine())
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in texts.items():
        if _read(folder / name) != text:
            (folder / name).write_bytes(text.encode())
            written.append(name)
    dot = texts["lifecycle.dot"]
    if _digest(dot) not in (_read(folder / SVG) or ""):
        (folder / SVG).write_bytes(render_svg(dot).encode())
        written.append(SVG)
    return written


def stale_diagrams(folder: Path, declaration: Declaration | None = None) -> list[tuple[str, str]]:
    """The files that do not match the declaration, each with what differs; none means that all are fresh."""
    texts = diagram_texts(declaration or load_machine())
    stale = []
    for name, text in texts.items():
        there = _read(folder / name)
        if there != text:
            stale.append((name, "the file is missing" if there is None else _difference(name, there, text)))
    svg = _read(folder / SVG)
    if svg is None:
        stale.append((SVG, "the file is missing"))
    elif _digest(texts["lifecycle.dot"]) not in svg:
        stale.append((SVG, "it was rendered from another lifecycle.dot; render it again"))
    return stale


def _digest(dot: str) -> str:
    return f"sha256 of lifecycle.dot: {sha256(dot.encode()).hexdigest()}"


def _read(path: Path) -> str | None:
    """The file's text, newlines untouched; None if there is no such file."""
    return path.read_bytes().decode(errors="replace") if path.exists() else None


def _difference(name: str, there: str, text: str) -> str:
    lines = unified_diff(there.splitlines(), text.splitlines(), f"{name} (file)", f"{name} (declared)", lineterm="")
    return "\n".join(lines) or "the line endings differ"
