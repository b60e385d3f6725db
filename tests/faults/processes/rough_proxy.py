"""A proxy that loses answers, and forwards the others in single bytes, in halves, or too late."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from examples.demo.proxy import METADATA, PRODUCE, LossyProxy

INIT_PRODUCER_ID = 22
LOST_SHARE = 0.05
BYTEWISE_SHARE, HALVES_SHARE, LATE_SHARE = 0.3, 0.2, 0.02
BYTEWISE_MOST_BYTES = 2500
SHORT_DELAY_S = 0.05


class RoughProxy(LossyProxy):
    """The proxy. `late_s` is how long it holds a frame back: longer than the clients wait."""

    def __init__(self, upstream: tuple[str, int], *, seed: int, late_s: float) -> None:
        super().__init__(
            upstream,
            fault_rate=LOST_SHARE,
            seed=seed,
            losing=frozenset({PRODUCE, METADATA, INIT_PRODUCER_ID}),
        )
        self.counts: Counter[str] = Counter()
        self._ways = Random(seed + 1)
        self._late_s = late_s

    async def _send(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        chosen = self._ways.random()
        if chosen < LATE_SHARE:
            self.counts["frames held back"] += 1
            await asyncio.sleep(self._late_s)
            await super()._send(writer, frame)
        elif chosen < LATE_SHARE + HALVES_SHARE:
            self.counts["frames in halves"] += 1
            cut = self._ways.randrange(1, len(frame))
            await super()._send(writer, frame[:cut])
            await asyncio.sleep(self._ways.random() * SHORT_DELAY_S)
            await super()._send(writer, frame[cut:])
        elif chosen < LATE_SHARE + HALVES_SHARE + BYTEWISE_SHARE and len(frame) <= BYTEWISE_MOST_BYTES:
            self.counts["frames in single bytes"] += 1
            for position in range(len(frame)):
                await super()._send(writer, frame[position : position + 1])
                await asyncio.sleep(0)
        else:
            await super()._send(writer, frame)
