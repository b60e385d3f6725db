"""python -m tests.properties.wal_soak [--seconds N] [--seed S] [--histories N]

Runs random histories of a bucket's sessions and takers, from the seed on, until the time is up or so many are
done. Ends with one line of JSON; exits with 1 when something did not hold.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter

from tests.properties.wal_checks import breaches
from tests.properties.wal_history import run_history


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.properties.wal_soak")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=5_000, help="the first seed")
    parser.add_argument("--histories", type=int, default=sys.maxsize)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    deadline = time.monotonic() + asked.seconds
    counts: Counter[str] = Counter()
    found: list[str] = []
    while counts["histories"] < asked.histories and time.monotonic() < deadline:
        seed = asked.seed + counts["histories"]
        history = run_history(seed)
        found += [f"history {seed}: {sentence}" for sentence in breaches(history)]
        counts["histories"] += 1
        counts["sessions"] += len(history.lives)
        counts["sessions fenced"] += sum(bool(life.fenced_by) for life in history.lives)
        counts["clean stops"] += sum(life.claimed_end is not None for life in history.lives)
        counts["calls of the store"] += len(history.bucket.calls)
        counts["objects put"] += sum(len(life.put) for life in history.lives)
        counts["objects confirmed"] += sum(len(life.confirmed) for life in history.lives)
    print(json.dumps({"part": "bucket", "counts": counts, "breaches": found}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
