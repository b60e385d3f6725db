"""Random lives of a partition on a faulty disk, for a given time: `python -m tests.faults.soak --seconds 60
--seed 1`.

The last line on stdout is JSON: the counts of events, and the breaches. A breach names its seed; `--seed S
--lives 1` replays that life.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter

from tests.faults.random_lives import Breach, RandomLife

MOST_BREACHES = 20


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--lives", type=int, default=1 << 62)
    given = arguments.parse_args()
    end = time.monotonic() + given.seconds
    counts: Counter[str] = Counter({"lives": 0, "records_checked": 0, "lost": 0, "doubled": 0})
    breaches = []
    seed = given.seed
    while time.monotonic() < end and len(breaches) < MOST_BREACHES and counts["lives"] < given.lives:
        life = RandomLife(seed)
        try:
            life.run()
        except Breach as breach:
            breaches.append(str(breach))
        counts.update(life.counts)
        counts["lives"] += 1
        seed += 1
    print(json.dumps({"part": "disk", "counts": dict(sorted(counts.items())), "breaches": breaches}))
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
