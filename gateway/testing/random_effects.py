"""Random effects from a seed: the same requests in the same order meet the same faults."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.testing.effects import Effect, Kind
from gateway.testing.fault import RequestFacts

MOST_IN_A_ROW: Final = 3
"""Requests of a kind that are struck one after the other; the next one is spared, so that a client that retries gets on."""
DELAY_MS: Final = 50
_ANY: Final = (Effect(Kind.DROP_ANSWER), Effect(Kind.CLOSE), Effect(Kind.DELAY, DELAY_MS))
_OF_COORDINATORS: Final = (
    "AddOffsetsToTxn",
    "AddPartitionsToTxn",
    "EndTxn",
    "Heartbeat",
    "InitProducerId",
    "OffsetCommit",
    "TxnOffsetCommit",
)
_ERRORS: Final[Mapping[str, Sequence[ErrorCode]]] = {
    "Produce": (
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_enough_replicas,
        ErrorCode.kafka_storage_error,
    ),
    **dict.fromkeys(_OF_COORDINATORS, (ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress)),
}
"""The errors that a script answers with, by API. Clients retry after each of them."""


class RandomEffects:
    """Chooses for each request whether it fails, and how."""

    def __init__(self, seed: int, rate: float, kinds: Collection[Kind] | None = None) -> None:
        """Strike the share `rate` of the requests, with effects of these `kinds` only. Raises ValueError."""
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be above 0 and at most 1, not {rate}")
        if kinds is not None and not kinds:
            raise ValueError("kinds must name at least one kind of fault")
        self._random = random.Random(seed)
        self._rate = rate
        self._kinds = kinds
        self._in_a_row: dict[str, int] = {}

    def pick(self, request: RequestFacts) -> Effect | None:
        """Return what happens to a request; None spares it."""
        is_due = self._random.random() < self._rate
        effects = [
            each for each in possible_effects(request.api) if self._kinds is None or each.kind in self._kinds
        ]
        row = self._in_a_row.get(request.api, 0)
        if not is_due or not effects or row >= MOST_IN_A_ROW:
            self._in_a_row[request.api] = 0
            return None
        self._in_a_row[request.api] = row + 1
        return self._random.choice(effects)


def possible_effects(api: str) -> list[Effect]:
    """Return the effects of a script on requests of an API."""
    errors = [Effect(Kind.ERROR, error=error) for error in _ERRORS.get(api, ())]
    return [*_ANY, Effect(Kind.THROTTLE, DELAY_MS), *errors]
