"""Random lives of a partition, on a disk that fails, fills up and loses its power, with restarts.

A life is its seed: the same seed gives the same life. After each crash and at the end the log must hold what
it promised; see `scenario.check`.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable

from seqgate.log import StorageFailed
from tests.faults.directory_life import new_disk, now_ms
from tests.faults.disk_faults import FaultRates
from tests.faults.scenario import PRODUCERS, TOPIC, Life, Promises, check
from tests.faults.simulated_disk import PowerCut, SimulatedDisk
from tests.faults.written import TRANSACTIONAL, read_all

STEPS = 60


class Breach(Exception):
    """The log has violated a guarantee; the message says which one."""


class RandomLife:
    """One life; `counts` has the number of each event."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.disk: SimulatedDisk = new_disk(seed)
        self.promises = Promises()
        self.life = Life(self.disk, self.promises)
        self.counts: Counter[str] = Counter()
        self.leader_epoch = 0

    def run(self) -> None:
        """Carry out all random steps, and check the log after each. Raises Breach."""
        logging.disable(logging.CRITICAL)
        try:
            self.life.open()
            for _ in range(STEPS):
                self._step()
            self._crash()
        except Exception as error:
            raise Breach(f"seed {self.seed}: {error!r}") from error
        finally:
            logging.disable(logging.NOTSET)
            for kind, count in self.disk.faults.items():
                self.counts[f"disk_{kind.replace(' ', '_').lower()}"] += count
            self.counts["disk_operations"] += self.disk.plan.operations + self.disk.plan.reads

    def _step(self) -> None:
        self._choose_faults()
        try:
            self.chance.choice(self._steps())()
        except PowerCut:
            self._start_again()
        except (StorageFailed, OSError):
            self.counts["failed_steps"] += 1
            self._recover()
        except AssertionError as error:
            if "nothing to remove" not in str(error):
                raise

    def _choose_faults(self) -> None:
        plan, chance = self.disk.plan, self.chance
        plan.heal()
        kind = chance.randrange(8)
        if kind == 0:
            rate = 10.0 ** -chance.uniform(0.3, 2)
            plan.rates = FaultRates(
                open_eio=rate * chance.randrange(2),
                open_emfile=rate * chance.randrange(2),
                read_eio=rate * chance.randrange(2),
                write_eio=rate * chance.randrange(2),
                write_enospc=rate * chance.randrange(2),
                write_short=rate * chance.randrange(2),
                sync_eio=rate * chance.randrange(2),
                name_eio=rate * chance.randrange(2),
            )
        elif kind == 1:
            plan.is_full = True
        elif kind == 2:
            plan.kind, plan.fail_at = "cut", plan.operations + chance.randrange(1, 12)

    def _steps(self) -> list[Callable[[], object]]:
        life, chance, epoch = self.life, self.chance, self.leader_epoch
        often = [
            lambda: life.append(chance.randrange(PRODUCERS), chance.randrange(1, 6), epoch),
            lambda: life.send(chance.choice(TRANSACTIONAL), chance.randrange(1, 3), epoch),
            lambda: life.end(
                chance.choice(TRANSACTIONAL), commit=bool(chance.randrange(2)), leader_epoch=epoch
            ),
            life.flush,
        ]
        return [
            *often * 4,
            lambda: life.log.roll(now_ms()),
            life.checkpoint,
            life.clean_up,
            lambda: life.delete_records(chance.randint(life.log.log_start_offset, life.log.high_watermark)),
            lambda: life.retain(retention_bytes=chance.randrange(2000)),
            self._stop_and_start,
            self._crash,
            self._next_leader,
        ]

    def _next_leader(self) -> None:
        self.leader_epoch += 1

    def _stop_and_start(self) -> None:
        self.life.stop()
        self.life.open()
        self.counts["clean_stops"] += 1
        self._check()

    def _crash(self) -> None:
        if self.chance.randrange(3):
            self.disk.power_cut(random.Random(self.chance.random()))
        else:
            self.disk.kill()
        self._open_anew()

    def _start_again(self) -> None:
        """Start again after a power cut in the middle of a start."""
        self.disk.power_cut(random.Random(self.chance.random()))
        self._open_anew()

    def _open_anew(self) -> None:
        """Open the directory again. Some starts fail or are cut short; the next one succeeds."""
        for attempt in range(1 + self.chance.randrange(3)):
            self.disk.plan.heal()
            if attempt:
                self._choose_faults()
            self.life = Life(self.disk, self.promises)
            try:
                self.life.open()
                break
            except PowerCut:
                self.disk.power_cut(random.Random(self.chance.random()))
            except (OSError, StorageFailed):
                self.disk.kill()
            except AssertionError:
                # the disk could not read the existing partition
                self.disk.kill()
        self.disk.plan.heal()
        if self._log_or_none() is None:
            self.disk.kill()
            self.life = Life(self.disk, self.promises)
            self.life.open()
        self._settle()

    def _log_or_none(self) -> object:
        return None if self.life.directory is None else self.life.directory.opened(TOPIC, 0)

    def _recover(self) -> None:
        """Recover as the gateway does: reopen the partition, or open the directory again if the partition is
        not open.
        """
        self.disk.plan.heal()
        if self._log_or_none() is None:
            self.disk.kill()
            self._open_anew()
            return
        if self.life.log.offline:
            self.life.log.reopen(now_ms())
            self._settle()
        # A batch that was refused while the partition stayed online must not be in the log.
        self.promises.cut(self.life.log.log_end_offset)

    def _settle(self) -> None:
        """Take the contents of a recovered log as the new promises; records lost so far were never promised."""
        self.counts["recoveries"] += 1
        log, promises = self.life.log, self.promises
        self._check()
        promises.cut(log.log_end_offset)
        promises.durable_end_offset = max(promises.durable_end_offset, log.log_end_offset)
        promises.log_start_offset = log.log_start_offset
        log.advance_high_watermark(log.recovery_point)

    def _check(self) -> None:
        log, promises = self.life.log, self.promises
        found = read_all(log)
        values = [value for batch in found if batch.producer_id < PRODUCERS for value in batch.values]
        self.counts["records_checked"] += len(values)
        self.counts["doubled"] += len(values) - len(set(values))
        kept = {batch.base_offset for batch in found}
        self.counts["lost"] += sum(
            len(batch.values)
            for batch in promises.written
            if log.log_start_offset < batch.end_offset <= promises.durable_end_offset
            and batch.base_offset not in kept
        )
        check(log, promises)
