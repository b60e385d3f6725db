"""Runs seeds of the simulation of whole gateways: `--seed 7` replays one, `--seeds 100` or `--seconds 60` run
many.

Prints every seed with a breach and the command to replay it. The last line is JSON with the counts of all
seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import count, islice, takewhile
from multiprocessing import get_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.running import Outcome

HASH_SEED = "0"
"""PYTHONHASHSEED of the runs. The order of sets of strings depends on it, and a replay must have the same
order.
"""


def main() -> int:
    arguments = _parser().parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], environment)
    if arguments.seeds is None and arguments.seconds is None:
        return _run_one(arguments.seed, _kind(arguments))
    return _run_many(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the seed, or the first of many")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--bucket", action="store_true", help="run a gateway whose records are durable in a bucket"
    )
    kinds.add_argument("--cluster", action="store_true", help="run several gateways over one bucket")
    kinds.add_argument("--shares", action="store_true", help="run share groups, on one gateway or several")
    parser.add_argument("--seeds", type=int, help="run this many seeds")
    parser.add_argument("--seconds", type=float, help="begin no further seed after this many seconds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="seeds to run at a time")
    return parser


def _kind(arguments: argparse.Namespace) -> str:
    return next((kind for kind in ("bucket", "cluster", "shares") if getattr(arguments, kind)), "")


def _outcome(seed: int, kind: str) -> Outcome:
    from tests.simulation.worlds import World

    return World(kind).run(seed)


def _run_one(seed: int, kind: str) -> int:
    outcome = _outcome(seed, kind)
    print(outcome.told())
    print(json.dumps({"counts": dict(sorted(outcome.counts.items())), "fingerprint": outcome.fingerprint}))
    return 1 if outcome.breaches else 0


def _told(seed: int, kind: str) -> tuple[int, Counter[str], list[str], str, str]:
    outcome = _outcome(seed, kind)
    return seed, outcome.counts, outcome.breaches, outcome.told(), outcome.fingerprint


def _seeds(arguments: argparse.Namespace) -> Iterator[int]:
    if arguments.seeds is not None:
        return iter(range(arguments.seed, arguments.seed + arguments.seeds))
    deadline = time.monotonic() + arguments.seconds
    return takewhile(lambda _: time.monotonic() < deadline, count(arguments.seed))


def _run_many(arguments: argparse.Namespace) -> int:
    counts: Counter[str] = Counter()
    breaches: list[str] = []
    seeds, kind = _seeds(arguments), _kind(arguments)
    # what Python starts from 3.14 on does not know this module's functions
    with ProcessPoolExecutor(arguments.jobs, get_context("fork")) as pool:
        # one job per worker, so that no job is left when the time is over
        running = {pool.submit(_told, seed, kind) for seed in islice(seeds, arguments.jobs)}
        while running:
            for future in [future for future in running if future.done()]:
                running.discard(future)
                seed, counted, found, told, _ = future.result()
                counts.update(counted)
                counts["seeds"] += 1
                if found:
                    print(told, flush=True)
                    breaches += [f"seed {seed}: {breach}" for breach in found[:3]]
                following = next(seeds, None)
                if following is not None:
                    running.add(pool.submit(_told, following, kind))
            wait(running, return_when=FIRST_COMPLETED)
    print(json.dumps({"part": "simulation", "counts": dict(sorted(counts.items())), "breaches": breaches}))
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
