"""The answer of a request that client quotas apply to: it says how long its client is throttled, and mutes the connection."""

from __future__ import annotations

from functools import partial
from typing import Final

from gateway.handlers.answering.api import Answer, Deferred, Peer
from gateway.protocol.error_answers import with_throttle_time
from gateway.runtime.quotas.client_quotas import Charge

SHARE_FETCH: Final = 78


class ChargedAnswer:
    """The answer of one request, which comes now or later."""

    __slots__ = ("_api_key", "_api_version", "_charge", "_peer")

    def __init__(self, charge: Charge, peer: Peer, api_key: int, api_version: int) -> None:
        self._charge = charge
        self._peer = peer
        self._api_key = api_key
        self._api_version = api_version

    def of(self, begun: Answer | Deferred | None) -> Answer | Deferred | None:
        """Return the answer of a request that has begun, with its throttle time."""
        if isinstance(begun, Deferred):
            return self._later(begun)
        if begun is None:
            self._mute()
            return None
        return self._finished(begun)

    def _later(self, begun: Deferred) -> Deferred:
        self._mute()
        charged = Deferred(holds_back=begun.holds_back)
        if begun.answer is not None:
            self._resolve(begun, charged)
            return charged
        charged.on_abandoned = partial(self._abandon, begun)
        begun.on_others_may_begin = charged.let_others_begin
        begun.when_resolved(partial(self._resolve, begun, charged))
        return charged

    def _resolve(self, begun: Deferred, charged: Deferred) -> None:
        # The callback refers to the answer that holds the callback. Break this cycle, so that the connection
        # is freed at once.
        begun.when_resolved(_resolved_already)
        if begun.failed or begun.answer is None:
            self._charge.count_time()
            charged.resolve_last(b"" if begun.answer is None else begun.answer)
        else:
            charged.resolve(self._finished(begun.answer))

    def _abandon(self, begun: Deferred) -> None:
        """Charge the work for a client that has hung up: the work done so far, and the work that continues
        without the client.
        """
        begun.abandon()
        begun.when_resolved(self._charge.count_time)
        self._charge.count_time()

    def _finished(self, answer: Answer) -> Answer:
        charge = self._charge
        if self._api_key == SHARE_FETCH:
            size_bytes = len(answer) if isinstance(answer, bytes) else sum(map(len, answer))
            charge.count_fetched(size_bytes)
        charge.count_time()
        if not charge.throttle_ms:
            return answer
        self._mute()
        if not answer:  # acks=0: nothing is sent
            return answer
        return with_throttle_time(answer, self._api_key, self._api_version, charge.throttle_ms)

    def _mute(self) -> None:
        if self._charge.throttle_ms:
            self._peer.mute(self._charge.throttle_ms)


def _resolved_already() -> None:
    """Do nothing, because the answer was passed on already."""
