"""Kills applications for a given time: `python -m tests.faults.deduplication.soak --seconds N [--seed S]`.

Each round has a random plot of its own (`story.py`), from a seed drawn from S. The last output line is JSON:
the counts, and the breaches.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.faults.deduplication.story import Plot, any_roles, play
from tests.faults.processes.scene import Outcome
from tests.support.seeds import fresh_seed
from tests.support.spark_session import small_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = 3000
APPLICATION_KILLS = 10
GATEWAY_KILLS = 10
WITH_DELETED_RECORDS = 0.5
"""The share of rounds in which records are deleted while applications run."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.deduplication.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no further round after so long")
    parser.add_argument("--seed", type=int, default=fresh_seed(), help="what everything is drawn from")
    arguments = parser.parse_args()
    print(f"--seed {arguments.seed}", file=sys.stderr)
    deadline_s = time.monotonic() + arguments.seconds
    with (
        tempfile.TemporaryDirectory(prefix="warehouse-") as warehouse,
        contextlib.redirect_stdout(sys.stderr),
    ):
        spark = small_session(Path(warehouse))
        total = _rounds(spark, arguments.seed, deadline_s)
        spark.stop()
    counts = dict(sorted(total.counts.items()))
    print(json.dumps({"part": "deduplication", "counts": counts, "breaches": total.breaches}))
    return 1 if total.breaches else 0


def _rounds(spark: SparkSession, seed: int, deadline_s: float) -> Outcome:
    """Yield seeds; the first is the given seed, so that it can be replayed."""
    total = Outcome()
    rng = Random(seed)
    while not total.counts["rounds"] or (time.monotonic() < deadline_s and not total.breaches):
        total.merge(_round(spark, seed))
        seed = rng.randrange(2**32)
    return total


def _round(spark: SparkSession, seed: int) -> Outcome:
    print(f"--seed {seed}", file=sys.stderr, flush=True)
    rng = Random(seed)
    plot = Plot(
        APPLICATION_KILLS, GATEWAY_KILLS, LINES, any_roles(rng), deletes=rng.random() < WITH_DELETED_RECORDS
    )
    with tempfile.TemporaryDirectory(prefix="deduplication-", ignore_cleanup_errors=True) as folder:
        try:
            outcome = play(Path(folder), seed, plot, spark)
        except Exception:
            traceback.print_exc()
            last = traceback.format_exc().strip().splitlines()[-1]
            outcome = Outcome(breaches=[f"the run ended early: {last}"])
    outcome.counts["rounds"] += 1
    outcome.breaches = [f"{breach} (--seed {seed})" for breach in outcome.breaches]
    return outcome


if __name__ == "__main__":
    sys.exit(main())
