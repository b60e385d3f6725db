"""python -m tests.properties.wal_soak [--first N] [--histories N]

Runs random histories of sessions and takers, and prints counts; exits with 1 when something did not hold.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter

from tests.properties.wal_checks import breaches
from tests.properties.wal_history import run_history


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.properties.wal_soak")
    parser.add_argument("--first", type=int, default=5_000, help="the first seed")
    parser.add_argument("--histories", type=int, default=100)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    for seed in range(asked.first, asked.first + asked.histories):
        history = run_history(seed)
        found = breaches(history)
        counts["histories"] += 1
        counts["sessions"] += len(history.lives)
        counts["fenced"] += sum(bool(life.fenced_by) for life in history.lives)
        counts["stopped cleanly"] += sum(life.claimed_end is not None for life in history.lives)
        counts["calls"] += len(history.bucket.calls)
        counts["objects put"] += sum(len(life.put) for life in history.lives)
        counts["confirmed"] += sum(len(life.confirmed) for life in history.lives)
        counts["breaches"] += len(found)
        for sentence in found:
            print(f"history {seed}: {sentence}")
    print(", ".join(f"{name}: {count}" for name, count in counts.items()))
    return 1 if counts["breaches"] else 0


if __name__ == "__main__":
    sys.exit(main())
