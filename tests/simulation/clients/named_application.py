"""An application that sends the lines of a source under a producer name, dies and starts again: from the
sequence id that the gateway reports, from an older line, or from the first one.

Its previous life may continue to write the same lines for a while. Where lives send name epochs, the gateway
must fence the previous one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from tests.simulation.clients.links import link_of
from tests.simulation.clients.name_offsets import NameOffsets
from tests.simulation.clients.named_lines import Source, Writer
from tests.simulation.clients.named_lives import (
    Life,
    PipelinedLife,
    Position,
    Progress,
    Task,
    TransactionalLife,
)
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.clients.transactional_producer import TransactionHabits
from tests.simulation.events_of_names import NO_EPOCH

PLAIN, IDEMPOTENT, TRANSACTIONAL, NEW_TRANSACTIONAL = (
    "plain",
    "idempotent",
    "transactional",
    "new transactional",
)
KINDS = (PLAIN, IDEMPOTENT, TRANSACTIONAL, NEW_TRANSACTIONAL)
TOLD, OLDER, BEGINNING = "told", "older", "beginning"
STARTS = (TOLD, TOLD, TOLD, OLDER, OLDER, BEGINNING)
FURTHEST_BEGINNING = 150
"""An application that has passed this line no longer starts at the first line."""
OLDER_LINES = 40
ZOMBIE_S = 3.0
LAST_LIFE_S = 60.0


@dataclass(frozen=True)
class ApplicationHabits:
    """The habits of an application.

    `kinds`: the kinds of its lives. `first_epoch`: the first life that sends its number as a name epoch.
    """

    kinds: tuple[str, ...]
    pause_s: float
    max_lines: int
    life_s: float
    first_epoch: int | None
    zombie_chance: float
    timeout_ms: int


class NamedApplication:
    def __init__(
        self, surroundings: Surroundings, source: Source, random: Random, habits: ApplicationHabits
    ) -> None:
        self._surroundings = surroundings
        self._source = source
        self._random = random
        self._habits = habits
        self._link = link_of(surroundings, f"{source.name}-asks", random)
        self._offsets = NameOffsets(surroundings, self._link, random, source.name)
        self._progress = Progress()
        self._lives = 0
        self._zombies: list[tuple[Life, asyncio.Task[None]]] = []

    async def run(self) -> None:
        """Run until the end of the run, and then until every line that was ever sent is stored, at least one
        line.
        """
        asking = asyncio.create_task(self._ask())
        while not self._surroundings.ending:
            await self._live(None, self._random.expovariate(1 / self._habits.life_s))
            await self._surroundings.pause(self._random, 0.1)
        await asking
        while self._progress.first_missing < (target := max(1, self._progress.highest)):
            await self._live(target, LAST_LIFE_S)
        for zombie in list(self._zombies):
            await self._bury(*zombie)
        self._link.close()

    async def _ask(self) -> None:
        """Ask for the name's last sequence id; the answer must be right at any time."""
        while not self._surroundings.ending:
            await self._offsets.told(self._source.places)
            await self._surroundings.pause(self._random, 0.2)

    async def _live(self, target: int | None, life_s: float) -> None:
        position = await self._start()
        self._lives += 1
        life = self._new_life(position, target)
        living = asyncio.create_task(life.run())
        await asyncio.wait({living}, timeout=life_s)
        if not living.done() and self._random.random() < self._habits.zombie_chance:
            self._zombies.append((life, living))
            while len(self._zombies) > 1:
                await self._bury(*self._zombies[0])
        else:
            await self._end(life, living)

    async def _bury(self, life: Life, living: asyncio.Task[None]) -> None:
        await asyncio.wait({living}, timeout=ZOMBIE_S)
        self._zombies.remove((life, living))
        await self._end(life, living)

    async def _end(self, life: Life, living: asyncio.Task[None]) -> None:
        """End a life abruptly: its connections just close."""
        if living.done():
            living.result()
        else:
            living.cancel()
            await asyncio.wait({living})
        life.leave()

    async def _start(self) -> Position:
        """Return the start position of a new life: never behind a line that is not known to be stored."""
        first_missing = self._progress.first_missing
        start = self._random.choice(STARTS)
        if start == TOLD:
            told = await self._offsets.told(self._source.places)
            if self._random.random() < 0.5:
                return Position(self._source.first_after(min(told.values())))
            return Position(min(self._source.first_after(sequence) for sequence in told.values()), told)
        if start == BEGINNING and first_missing <= FURTHEST_BEGINNING:
            return Position(0)
        return Position(self._random.randint(max(0, first_missing - OLDER_LINES), first_missing))

    def _new_life(self, position: Position, target: int | None) -> Life:
        habits, number = self._habits, self._lives
        kind = self._random.choice(habits.kinds)
        epoch = NO_EPOCH if habits.first_epoch is None or number < habits.first_epoch else number
        writer = Writer(self._source.name, number, epoch, kind != PLAIN)
        task = Task(self._source, position, self._progress, habits.pause_s, habits.max_lines, target)
        own = Random(self._random.getrandbits(64))
        if kind in {PLAIN, IDEMPOTENT}:
            return PipelinedLife(self._surroundings, writer, own, task, local_bump=own.random() < 0.7)
        transactional_id = f"{writer.name}.{number}" if kind == NEW_TRANSACTIONAL else writer.name
        transactions = TransactionHabits(habits.pause_s, max_batches=4, timeout_ms=habits.timeout_ms)
        return TransactionalLife(
            self._surroundings, writer, own, task, transactional_id=transactional_id, habits=transactions
        )
