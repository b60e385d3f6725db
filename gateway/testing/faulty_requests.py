"""Lets requests fail as a test has ordered, before they reach the dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from gateway.handlers import APIS
from gateway.handlers.answering.api import Answer, CloseConnection, Deferred, Peer
from gateway.handlers.records.produce_order import Refusals
from gateway.protocol.error_answers import PRODUCE, error_answer, with_throttle_time
from gateway.protocol.frames import parse_request_header, skip_tagged_fields
from gateway.protocol.messages import is_flexible, request_schema
from gateway.protocol.produce_codec import produce_reader
from gateway.server.dispatcher import Dispatcher
from gateway.testing.effects import Effect, Kind
from gateway.testing.fault import Fault, RequestFacts
from gateway.testing.faults import Faults
from gateway.testing.inside import Inside
from log import FileRegion
from log.format.record_batch import whole_batches

_NAMES: Final = {api.key: api.name for api in APIS}
_MOST_ROWS: Final = 1_000_000
_NAME_FIELDS: Final = frozenset({"name", "topic", "topic_name"})
_PLACES: Final = frozenset({"topics", "topic_data", "resources"})
FIRST_PRODUCE: Final = 3
"""The first version of Produce that is carried out."""


class FaultyRequests:
    """Begins requests with the dispatcher, and does to some of them what faults say."""

    def __init__(self, dispatcher: Dispatcher, faults: Faults, inside: Inside) -> None:
        """`inside` looks into the gateway that the dispatcher belongs to."""
        self._dispatcher = dispatcher
        self._faults = faults
        self._inside = inside
        self._topic_name = inside.topic_name
        self._held: set[Deferred] = set()
        """The requests whose answers are held back."""

    @property
    def requests(self) -> int:
        """Return the number of requests that reached the dispatcher."""
        return self._dispatcher.requests

    def begin(self, frame: memoryview, peer: Peer) -> Answer | Deferred | None:
        """Begin one request, or let it fail. Raises as `Dispatcher.begin` does."""
        api_key, version, correlation_id, client_id, position = parse_request_header(frame)
        name = _NAMES.get(api_key)
        if name is None or not self._faults.may_strike(name, client_id):
            return self._dispatcher.begin(frame, peer)
        request = _decoded(api_key, version, frame, position)
        if request is None:
            return self._dispatcher.begin(frame, peer)
        facts = RequestFacts(name, client_id, frozenset(self._topics(request)))
        struck = self._faults.strike(facts)
        if struck is None:
            return self._dispatcher.begin(frame, peer)
        fault, effect = struck
        wants_no_answer = api_key == PRODUCE and request.acks == 0
        if effect.kind is Kind.CLOSE or (effect.kind is Kind.ERROR and wants_no_answer):
            # Kafka, too, closes the connection when a Produce that wants no answer fails.
            raise CloseConnection(f"a test ordered to close it before {name}")
        refusal = partial(_refusal, api_key, version, correlation_id, request, effect)
        if effect.kind is Kind.ERROR:
            if api_key == PRODUCE and version >= FIRST_PRODUCE:
                refusals = Refusals(self._inside.refusals(), peer, client_id)
                _note_refused(refusals, version, frame, position, effect)
            return self._late(refusal(), effect) if effect.delay_ms else refusal()
        begun = self._dispatcher.begin(frame, peer)
        if begun is None:
            if effect.kind is Kind.DROP_ANSWER:
                raise CloseConnection(f"a test ordered to close it after {name}")
            return None
        change = self._change_of(fault, effect, api_key, version, refusal)
        return self._changed(begun, change, effect)

    def begin_uncharged(self, frame: memoryview, peer: Peer) -> Answer | Deferred | None:
        """Begin a request of a client that has not logged in; no fault strikes it."""
        return self._dispatcher.begin_uncharged(frame, peer)

    def let_go(self) -> None:
        """Close the connections whose answers are held back, so that a stop does not wait for them."""
        held, self._held = self._held, set()
        for each in held:
            if each.answer is None and not each.abandoned:
                each.fail()

    def _changed(self, begun: Answer | Deferred, change: Change, effect: Effect) -> Deferred:
        """Return the answer of a request that is carried out, as the fault leaves it."""
        changed = Deferred(holds_back=isinstance(begun, Deferred) and begun.holds_back)
        if not isinstance(begun, Deferred):
            self._pass_on(begun, changed, change, effect)
        elif begun.answer is not None:
            self._resolved(begun, changed, change, effect)
        else:
            changed.on_abandoned = begun.abandon
            begun.on_others_may_begin = changed.let_others_begin
            begun.when_resolved(partial(self._resolved, begun, changed, change, effect))
        return changed

    def _resolved(self, begun: Deferred, changed: Deferred, change: Change, effect: Effect) -> None:
        if begun.failed:
            changed.resolve_last(begun.answer or b"")
        else:
            self._pass_on(begun.answer or b"", changed, change, effect)

    def _pass_on(self, answer: Answer, changed: Deferred, change: Change, effect: Effect) -> None:
        if effect.kind is Kind.DROP_ANSWER:
            changed.fail()
        elif effect.kind is Kind.LOSE_ANSWER:
            self._hold(changed)
        elif effect.delay_ms and effect.kind is not Kind.THROTTLE:
            self._hold(changed)
            delay_s = effect.delay_ms / 1000
            asyncio.get_running_loop().call_later(delay_s, self._resolve_late, changed, change(answer))
        else:
            changed.resolve(change(answer))

    def _late(self, refusal: bytes, effect: Effect) -> Deferred:
        """Return the answer of a request that is not carried out, and whose client learns it after the time of the effect."""
        late = Deferred()
        self._pass_on(refusal, late, lambda answer: answer, effect)
        return late

    def _hold(self, changed: Deferred) -> None:
        self._held.add(changed)
        changed.on_abandoned = partial(self._held.discard, changed)

    def _resolve_late(self, changed: Deferred, answer: Answer) -> None:
        self._held.discard(changed)
        if changed.answer is None and not changed.abandoned:
            changed.resolve(answer)

    def _change_of(
        self, fault: Fault, effect: Effect, api_key: int, version: int, refusal: Callable[[], bytes]
    ) -> Change:
        """Return what a fault does to an answer."""
        if effect.kind is Kind.ERROR_AFTER:
            return lambda _: refusal()
        if effect.kind is Kind.CORRUPT:
            return partial(self._corrupted, fault, effect, version)
        if effect.kind is Kind.THROTTLE:
            return lambda answer: with_throttle_time(_whole(answer), api_key, version, effect.delay_ms)
        return lambda answer: answer

    def _corrupted(self, fault: Fault, effect: Effect, version: int, answer: Answer) -> Answer:
        """Flip the last bit of the first batch of the topic that the fault names; take the strike back if there is none."""
        from gateway.testing.fetched_records import fetched_records  # noqa: PLC0415 - slow to import, and seldom needed

        whole = bytearray(_whole(answer))
        for topic, start, end in fetched_records(bytes(whole), version):
            name = self._topic_name(topic) if isinstance(topic, UUID) else topic
            if fault.choice.topic in {None, name}:
                for position, batch in whole_batches(memoryview(whole)[start:end].toreadonly()):
                    whole[start + position + batch.size_bytes - 1] ^= 1
                    return bytes(whole)
        fault.take_back(effect)
        return bytes(whole)

    def _topics(self, request: Any) -> Iterator[str]:
        """Yield the names of the topics that a request names, by name or by id."""
        for place in fields(request):
            value = getattr(request, place.name)
            if not isinstance(value, tuple):
                continue
            for row in value:
                if is_dataclass(row):
                    yield from self._names_in(row)
                    yield from self._topics(row)
                elif place.name in _PLACES and isinstance(row, str):
                    yield row

    def _names_in(self, row: Any) -> Iterator[str]:
        for name in _NAME_FIELDS:
            value = getattr(row, name, None)
            if isinstance(value, str) and value:
                yield value
        topic_id = getattr(row, "topic_id", None)
        if isinstance(topic_id, UUID) and (found := self._topic_name(topic_id)) is not None:
            yield found


def _decoded(api_key: int, version: int, frame: memoryview, position: int) -> Any:
    """Return a request; None for one that the dispatcher refuses."""
    try:
        if is_flexible(api_key, version):
            position = skip_tagged_fields(frame, position)
        return request_schema(api_key, version).read(memoryview(bytes(frame)), position)[0]
    except Exception:  # noqa: BLE001 - the dispatcher finds the same, and knows the sentence for it
        return None


def _note_refused(refusals: Refusals, version: int, frame: memoryview, position: int, effect: Effect) -> None:
    """Note that a Produce was refused, as its handler would, so that no later batch is stored before one that is sent again."""
    if is_flexible(PRODUCE, version):
        position = skip_tagged_fields(frame, position)
    request, _ = produce_reader(version)(frame, position)
    for key, entries in request.topics:
        for entry in entries:
            refusals.note(key, entry.partition, entry.records, int(effect.error))


def _refusal(api_key: int, version: int, correlation_id: int, request: Any, effect: Effect) -> bytes:
    """Return the answer that refuses a request with the error of an effect."""
    return error_answer(
        api_key,
        version,
        correlation_id,
        request,
        effect.error,
        "a test ordered this error",
        most_rows=_MOST_ROWS,
    )


Change = Callable[[Answer], Answer]


def _whole(answer: Answer) -> bytes:
    """Return an answer in memory, with the records that are still in their files."""
    if isinstance(answer, bytes):
        return answer
    return b"".join(piece.read() if isinstance(piece, FileRegion) else piece for piece in answer)
