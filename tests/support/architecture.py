"""Draws docs/architecture.svg from the imports of the five packages: `python -m tests.support.architecture`.

A room is a folder, or a file beside folders. An arrow leads from a room to a room that it imports. An arrow
is left out where a longer way along other arrows leads to the same room. Rooms that import each other share a
red box. The packages stand side by side, the rooms of a package in layers.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from tests.support.imports import ROOT, circles, imports_under, modules
from tests.support.layers import Graph, Point, Size, layers, place, reduced

PICTURE: Final = ROOT / "docs" / "architecture.svg"
OPENED: Final = ("", "gateway", "gateway.runtime", "log")
"""The folders whose rooms are drawn; "" is the project."""
FILL: Final = {
    "gateway": "#dbe9fb",
    "log": "#fdebc8",
    "pid_allocator": "#ddf0dc",
    "seq_validator": "#ddf0dc",
    "spark_kafka_compat": "#eee4f5",
}
CHARACTER: Final = 7.3
LINE: Final = 17
MARGIN: Final = 12
HEADER: Final = 24
GAP: Final = 16
ROW_GAP: Final = 30


@dataclass
class Box:
    """A room, or several files of one layer. With `parts` it is a frame around the rooms inside."""

    name: str
    lines: list[str]
    size: Size
    in_circle: bool = False
    parts: dict[str, Box] = field(default_factory=dict)
    places: dict[str, Point] = field(default_factory=dict)
    arrows: list[list[Point]] = field(default_factory=list)


def picture(imports: Mapping[str, Iterable[str]], folders: set[str]) -> str:
    """Return the picture as SVG; the same imports give the same text."""
    whole = _frame("", imports, folders)
    width, height = round(whole.size.width), round(whole.size.height)
    body = "\n".join(_drawn(whole, 0, 0))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="monospace" font-size="12">
<!-- Drawn from the imports by `make architecture`. Do not edit. -->
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>
<rect width="{width}" height="{height}" fill="white"/>
{body}
</svg>
"""


def _frame(name: str, imports: Mapping[str, Iterable[str]], folders: set[str]) -> Box:
    """Return the frame of a folder with its rooms in layers."""
    graph = _rooms(name, imports)
    together = {room: " ".join(group) for group in circles(graph) for room in group}
    graph = _joined(graph, together)
    graph = _joined(graph, _files_of_a_layer(graph, folders))
    boxes = {group: _box(group, imports, folders, group in together.values()) for group in graph}
    arrows = reduced(graph)
    sizes = {group: box.size for group, box in boxes.items()}
    if not name:
        sizes = {group: Size(size.height, size.width) for group, size in sizes.items()}
    placed = place(graph, arrows, sizes, GAP, ROW_GAP)
    if not name:
        placed = placed.sideways()
    top = HEADER if name else 0
    frame = Box(
        name=name,
        lines=[f"{_last(name)}/"] if name else [],
        size=Size(placed.size.width + 2 * MARGIN, placed.size.height + 2 * MARGIN + top),
        parts=boxes,
    )
    frame.places = {group: (x + MARGIN, y + MARGIN + top) for group, (x, y) in placed.corners.items()}
    frame.arrows = [[(x + MARGIN, y + MARGIN + top) for x, y in line] for line in placed.lines]
    return frame


def _box(group: str, imports: Mapping[str, Iterable[str]], folders: set[str], in_circle: bool) -> Box:
    if group in OPENED:
        return _frame(group, imports, folders)
    lines = [f"{_last(room)}{'/' if room in folders else '.py'}" for room in group.split()]
    width = max(map(len, lines)) * CHARACTER + 2 * MARGIN
    return Box(group, lines, Size(width, LINE * len(lines) + 12), in_circle)


