"""Random lives of a deduplicating partition: `python -m tests.properties.random_names --seconds 60 --seed 1`.

A life is its seed: the same seed gives the same life. The last line on stdout is JSON: the counts of events,
and the breaches, each with its seed; `--seed S --lives 1` replays that life.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from seqgate.log import StorageFailed
from tests.faults.directory_life import new_disk
from tests.faults.disk_faults import FaultRates
from tests.faults.simulated_disk import PowerCut
from tests.models.names import NO_PRODUCER
from tests.properties.names_life import CODECS, EPOCHS, IDEMPOTENT, TRANSACTIONAL, NamesLife
from tests.properties.names_with_limits import EXPIRATION_MS, TIMES_MS

STEPS = 80
MOST_BREACHES = 20
PRODUCERS = (NO_PRODUCER, NO_PRODUCER, *IDEMPOTENT, *TRANSACTIONAL)


class Breach(Exception):
    """The partition violated a guarantee; the message says which one."""


@dataclass
class Chance:
    """Draws the next operation on the partition under test: a Produce, a restart, or another one."""

    life: NamesLife
    chance: random.Random
    has_epochs: bool

    def send(self) -> None:
        chance = self.chance
        positions = [
            (chance.choice((0, 0, 1, 2, 3)), chance.choice((0, 0, 0, 1, 2, 5)))
            for _ in range(chance.randrange(1, 6))
        ]
        epochs = tuple(sorted(chance.choices(EPOCHS, k=2))) if self.has_epochs else (-1,)
        self.life.send(
            positions, producer_id=chance.choice(PRODUCERS), codec=chance.choice(CODECS), epochs=epochs
        )

    def end(self) -> None:
        self.life.end(self.chance.choice(TRANSACTIONAL), commit=self.chance.random() < 0.6)

    def meanwhile(self) -> None:
        """Choose what happens during a flush."""
        life, chance = self.life, self.chance
        for _ in range(chance.randrange(1, 6)):
            chance.choice(
                [
                    self.send,
                    life.capture,
                    life.flush,
                    life.toggle,
                    life.roll,
                    lambda: life.pass_time(EXPIRATION_MS),
                    life.expire,
                    lambda: life.delete_records(chance.randrange(101)),
                    lambda: life.retain(chance.randrange(4_000)),
                ]
            )()

    def steps(self) -> list[Callable[[], object]]:
        """Return the possible next steps; likelier steps occur more often."""
        life, chance = self.life, self.chance
        limits = [
            *[lambda: life.pass_time(chance.choice(TIMES_MS))] * 6,
            *[life.expire] * 3,
            life.capture,
            lambda: life.alter_limit(chance.randrange(1, 4)),
        ]
        return [
            *(limits if life.has_limits else ()),
            *[self.send] * 16,
            *[self.end] * 4,
            *[life.flush] * 6,
            lambda: life.flush(self.send),
            lambda: life.flush(self.meanwhile),
            lambda: life.retry(chance.randrange(10)),
            lambda: life.send_half(chance.randrange(3)),
            life.capture,
            life.roll,
            life.checkpoint,
            life.clean_up,
            life.compact,
            life.fail_flush,
            life.toggle,
            lambda: life.replay(chance.randrange(1, 400)),
            lambda: life.delete_records(chance.randrange(101) < 0.5),
            lambda: life.retain(chance.randrange(4_000) < 0.5),
            lambda: life.stop(clean=chance.random() < 0.7),
            life.kill,
            lambda: life.power_cut(chance.randrange(1_000)),
            lambda: life.lose_snapshots(chance.randrange(3), is_damaged=chance.random() < 0.5),
        ]


class RandomNames:
    """One life; `counts` has the number of each event."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.disk = new_disk(seed)
        self.life = NamesLife(
            self.disk,
            is_on=self.chance.random() < 0.7,
            compact=self.chance.random() < 0.3,
            has_limits=self.chance.random() < 0.4,
        )
        self.steps = Chance(self.life, self.chance, has_epochs=self.chance.random() < 0.4)
        self.fails = self.chance.random() < 0.5

    @property
    def counts(self) -> Counter[str]:
        return self.life.counts

    def run(self) -> None:
        """Carry out all steps, and compare the partition with its model after each. Raises Breach."""
        logging.disable(logging.CRITICAL)
        try:
            self.life.begin()
            for _ in range(STEPS):
                self._step()
            self.disk.plan.heal()
            self.life.stop(clean=False)
            self.life.replay(1 << 30)
            self.life.compare()
        except Exception as error:
            raise Breach(f"seed {self.seed}: {error!r}") from error
        finally:
            logging.disable(logging.NOTSET)

    def _step(self) -> None:
        self._choose_faults()
        try:
            self.chance.choice(self.steps.steps())()
            self.life.compare()
        except PowerCut:
            self.counts["cuts"] += 1
            self._power_cut()
        except (StorageFailed, OSError):
            self.counts["failed steps"] += 1
            self._recover()

    def _choose_faults(self) -> None:
        plan, chance = self.disk.plan, self.chance
        plan.heal()
        kind = chance.randrange(8) if self.fails else 8
        if kind == 0:
            rate = 10.0 ** -chance.uniform(0.3, 2)
            names = (
                "open_eio",
                "read_eio",
                "write_eio",
                "write_enospc",
                "write_short",
                "sync_eio",
                "name_eio",
            )
            plan.rates = FaultRates(**{name: rate * chance.randrange(2) for name in names})
        elif kind == 1:
            plan.kind, plan.fail_at = "cut", plan.operations + chance.randrange(1, 12)

    def _power_cut(self) -> None:
        self.disk.plan.heal()
        self.life.power_cut(self.chance.randrange(1_000))

    def _recover(self) -> None:
        self.disk.plan.heal()
        life = self.life
        if life.directory is None or life.directory.opened(life.topic, 0) is None:
            life.kill()
        else:
            life.recover()


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--lives", type=int, default=1 << 62)
    given = arguments.parse_args()
    end = time.monotonic() + given.seconds
    counts: Counter[str] = Counter({"lives": 0})
    breaches: list[str] = []
    seed = given.seed
    while time.monotonic() < end and len(breaches) < MOST_BREACHES and counts["lives"] < given.lives:
        life = RandomNames(seed)
        try:
            life.run()
        except Breach as breach:
            breaches.append(str(breach))
        counts.update(life.counts)
        counts["lives"] += 1
        seed += 1
    told = {name.replace(" ", "_"): count for name, count in sorted(counts.items())}
    print(json.dumps({"part": "names", "counts": told, "breaches": breaches}))
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
