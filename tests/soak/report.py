"""Prints the counts and breaches of the parts of a soak for people."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

SHOWN = 10


@dataclass(frozen=True)
class Result:
    """The result of a part: its counts by name, a sentence for each breach, and notes to print as they are."""

    part: str
    command: str
    counts: dict[str, int]
    breaches: list[str]
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.breaches)

    def in_short(self) -> str:
        if not self.failed:
            return "no breach"
        return f"[red]{len(self.breaches)} breaches[/]; again: python {self.command}"


def print_table(console: Console, results: list[Result]) -> None:
    """Print every count of every part."""
    table = Table("part", "what", "count")
    for result in results:
        for number, (what, count) in enumerate(sorted(result.counts.items())):
            table.add_row(result.part if not number else "", what, f"{count:,}")
    console.print(table)
    for result in results:
        for breach in result.breaches[:SHOWN]:
            console.print(f"[red]{result.part}[/]: {breach}", markup=True)


def print_totals(console: Console, results: list[Result]) -> None:
    """Print the sums of the counts that several parts have in common."""
    totals: Counter[str] = Counter()
    for result in results:
        for what, count in result.counts.items():
            totals[what.replace("_", " ").removeprefix("records ")] += count
    names = ("checked", "lost", "doubled", "breaches")
    totals["breaches"] = sum(len(result.breaches) for result in results)
    console.print("records " + ", ".join(f"{name} {totals[name]:,}" for name in names), style="bold")
