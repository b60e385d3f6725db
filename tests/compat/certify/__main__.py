"""Run six well-known clients through all scripts, and write the table of docs/certify.md.

    python -m tests.compat.certify                            # all of them: half an hour on two cores
    python -m tests.compat.certify --clients java librdkafka  # both columns of these clients; others stay as they are
    python -m tests.compat.certify --scripts power-cut        # one row
    python -m tests.compat.certify --write-only               # write the page again from the kept results

Needs Java, Go and Node, and their registries for the first run. Prints what each run showed. Exits with 1
when a failure has no explanation in tests/compat/certify/explanations.py.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from seqgate.gateway.certify.command import Setup, print_outcome, run_scripts
from seqgate.gateway.certify.scripts import SCRIPTS, Script, named
from tests.compat.certify.explanations import NAMES
from tests.compat.certify.programs import COLUMNS, Program
from tests.compat.certify.table import (
    PAGE,
    cell,
    page_with,
    read_results,
    unexplained,
    write_results,
    written,
)

TIMEOUT_S = 150.0
"""Time of one run: the Java client gives up after two minutes."""


def cells_of(program: Program, scripts: Sequence[Script], jobs: int) -> dict[str, str]:
    """Run a program through scripts; return their cells of its column."""
    setup = Setup(program.command(), timeout_s=TIMEOUT_S)
    certificate = run_scripts(setup, scripts, jobs=jobs, report=print_outcome)
    cells = {outcome.script.name: cell(outcome) for outcome in certificate.outcomes}
    return {"version": program.version(), **cells}


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compat.certify", description=__doc__)
    parser.add_argument("--clients", nargs="+", choices=list(NAMES), default=list(NAMES))
    names = [script.name for script in SCRIPTS]
    parser.add_argument("--scripts", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write-only", action="store_true", help="run nothing")
    arguments = parser.parse_args(given)
    logging.getLogger().addHandler(logging.NullHandler())
    results = read_results()
    for program in COLUMNS:
        if program.client in arguments.clients and not arguments.write_only:
            print(f"--- {program.name}")
            found = cells_of(program, named(arguments.scripts), arguments.jobs)
            results[program.name] = {**results.get(program.name, {}), **found}
            write_results(results)
    PAGE.write_text(page_with(written(results)))
    missing = unexplained(results)
    print(*missing, sep="\n", end="")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
