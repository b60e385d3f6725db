"""Causes every kind of fault for a given time: `make soak`, `make soak ARGS="--minutes 60"`.

Each part is a command of its own that injects faults from a seed and checks what must hold; this program runs
the parts one after the other, divides the time among them, and prints their counts and breaches. It exits
with 1 after any breach.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console

from tests.soak.parts import PARTS, Part
from tests.soak.report import Result, print_table, print_totals
from tests.soak.running import run_part
from tests.support.seeds import fresh_seed

console = Console(soft_wrap=True)


def main() -> int:
    arguments = _parser().parse_args()
    parts = [part for part in PARTS if not arguments.parts or part.name in arguments.parts]
    budget_s = arguments.minutes * 60
    console.print(
        f"seed {arguments.seed}, {arguments.minutes:g} minutes for {', '.join(part.name for part in parts)}"
    )
    results = [_run(part, parts, budget_s, arguments.seed, arguments.keep) for part in parts]
    print_table(console, results)
    print_totals(console, results)
    return 1 if any(result.failed for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make soak ARGS=...", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="approximate time of all parts together")
    parser.add_argument("--seed", type=int, default=fresh_seed(), help="replay a soak with its seed")
    parser.add_argument(
        "--parts", nargs="*", choices=[part.name for part in PARTS], help="run only these parts"
    )
    parser.add_argument("--keep", type=Path, help="directory for the whole output of each part")
    return parser


def _run(part: Part, parts: list[Part], budget_s: float, seed: int, keep: Path | None) -> Result:
    share_s = budget_s * part.weight / sum(other.weight for other in parts)
    console.print(f"[bold]{part.name}[/]: {part.does} ({share_s:.0f} s)")
    began_s = time.monotonic()
    result = run_part(part, share_s, seed, keep)
    for note in result.notes:
        console.print(f"  {note}", highlight=False, markup=False)
    console.print(f"  {time.monotonic() - began_s:.0f} s; {result.in_short()}")
    return result


if __name__ == "__main__":
    sys.exit(main())