def _rooms(folder: str, imports: Mapping[str, Iterable[str]]) -> Graph:
    """Return the imports among the rooms of a folder. The folder's own `__init__` is its face, not a room."""
    graph: dict[str, set[str]] = {}
    for name, targets in imports.items():
        room = _room(folder, name)
        if room is None:
            continue
        found = graph.setdefault(room, set())
        found |= {other for target in targets if (other := _room(folder, target)) and other != room}
    return {room: sorted(targets) for room, targets in sorted(graph.items())}


def _room(folder: str, module: str) -> str | None:
    """Return the room of a folder that a module belongs to; None for the folder's face and for modules
    elsewhere.
    """
    depth = len(folder.split(".")) + 1 if folder else 1
    parts = module.split(".")
    inside = not folder or module.startswith(f"{folder}.")
    return ".".join(parts[:depth]) if inside and len(parts) >= depth else None


def _files_of_a_layer(graph: Graph, folders: set[str]) -> dict[str, str]:
    """Return, for each file that shares its layer with other files, the common name of those files."""
    found: dict[str, str] = {}
    for row in layers(graph):
        files = [room for room in row if not set(room.split()) & folders]
        found |= dict.fromkeys(files, " ".join(files))
    return found


def _joined(graph: Graph, together: Mapping[str, str]) -> Graph:
    """Return the graph with grouped rooms merged under their group's name."""
    joined: dict[str, set[str]] = {}
    for room, targets in graph.items():
        group = together.get(room, room)
        found = joined.setdefault(group, set())
        found |= {other for target in targets if (other := together.get(target, target)) != group}
    return {room: sorted(targets) for room, targets in sorted(joined.items())}


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _drawn(box: Box, left: float, top: float) -> list[str]:
    """Return the SVG elements of a box, the outermost first."""
    package = box.name.split(".")[0]
    fill = FILL.get(package, "white")
    elements = []
    if box.name:
        stroke = "#c00" if box.in_circle else "#777"
        opacity = ' fill-opacity="0.45"' if box.parts else ""
        elements.append(
            f'<rect x="{left:.0f}" y="{top:.0f}" width="{box.size.width:.0f}" height="{box.size.height:.0f}"'
            f' rx="5" fill="{fill}"{opacity} stroke="{stroke}"/>'
        )
    weight = ' font-weight="bold"' if box.parts else ""
    for number, line in enumerate(box.lines):
        elements.append(
            f'<text x="{left + MARGIN:.0f}" y="{top + 18 + LINE * number:.0f}"{weight}>{escape(line)}</text>'
        )
    elements += [_arrow(line, left, top, sideways=not box.name) for line in box.arrows]
    for group, part in box.parts.items():
        x, y = box.places[group]
        elements += _drawn(part, left + x, top + y)
    return elements


def _arrow(line: Sequence[Point], left: float, top: float, *, sideways: bool) -> str:
    points = [(x + left, y + top) for x, y in line]
    path = f"M{points[0][0]:.0f},{points[0][1]:.0f}"
    for (x, y), (next_x, next_y) in itertools.pairwise(points):
        turns = (x, (y + next_y) / 2), (next_x, (y + next_y) / 2)
        if sideways:
            turns = ((x + next_x) / 2, y), ((x + next_x) / 2, next_y)
        bends = " ".join(f"{bend_x:.0f},{bend_y:.0f}" for bend_x, bend_y in turns)
        path += f" C{bends} {next_x:.0f},{next_y:.0f}"
    return f'<path d="{path}" fill="none" stroke="#555" marker-end="url(#tip)"/>'


def drawn_from(root: Path) -> str:
    """Return the picture of the packages under `root`."""
    folders = {_drawn_name(name) for name, path in modules(root).items() if path.name == "__init__.py"}
    imports = imports_under(root)
    return picture({_drawn_name(name): [*map(_drawn_name, imports[name])] for name in imports}, folders)


def _drawn_name(module: str) -> str:
    return module.removeprefix("seqgate.")


def main() -> int:
    """Write the picture."""
    PICTURE.write_text(drawn_from(ROOT), encoding="utf-8")
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)} written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
