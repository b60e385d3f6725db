"""Arranges the boxes of a graph without circles in layers: an importing box stands above the boxes that it
imports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

Graph = Mapping[str, Sequence[str]]
Edge = tuple[str, str]
Point = tuple[float, float]
SWEEPS: Final = 24


class Size(NamedTuple):
    """The width and height of a box."""

    width: float
    height: float


@dataclass(frozen=True)
class Placed:
    """The upper left corners of the boxes, the lines of the arrows, and the size of the picture."""

    corners: dict[str, Point]
    lines: list[list[Point]]
    size: Size

    def sideways(self) -> Placed:
        """Return the same picture with the layers from left to right."""
        corners = {name: (y, x) for name, (x, y) in self.corners.items()}
        lines = [[(y, x) for x, y in line] for line in self.lines]
        return Placed(corners, lines, Size(self.size.height, self.size.width))


def layers(graph: Graph) -> list[list[str]]:
    """Return the rows, the lowest first. Each box stands one row above the highest box that it imports."""

    @cache
    def level(name: str) -> int:
        return 1 + max(map(level, graph[name]), default=-1)

    rows: list[list[str]] = [[] for _ in range(1 + max(map(level, graph)))]
    for name in sorted(graph):
        rows[level(name)].append(name)
    return rows


def reduced(graph: Graph) -> list[Edge]:
    """Return the arrows whose end can't also be reached along other arrows."""

    @cache
    def below(name: str) -> frozenset[str]:
        return frozenset(graph[name]).union(*map(below, graph[name]))

    return [
        (name, target)
        for name in sorted(graph)
        for target in graph[name]
        if not any(target in below(other) for other in graph[name] if other != target)
    ]


def place(
    graph: Graph, arrows: Sequence[Edge], sizes: Mapping[str, Size], gap: float, row_gap: float
) -> Placed:
    """Return the position of each box, with few crossing arrows."""
    rows = layers(graph)[::-1]
    row_of = {name: number for number, row in enumerate(rows) for name in row}
    widths = {name: size.width for name, size in sizes.items()}
    chains = []
    for start, end in arrows:
        chain = [start]
        for number in range(row_of[start] + 1, row_of[end]):
            bend = f"{start}>{end}@{number}"
            rows[number].append(bend)
            widths[bend] = 0.0
            chain.append(bend)
        chains.append([*chain, end])
    links = [link for chain in chains for link in pairwise(chain)]
    rows = _ordered(rows, links)
    centers = _centers(rows, links, widths, gap)
    tops, height = _tops(rows, sizes, row_gap)
    corners = {name: (centers[name] - widths[name] / 2, tops[row_of[name]]) for name in sorted(graph)}
    lines = [_line(chain, row_of, centers, tops, sizes, rows) for chain in chains]
    return Placed(corners, lines, Size(max(x + widths[name] for name, (x, _) in corners.items()), height))


def _ordered(rows: Sequence[Sequence[str]], links: Sequence[Edge]) -> list[list[str]]:
    """Return the best order found by moving each box to the mean position of its neighbours."""
    current = [sorted(row) for row in rows]
    best, fewest = [list(row) for row in current], _crossings(current, links)
    for sweep in range(SWEEPS):
        numbers = range(1, len(current)) if sweep % 2 == 0 else range(len(current) - 2, -1, -1)
        for number in numbers:
            beside = current[number - 1 if sweep % 2 == 0 else number + 1]
            position = {name: at for at, name in enumerate(beside)}
            means = {}
            for at, name in enumerate(current[number]):
                near = [
                    position[other] for link in links for other in _other(link, name) if other in position
                ]
                means[name] = sum(near) / len(near) if near else at
            current[number].sort(key=lambda name: (means[name], name))
        crossings = _crossings(current, links)
        if crossings < fewest:
            best, fewest = [list(row) for row in current], crossings
    return best


def _other(link: Edge, name: str) -> tuple[str, ...]:
    return (link[1],) if link[0] == name else (link[0],) if link[1] == name else ()


def _crossings(rows: Sequence[Sequence[str]], links: Sequence[Edge]) -> int:
    found = 0
    for upper, lower in pairwise(rows):
        left = {name: at for at, name in enumerate(upper)}
        right = {name: at for at, name in enumerate(lower)}
        ends = [(left[a], right[b]) for a, b in links if a in left and b in right]
        found += sum((a - c) * (b - d) < 0 for at, (a, b) in enumerate(ends) for c, d in ends[:at])
    return found


def _centers(
    rows: Sequence[Sequence[str]], links: Sequence[Edge], widths: Mapping[str, float], gap: float
) -> dict[str, float]:
    """Return the center of each box: close to linked boxes, and clear of its neighbours in the row."""
    centers: dict[str, float] = {}
    for row in rows:
        at = 0.0
        for name in row:
            centers[name] = at + widths[name] / 2
            at += widths[name] + gap
    for _ in range(SWEEPS):
        for row in [*rows, *reversed(rows)]:
            wanted = []
            for name in row:
                near = [centers[other] for link in links for other in _other(link, name)]
                wanted.append(sum(near) / len(near) if near else centers[name])
            centers |= dict(zip(row, _apart(row, wanted, widths, gap), strict=True))
    left = min(centers[name] - widths[name] / 2 for row in rows for name in row)
    return {name: center - left for name, center in centers.items()}


def _apart(
    row: Sequence[str], wanted: Sequence[float], widths: Mapping[str, float], gap: float
) -> list[float]:
    """Return centers in the order of the row that are far enough apart and as near as possible to the wanted
    ones.
    """
    need = [(widths[a] + widths[b]) / 2 + gap for a, b in pairwise(row)]
    right = list(wanted)
    for at, distance in enumerate(need):
        right[at + 1] = max(right[at + 1], right[at] + distance)
    left = list(wanted)
    for at in range(len(need) - 1, -1, -1):
        left[at] = min(left[at], left[at + 1] - need[at])
    return [(a + b) / 2 for a, b in zip(left, right, strict=True)]


def _tops(
    rows: Sequence[Sequence[str]], sizes: Mapping[str, Size], row_gap: float
) -> tuple[list[float], float]:
    """Return the upper edge of each row, and the height of all rows."""
    tops = []
    at = 0.0
    for row in rows:
        tops.append(at)
        at += max(sizes[name].height for name in row if name in sizes) + row_gap
    return tops, at - row_gap


def _line(
    chain: Sequence[str],
    row_of: Mapping[str, int],
    centers: Mapping[str, float],
    tops: Sequence[float],
    sizes: Mapping[str, Size],
    rows: Sequence[Sequence[str]],
) -> list[Point]:
    """Return the points of an arrow, from the lower edge of its first box to the upper edge of its last."""
    first, last = chain[0], chain[-1]
    points = [(centers[first], tops[row_of[first]] + sizes[first].height)]
    for number, bend in enumerate(chain[1:-1], row_of[first] + 1):
        height = max(sizes[name].height for name in rows[number] if name in sizes)
        points += [(centers[bend], tops[number]), (centers[bend], tops[number] + height)]
    return [*points, (centers[last], tops[row_of[last]])]
