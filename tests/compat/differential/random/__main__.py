"""Sends random sequences of requests to Apache Kafka and to a gateway: `python -m
tests.compat.differential.random --seconds 60`.

Each difference is printed with the shortest sequence that shows it and the command that replays it. The last
line on stdout is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from itertools import count
from pathlib import Path

from tests.compat.differential.random.running import WORLDS, Pair
from tests.conftest import AS_THE_PEER
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_peer import KafkaPeer
from tests.support.seeds import fresh_seed

MOST_BREACHES = 20
"""The number of differences at which the run ends; most differences have one cause."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compat.differential.random", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no further sequence after so long")
    parser.add_argument(
        "--seed", type=int, default=fresh_seed(), help="of the first sequences; then the next"
    )
    parser.add_argument("--sequences", type=int, help="of each family, instead of a time")
    parser.add_argument(
        "--family", choices=sorted(WORLDS), nargs="*", default=list(WORLDS), help="only these"
    )
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    breaches: list[str] = []
    with (
        tempfile.TemporaryDirectory() as directory,
        KafkaPeer(Path(directory) / "kafka") as kafka,
        GatewayProcess(Path(directory) / "gateway", settings=AS_THE_PEER) as gateway,
    ):
        pair = Pair(kafka.bootstrap, gateway.bootstrap)
        deadline_s = time.monotonic() + given.seconds
        for seed in count(given.seed):
            is_over = (
                time.monotonic() >= deadline_s
                if given.sequences is None
                else seed >= given.seed + given.sequences
            )
            if is_over or len(breaches) >= MOST_BREACHES:
                break
            for family in given.family:
                began_s = time.monotonic()
                again = f"again: python -m tests.compat.differential.random --sequences 1 --family {family} --seed {seed}"
                try:
                    found, requests = pair.run(family, seed)
                except Exception:
                    traceback.print_exc()
                    breaches.append(f"{family} failed; {again}")
                    continue
                counts["sequences"] += 1
                counts["requests"] += requests
                counts[f"ms of {family}"] += round((time.monotonic() - began_s) * 1000)
                if found is not None:
                    print(found, flush=True)
                    breaches.append(f"{family} differs; {again}")
    print(json.dumps({"part": "random requests", "counts": counts, "breaches": breaches}))
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
