"""Plants faults in the production code, and reports after how many seeds of the simulation which checker
finds them.

`python -m tests.simulation.plant --fault NAME --seeds N` hunts one fault, without NAME all of them. `--fault
NAME --seed S` shows all breaches of one run, and `--seconds N` hunts all faults in turn for that time. Each
hunt begins with the seed that found the fault last (`planted/seeds.py`), continues with the seeds that found
others, and then with the seeds whose profile the fault names. `--keep` writes the seeds that find the faults
now. A seed counts only if the sound code passes it. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count, islice, takewhile
from multiprocessing import get_context
from pathlib import Path

from tests.simulation.planted import FAULTS, SOUGHT
from tests.simulation.planted import seeds as kept_seeds
from tests.simulation.planted.seeds import KEPT
from tests.simulation.worlds import World

HASH_SEED = "0"
KEPT_IN = Path(kept_seeds.__file__)
ALL = {**FAULTS, **SOUGHT}
LONGEST_S = {World.DISK: 15.0, World.BUCKET: 15.0, World.CLUSTER: 25.0, World.SHARES: 15.0}
"""The longest runs, in virtual time: many seeds find more than long runs do."""
SEEDS = 60


@dataclass(frozen=True)
class Tried:
    """The result of one fault in one run. `checkers` found the fault; the run is `unsound` if the sound code
    fails it, too.
    """

    fault: str
    seed: int
    checkers: tuple[str, ...]
    first_breach: str = ""
    unsound: bool = False


@dataclass(frozen=True)
class Found:
    """The result of a hunt. `seeds` is the number of runs; without `checkers`, all of them found nothing."""

    fault: str
    seeds: int
    checkers: tuple[str, ...] = ()
    seed: int = -1
    first_breach: str = ""

    @property
    def replay(self) -> str:
        """Return the command that shows the whole run."""
        return f"python -m tests.simulation.plant --fault {self.fault} --seed {self.seed}"

    def told(self) -> str:
        """Return sentences for people, with the command that shows the whole run."""
        if not self.checkers:
            return f"{self.fault}: not found in {self.seeds} seeds"
        first = self.first_breach.splitlines()[0]
        found_by = ", ".join(self.checkers)
        return f"{self.fault}: found in {self.seeds} seeds by {found_by}: {first[:200]}\n  {self.replay}"

    def row(self) -> str:
        """Return a row of the table of all faults (`--table`)."""
        checkers = ", ".join(f"`{checker}`" for checker in self.checkers) or "not found"
        return f"| `{self.fault}` | {ALL[self.fault].mistake} | {checkers} | {self.seed} |"


def run_of(world: World, seed: int) -> list[str]:
    """Return the breaches of a run, with the fault that is planted now, if any."""
    return world.run(seed, LONGEST_S[world]).breaches


def breaches_of(fault: str, seed: int) -> list[str]:
    """Return the breaches of a run with the fault."""
    with ALL[fault].plant():
        return run_of(ALL[fault].world, seed)


@lru_cache
def is_unsound(seed: int, world: World) -> bool:
    """Return whether a run without any fault shows a breach."""
    return bool(run_of(world, seed))


def try_seed(fault: str, seed: int) -> Tried:
    """Run with the fault. If that shows a breach, run without the fault, too."""
    breaches = breaches_of(fault, seed)
    checkers = tuple(dict.fromkeys(breach.split(":", 1)[0] for breach in breaches))
    if not breaches:
        return Tried(fault, seed, ())
    return Tried(fault, seed, checkers, breaches[0], is_unsound(seed, ALL[fault].world))


def seeds_for(fault: str, first: int) -> Iterator[int]:
    """Yield the seed that found the fault last, if any, the seeds that found other faults, and then seeds
    from `first`.

    All but the first are seeds whose profile the fault names.
    """
    profiles = ALL[fault].profiles
    kept = KEPT.get(fault)
    world = ALL[fault].world
    alike = {seed for other, seed in KEPT.items() if ALL[other].world is world}
    others = sorted(alike - {kept})
    if kept is not None:
        yield kept
    further = (seed for seed in count(first) if seed != kept and seed not in others)
    for seed in chain(others, further):
        if not profiles or world.profile_name_of(seed) in profiles:
            yield seed


def find(pool: ProcessPoolExecutor, fault: str, first: int, number: int, at_once: int) -> Found:
    """Return the first of `number` seeds that shows the fault."""
    seeds = islice(seeds_for(fault, first), number)
    needed = 0
    for tried in _in_order(pool, fault, seeds, at_once):
        if not tried.unsound:
            needed += 1
            if tried.checkers:
                return Found(fault, needed, tried.checkers, tried.seed, tried.first_breach)
    return Found(fault, needed)


def _in_order(pool: ProcessPoolExecutor, fault: str, seeds: Iterator[int], at_once: int) -> Iterator[Tried]:
    """Yield the results in the order of their seeds, with some runs ahead of the consumer."""
    running = [pool.submit(try_seed, fault, seed) for seed in islice(seeds, at_once)]
    while running:
        yield running.pop(0).result()
        running += [pool.submit(try_seed, fault, seed) for seed in islice(seeds, 1)]


def find_within(
    pool: ProcessPoolExecutor, faults: Sequence[str], first: int, seconds: float, at_once: int
) -> list[Found]:
    """Try one more seed for each fault that is not found yet, round by round, until the time is over.

    The first round uses the kept seeds.
    """
    deadline = time.monotonic() + seconds
    needed: Counter[str] = Counter()
    found: dict[str, Found] = {}
    left = {fault: seeds_for(fault, first) for fault in faults}
    rounds = ((fault, next(left[fault])) for _ in count() for fault in faults if fault not in found)
    tries = takewhile(lambda _: time.monotonic() < deadline, rounds)
    running = [pool.submit(try_seed, *one) for one in islice(tries, at_once)]
    while running:
        tried = running.pop(0).result()
        if not tried.unsound and tried.fault not in found:
            needed[tried.fault] += 1
            if tried.checkers:
                found[tried.fault] = Found(
                    tried.fault, needed[tried.fault], tried.checkers, tried.seed, tried.first_breach
                )
        if len(found) < len(faults):
            running += [pool.submit(try_seed, *one) for one in islice(tries, 1)]
    return [found.get(fault, Found(fault, needed[fault])) for fault in faults]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.plant", description=__doc__)
    parser.add_argument(
        "--fault",
        choices=sorted(ALL),
        action="append",
        help="the fault to hunt (default: all that were found before)",
    )
    parser.add_argument(
        "--seed", type=int, help="show all breaches of this run; with --seconds, the first seed"
    )
    parser.add_argument("--seconds", type=float, help="hunt all faults in turn for this many seconds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="the most seeds for each fault")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("--keep", action="store_true", help="write the seeds that find the faults")
    parser.add_argument("--table", action="store_true", help="print the table of the documentation")
    return parser


def _show(fault: str, seed: int) -> int:
    breaches = breaches_of(fault, seed)
    print("\n".join(breaches))
    return 0 if breaches else 1


def keep(found: Iterable[Found]) -> None:
    """Write the seeds of the faults that were found; the seeds of the others stay."""
    seeds = {**KEPT, **{one.fault: one.seed for one in found if one.checkers}}
    rows = "".join(f'    "{fault}": {seeds[fault]},\n' for fault in sorted(seeds) if fault in ALL)
    text = KEPT_IN.read_text()
    begin, end = text.index("{\n") + 2, text.rindex("}")
    KEPT_IN.write_text(text[:begin] + rows + text[end:])


def _report(found: Sequence[Found]) -> int:
    """Print the results. A fault that no seed shows is a failure; a kept seed that no longer shows its fault
    is not.

    A timed hunt may end before a fault is tried; such a fault is not counted.
    """
    tried = [one for one in found if one.seeds]
    breaches = [f"{one.fault} was not found in {one.seeds} seeds" for one in tried if not one.checkers]
    counts = {
        "faults planted": len(tried),
        "faults found": sum(bool(one.checkers) for one in tried),
        "found by the kept seed": sum(one.seed == KEPT.get(one.fault) for one in tried if one.checkers),
        "seeds run": sum(one.seeds for one in tried),
    }
    notes = [_note_of(one) for one in tried if one.checkers]
    print(json.dumps({"part": "planted faults", "counts": counts, "breaches": breaches, "notes": notes}))
    return 1 if breaches else 0


def _note_of(found: Found) -> str:
    kept = KEPT.get(found.fault)
    if found.seed == kept:
        return found.replay
    return (
        f"{found.replay}  # seed {kept} no longer shows the fault; --fault {found.fault} --keep keeps another"
    )


def main() -> int:
    """Hunt faults; exit with 1 when one was not found."""
    arguments = _parser().parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.simulation.plant", *sys.argv[1:]], environment
        )
    faults = arguments.fault or list(FAULTS)
    if arguments.seconds is not None:
        with ProcessPoolExecutor(arguments.jobs, get_context("fork")) as pool:
            found = find_within(pool, faults, arguments.seed or 0, arguments.seconds, arguments.jobs)
        print("\n".join(one.told() for one in found))
        if arguments.keep:
            keep(found)
        return _report(found)
    if arguments.seed is not None:
        return _show(faults[0], arguments.seed)
    if arguments.table:
        print("| planted fault | the mistake it stands for | found by | seed |\n| --- | --- | --- | --- |")
    found = []
    with ProcessPoolExecutor(arguments.jobs, get_context("fork")) as pool:
        for fault in faults:
            one = find(pool, fault, arguments.first, arguments.seeds, arguments.jobs)
            found.append(one)
            print(one.row() if arguments.table else one.told(), flush=True)
    if arguments.keep:
        keep(found)
    return _report(found)


if __name__ == "__main__":
    sys.exit(main())
