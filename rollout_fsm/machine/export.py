"""The files in `diagrams/`: what they contain, writing them, and finding those that no longer match the declaration.

Texts are compared byte for byte. The SVG is not, since its bytes differ between versions of Graphviz: it carries the
digest of the DOT text that it was made of, and is fresh as long as that is. Rendering it needs the extra `diagrams`;
everything else, checking it included, does not.
"""

import re
from collections.abc import Mapping
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from rollout_fsm.machine.declaration import Declaration, load_machine
from rollout_fsm.machine.dot import render_dot
from rollout_fsm.machine.endings import Endings
from rollout_fsm.machine.endings_file import endings as shipped_endings
from rollout_fsm.machine.mermaid import render_mermaid
from rollout_fsm.machine.picture import draw
from rollout_fsm.machine.scxml import render_scxml
from rollout_fsm.machine.table import render_table

SVG = "lifecycle.svg"
"""The file that is rendered from `lifecycle.dot`."""


def diagram_texts(declaration: Declaration, endings: Endings | None = None) -> Mapping[str, str]:
    """Every exported text by its file name; with the shipped endings, unless others are given."""
    picture = draw(declaration)
    texts = {
        "lifecycle.mmd": render_mermaid(picture),
        "lifecycle.dot": render_dot(picture),
        "lifecycle.scxml": render_scxml(declaration),
        "transitions.md": render_table(declaration, endings or shipped_endings()),
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
    head, svg, body = _readable(drawn.decode()).partition("<svg")
    return f"{head}<!-- {_digest(dot)} -->\n{svg}{body}"


_EDGE = re.compile(r'<g id="edge\d+" class="edge">.*?</g>\n', re.DOTALL)
_TEXT = re.compile(r"<text .*?</text>\n")


def _readable(svg: str) -> str:
    """The SVG with the labels of arrows above all lines, in a white halo, so that no line runs through a word; and in
    pixels instead of points, so that it is no larger than a page that shows it."""
    labels = "".join(label for edge in _EDGE.findall(svg) for label in _TEXT.findall(edge))
    lines = _EDGE.sub(lambda edge: _TEXT.sub("", edge.group()), svg)
    lines = re.sub(r'<svg width="(\d+)pt" height="(\d+)pt"', r'<svg width="\1" height="\2"', lines)
    body, end, rest = lines.rpartition("</g>\n</svg>")
    halo = '<use xlink:href="#labels" stroke="#ffffff" stroke-width="4" stroke-linejoin="round"/>'
    return f'{body}{halo}\n<g id="labels">\n{labels}</g>\n{end}{rest}'


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
    if not _is_fresh(_read(folder / SVG), dot):
        (folder / SVG).write_bytes(render_svg(dot).encode())
        written.append(SVG)
    return written


def stale_diagrams(folder: Path, declaration: Declaration | None = None) -> list[tuple[str, str]]:
    """The files that do not match the declaration, each with what differs; none means that all are fresh.

    A file of an exported one's name that nothing exports, in another format say, is none that could be fresh.
    """
    texts = diagram_texts(declaration or load_machine())
    stale = []
    for name, text in texts.items():
        there = _read(folder / name)
        if there != text:
            stale.append((name, "the file is missing" if there is None else _difference(name, there, text)))
    svg = _read(folder / SVG)
    if svg is None:
        stale.append((SVG, "the file is missing"))
    elif not _is_fresh(svg, texts["lifecycle.dot"]):
        stale.append((SVG, "it was rendered from another lifecycle.dot, or is not whole; render it again"))
    exported = {*texts, SVG}
    kin = {Path(name).stem for name in exported}
    others = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    stale += [
        (name, "nothing exports it; delete it") for name in others if name not in exported and Path(name).stem in kin
    ]
    return stale


def _is_fresh(svg: str | None, dot: str) -> bool:
    """Whether it was rendered from this text, and is whole."""
    return svg is not None and _digest(dot) in svg and svg.rstrip().endswith("</svg>")


def _digest(dot: str) -> str:
    return f"sha256 of lifecycle.dot: {sha256(dot.encode()).hexdigest()}"


def _read(path: Path) -> str | None:
    """The file's text, newlines untouched; None if there is no such file."""
    return path.read_bytes().decode(errors="replace") if path.exists() else None


def _difference(name: str, there: str, text: str) -> str:
    lines = unified_diff(there.splitlines(), text.splitlines(), f"{name} (file)", f"{name} (declared)", lineterm="")
    return "\n".join(lines) or "the line endings differ"
