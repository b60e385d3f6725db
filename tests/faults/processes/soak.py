"""Runs faults in real processes for a given time: `python -m tests.faults.processes.soak --seconds N [--seed
S]`.

Each round takes the next test and a seed drawn from S. The last output line is JSON: the counts, and the
breaches. `--part NAME` runs one test only, with S itself as its seed, to replay a breach. `--pause N` lets
gateways that are taken over stand still for N seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.faults.processes.parts import PARTS, PAUSING
from tests.faults.processes.scene import Outcome
from tests.support.seeds import fresh_seed

ROUNDS_FACTOR = 3
"""How many times more rounds each test gets here than in the test suite."""


def main() -> int:
    arguments = _arguments()
    total = Outcome()
    deadline_s = time.monotonic() + arguments.seconds
    rng = Random(arguments.seed)
    names = [arguments.part] if arguments.part else list(PARTS)
    turn = 0
    while turn == 0 or (time.monotonic() < deadline_s and not total.breaches):
        name = names[turn % len(names)]
        seed = arguments.seed if arguments.part and turn == 0 else rng.randrange(2**32)
        total.merge(_round(name, seed, arguments.pause))
        turn += 1
    print(
        json.dumps(
            {"part": "processes", "counts": dict(sorted(total.counts.items())), "breaches": total.breaches}
        )
    )
    return 1 if total.breaches else 0


def _round(name: str, seed: int, pause_s: float | None) -> Outcome:
    """Run one test; its report goes to standard error."""
    pauses = pause_s is not None and name in PAUSING
    replay = f"--part {name!r} --seed {seed}" + (f" --pause {pause_s:g}" if pauses else "")
    print(replay, file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="processes-", ignore_cleanup_errors=True) as folder:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                outcome = _run_of(name, pause_s)(Path(folder), seed, ROUNDS_FACTOR * PARTS[name].rounds)
        except Exception:
            traceback.print_exc()
            last = traceback.format_exc().strip().splitlines()[-1]
            outcome = Outcome(breaches=[f"the run ended early: {last}"])
    outcome.counts[f"runs of {name}"] += 1
    outcome.breaches = [f"{breach} ({replay})" for breach in outcome.breaches]
    return outcome


def _run_of(name: str, pause_s: float | None) -> Callable[[Path, int, int], Outcome]:
    if pause_s is None or name not in PAUSING:
        return PARTS[name].run
    pausing = PAUSING[name]
    return lambda directory, seed, rounds: pausing(directory, seed, rounds, pause_s)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.processes.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no further part after so long")
    parser.add_argument("--seed", type=int, default=fresh_seed(), help="what everything is drawn from")
    parser.add_argument("--part", choices=PARTS, default=None, help="this part only")
    parser.add_argument(
        "--pause",
        type=float,
        default=None,
        help="seconds for which a gateway that is taken over stands still",
    )
    arguments = parser.parse_args()
    print(f"--seed {arguments.seed}", file=sys.stderr)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
