"""The comparison as a table in Markdown and as JSON."""

from __future__ import annotations

import datetime as dt
import math
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seqgate import __version__
from tests.performance.loads import Sample
from tests.support.setup_peers import KAFKA_VERSION

MIB = 1024 * 1024
HEADINGS = (
    "load",
    "durability",
    "records/s",
    "spread %",
    "ratio",
    "broker CPU s",
    "ratio of records per CPU s",
    "p99 ms",
    "ratio",
    "resident MiB",
    "client CPU s",
)

BESIDE_COLUMNS = (
    ("records/s", "records_per_s", ",.0f", 1),
    ("CPU µs per record", "broker_cpu_us", ".2f", 1),
    ("p99 ms", "p99_ms", ".2f", 1),
    ("resident MiB", "resident_bytes", ".0f", MIB),
)
"""The columns of the table with a line for each broker: heading, field of a sample, format and scale."""


@dataclass(frozen=True)
class Cell:
    """One row of the table at one durability: the samples of all rounds by broker."""

    row: str
    title: str
    durability: str
    samples: dict[str, list[Sample]]

    def median(self, broker: str, field: str) -> float | None:
        """Return the median of all rounds; None for a figure that the load does not tell."""
        values = [getattr(sample, field) for sample in self.samples[broker]]
        return None if any(map(math.isnan, values)) else float(statistics.median(values))

    def shown(self, broker: str, field: str, form: str, scale: float = 1.0) -> str:
        """Return the median as text; "-" for a figure that the load does not tell."""
        median = self.median(broker, field)
        return "-" if median is None else format(median / scale, form)

    def ratio(self, field: str) -> str:
        """Return the first broker's median by the second's; "-" where one of them is missing."""
        ours, *others = [self.median(name, field) for name in self.samples]
        if not others or ours is None or others[0] is None:
            return "-"
        return f"{ours / max(others[0], 1e-9):.2f}"

    def spread(self, broker: str) -> float:
        """Return how far the rates of all rounds lie apart, as a share of their median."""
        rates = [sample.records_per_s for sample in self.samples[broker]]
        return (max(rates) - min(rates)) / statistics.median(rates)


def describe_run(command: str, load_program: list[str]) -> dict[str, str]:
    """Describe the machine, the versions and the time of the run; `load_program` names the load generator."""
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "seqgate": __version__,
        "python": platform.python_version(),
        "kafka": KAFKA_VERSION,
        "java": _java_version(),
        "cpu": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "load": "Python" if sys.executable in load_program else "compiled",
        "kernel": platform.release(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _java_version() -> str:
    told = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=False
    ).stderr.splitlines()
    return told[0].partition('"')[2].rstrip('"').partition('"')[0] if told else "unknown"


def _head(run: dict[str, str]) -> list[str]:
    other = run.get("against") or f"Apache Kafka {run['kafka']} (Java {run['java']})"
    what = f"Seqgate {run['seqgate']} (Python {run['python']}) and {other}"
    where = f"{run['cpu']}, {run['cores']} cores, Linux {run['kernel']}"
    return [
        f"{what}, {run['date']}, `{run['command']}`.",
        f"{where}. Broker and load ({run['load']}) share the cores. Medians;",
    ]


def markdown(run: dict[str, str], starts: dict[str, list[float]], cells: Sequence[Cell]) -> str:
    what, where = _head(run)
    lines = [
        what,
        f"{where} a pair reads Seqgate / the other, a ratio Seqgate : the other.",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "| --- | --- |" + " ---: |" * (len(HEADINGS) - 2),
        *(_table_row(cell) for cell in cells),
        "",
    ]
    if starts:
        told = " / ".join(f"{statistics.median(times):.2f} s" for times in starts.values())
        lines += [f"Start, from spawn to the first ApiVersions answer: {told}."]
    return "\n".join(lines)


def _table_row(cell: Cell) -> str:
    names = list(cell.samples)

    def pair(field: str, form: str, scale: float = 1.0) -> str:
        return " / ".join(cell.shown(name, field, form, scale) for name in names)

    return " | ".join(
        [
            f"| {cell.title}",
            cell.durability,
            pair("records_per_s", ",.0f"),
            " / ".join(f"{100 * cell.spread(name):.0f}" for name in names),
            cell.ratio("records_per_s"),
            pair("broker_cpu_s", ".2f"),
            cell.ratio("records_per_cpu_s"),
            pair("p99_ms", ".2f"),
            cell.ratio("p99_ms"),
            pair("resident_bytes", ".0f", MIB),
            pair("client_cpu_s", ".2f") + " |",
        ]
    )


def beside(run: dict[str, str], cells: Sequence[Cell]) -> str:
    """Return a table with a line for each broker, and one with the ratios of their figures below them."""
    what, where = _head(run)
    headings = ["load", "durability", "broker", *(heading for heading, *_ in BESIDE_COLUMNS), "spread %"]
    lines = [
        what,
        f"{where} a ratio reads Seqgate : the other.",
        "",
        "| " + " | ".join(headings) + " |",
        "| --- | --- | --- |" + " ---: |" * (len(headings) - 3),
        *(line for cell in cells for line in _lines_beside(cell)),
        "",
    ]
    return "\n".join(lines)


def _lines_beside(cell: Cell) -> Iterator[str]:
    def line(*texts: str) -> str:
        return "| " + " | ".join((cell.title, cell.durability, *texts)) + " |"

    for name in cell.samples:
        shown = [cell.shown(name, field, form, scale) for _, field, form, scale in BESIDE_COLUMNS]
        yield line(name, *shown, f"{100 * cell.spread(name):.0f}")
    _, other = cell.samples
    yield line(f"ratio to {other}", *(cell.ratio(field) for _, field, *_ in BESIDE_COLUMNS), "")


def as_json(run: dict[str, str], starts: dict[str, list[float]], cells: Sequence[Cell]) -> dict[str, Any]:
    """Return all measurements as JSON; field names end with their units."""
    return {
        "run": run,
        "start_s": starts,
        "rows": [
            {
                "row": cell.row,
                "title": cell.title,
                "durability": cell.durability,
                "medians": {
                    name: {
                        field: cell.median(name, field)
                        for field in (
                            "records_per_s",
                            "records_per_cpu_s",
                            "broker_cpu_s",
                            "broker_cpu_us",
                            "p99_ms",
                            "resident_bytes",
                        )
                    }
                    for name in cell.samples
                },
                "samples": {
                    name: [_told(sample) for sample in samples] for name, samples in cell.samples.items()
                },
            }
            for cell in cells
        ],
    }


def _told(sample: Sample) -> dict[str, Any]:
    """Return the figures of a sample; JSON has no NaN."""
    return {field: None if value != value else value for field, value in asdict(sample).items()}  # noqa: PLR0124
