"""Decodes frames and begins their requests with the right handler.

A handler's coroutine begins at once, and gets a task only when it must wait (`begin`). Most requests of the
coordinators are answered without waiting for anything, and the task alone would cost as much as such a
request. Python 3.12 has this as `eager_task_factory`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from struct import Struct
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.durations import Durations
from seqgate.gateway.handlers.answering.api import (
    Api,
    CloseConnection,
    Deferred,
    HoldingBack,
    NotRepeated,
    Peer,
    Repeats,
    RequestContext,
    ResponseBytes,
)
from seqgate.gateway.protocol.error_answers import PRODUCE, with_throttle_time
from seqgate.gateway.protocol.frames import MalformedRequest, parse_request_header, skip_tagged_fields
from seqgate.gateway.protocol.messages import (
    API_VERSIONS,
    RequestSchema,
    encode_response,
    is_flexible,
    request_schema,
)
from seqgate.gateway.runtime.client_quotas import Charge
from seqgate.gateway.runtime.services import Services

logger = logging.getLogger(__name__)

T = TypeVar("T")


# api_key and api_version as one number, correlation_id, size of client_id
_START = Struct(">Iih")
_unpack_start = _START.unpack_from
_VERSION_BITS = 16
_KEY_BYTES = 2
LARGE_REQUEST_BYTES = 32 << 10
"""A request of at least this size is decoded in a thread, because it may name many things, unless most of it
is records."""
_EXEMPT_FROM_QUOTAS = frozenset({27})
"""WriteTxnMarkers: the gateway that coordinates a transaction ends it here, and no client pays for that
(KafkaApis.handleWriteTxnMarkersRequest).
"""
LONG_S = 0.005
"""A handler that works longer than this, without its waits, has a large answer, which a thread encodes."""


class Requests(Protocol):
    """Begins requests: the dispatcher, or a part before it that lets some of them fail."""

    @property
    def requests(self) -> int:
        """Return the number of requests since the start."""

    def begin(self, frame: memoryview, peer: Peer) -> ResponseBytes | Deferred | None:
        """Begin one request, as `Dispatcher.begin`."""

    def begin_uncharged(self, frame: memoryview, peer: Peer) -> ResponseBytes | Deferred | None:
        """Begin a request of a client that has not logged in, as `Dispatcher.begin_uncharged`."""


class Dispatcher:
    def __init__(self, apis: Sequence[Api[Any]], services: Services) -> None:
        self._apis = {api.key: api for api in apis}
        self._node = services.node
        self._quotas = services.node.quotas
        self._reached = {api.key: api.reaches(services) for api in apis}
        """The services that each API reaches, by its key."""
        self._schemas: dict[tuple[int, int], tuple[Api[Any], RequestSchema]] = {}
        self._repeats: dict[int, Repeats] = {}
        """The repeats of each API key and version, which are combined into one number."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._times: RequestTimes | None = None
        self.requests = 0

    def time_requests(self) -> RequestTimes:
        """Begin to count and time requests by API. Call this before the first request."""
        self._times = RequestTimes(self._quotas.seconds)
        return self._times

    def begin(self, frame: memoryview, peer: Peer) -> ResponseBytes | Deferred | None:
        """Begin one request; return its answer, the future of its answer, or None when it has no answer.
        Raises MalformedRequest or CloseConnection when the connection must be closed.
        """
        self.requests += 1
        if self._quotas.is_on:
            return self._begin_charged(frame, peer)
        if len(frame) >= _START.size:
            kind, correlation_id, client_id_bytes = _unpack_start(frame)
            repeats = self._repeats.get(kind)
            if repeats is not None:
                begun = repeats.begin(peer, frame, correlation_id, client_id_bytes)
                if not isinstance(begun, NotRepeated):
                    return begun
        return self._begin_new(frame, peer)

    def begin_uncharged(self, frame: memoryview, peer: Peer) -> ResponseBytes | Deferred | None:
        """Begin a request without charging a quota: before the login, the client id may be made up."""
        self.requests += 1
        return self._begin_new(frame, peer)

    def _begin_charged(self, frame: memoryview, peer: Peer) -> ResponseBytes | Deferred | None:
        api_key, api_version, correlation_id, client_id, _ = parse_request_header(frame)
        quotas = self._quotas
        if api_key in _EXEMPT_FROM_QUOTAS or not self._serves(api_key, api_version):
            return self._begin_new(frame, peer)
        repeats = self._repeats.get(api_key << _VERSION_BITS | api_version)
        if repeats is not None and not quotas.leaves_repeats:
            begun = repeats.begin(peer, frame, correlation_id, _unpack_start(frame)[2])
            if not isinstance(begun, NotRepeated):
                return begun
        charge = Charge(quotas, peer.principal, client_id)
        begun_s = quotas.seconds()
        answer = self._begin_new(frame, peer, charge)
        if self._apis[api_key].begin is not None:
            charge.busy_s += quotas.seconds() - begun_s
        if api_key == PRODUCE:
            charge.count_produced(len(frame))
        return ChargedAnswer(charge, peer, api_key, api_version).of(answer)

    def _begin_new(
        self, frame: memoryview, peer: Peer, charge: Charge | None = None
    ) -> ResponseBytes | Deferred | None:
        """Begin a request after decoding all of it, and time it where requests are timed."""
        times = self._times
        if times is None:
            return self._decode_and_begin(frame, peer, charge)
        begun_s = times.seconds()
        api_key = int.from_bytes(frame[:_KEY_BYTES], "big")
        if api_key in self._apis and len(frame) >= _START.size:
            times.count(api_key)
        answer = self._decode_and_begin(frame, peer, charge)
        times.began(api_key, begun_s, answer)
        return answer

    def _decode_and_begin(
        self, frame: memoryview, peer: Peer, charge: Charge | None
    ) -> ResponseBytes | Deferred | None:
        api_key, api_version, correlation_id, client_id, position = parse_request_header(frame)
        found = self._schemas.get((api_key, api_version))
        if found is None:
            if api_key == API_VERSIONS and not self._serves(api_key, api_version):
                return self._refuse_api_versions(correlation_id)
            found = self._look_up(api_key, api_version, client_id)
        api, schema = found
        if schema.flexible:
            if position < len(frame) and frame[position] == 0:
                position += 1  # no tagged fields, as in nearly all requests
            else:
                position = skip_tagged_fields(frame, position)
        context = RequestContext(
            self._node, self._reached[api_key], api_key, api_version, correlation_id, client_id, peer, charge
        )
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s (client id %r) asks %s v%d", peer.name, client_id, api.name, api_version)
        if len(frame) >= LARGE_REQUEST_BYTES and (api.begin is None or api.names_much):
            # copy the frame, because its memory may be the receive buffer of all connections
            return self._begin_large(api, context, schema, bytes(frame), position)
        request = schema.read(frame, position)[0]
        try:
            if api.begin is not None:
                begun = api.begin(context, request)
                repeats = self._repeats.get(api_key << _VERSION_BITS | api_version)
                if repeats is not None:
                    repeats.learn(frame, context, request)
                return begun
        except (CloseConnection, MalformedRequest):
            raise
        except Exception as error:
            logger.exception("%s v%d of %s failed", api.name, api_version, peer.name)
            raise CloseConnection(f"{api.name} failed: {error}") from error
        if api.is_eager:
            return self._begin_eagerly(api, context, request)
        return self._begin_in_task(api, self._answer(api, context, request))

    def _serves(self, api_key: int, api_version: int) -> bool:
        api = self._apis.get(api_key)
        return api is not None and api.versions[0] <= api_version <= api.versions[1]

    def _look_up(self, api_key: int, api_version: int, client_id: str) -> tuple[Api[Any], RequestSchema]:
        if not self._serves(api_key, api_version):
            raise CloseConnection(
                f"client {client_id!r} sent API key {api_key} version {api_version}, which is not served"
            )
        api = self._apis[api_key]
        if api.reader is None:
            schema = request_schema(api_key, api_version)
        else:
            schema = RequestSchema(api.reader(api_version), is_flexible(api_key, api_version))
        found = api, schema
        self._schemas[api_key, api_version] = found
        if api.repeats is not None:
            kind = api_key << _VERSION_BITS | api_version
            repeats = api.repeats(self._reached[api_key], api_version)
            self._repeats[kind] = repeats
            if self._times is not None:
                self._times.follow(api_key, repeats, partial(self._repeats.__setitem__, kind))
        return found

    def _refuse_api_versions(self, correlation_id: int) -> ResponseBytes:
        """Refuse a too new ApiVersions, in version 0, with error 35 and its own versions (KIP-511)."""
        api = self._apis[API_VERSIONS]
        row = (API_VERSIONS, *api.versions)
        body = int(ErrorCode.unsupported_version).to_bytes(2, "big") + (1).to_bytes(4, "big")
        body += b"".join(number.to_bytes(2, "big") for number in row)
        head = (len(body) + 4).to_bytes(4, "big") + correlation_id.to_bytes(4, "big", signed=True)
        return head + body

    def _begin_eagerly(
        self, api: Api[Any], context: RequestContext[Any], request: Any
    ) -> ResponseBytes | Deferred:
        begun = begin(self._answer(api, context, request))
        if isinstance(begun, StartedCoroutine):
            return self._begin_in_task(api, begun)
        if begun.value is None:
            raise CloseConnection(f"{api.name} failed")
        return begun.value

    def _begin_in_task(self, api: Api[Any], work: Awaitable[bytes | None]) -> Deferred:
        deferred = HoldingBack()
        self._work_on(api, self._resolve(work, deferred), deferred)
        return deferred

    def _work_on(self, api: Api[Any], work: Coroutine[Any, Any, None], deferred: Deferred) -> None:
        loop = self._node.loop
        task = loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if api.may_be_given_up:
            # Cancel in the next turn. A task that is cancelled before its first step would drop the handler's
            # coroutine.
            deferred.on_abandoned = partial(loop.call_soon, task.cancel)

    async def _resolve(self, work: Awaitable[bytes | None], deferred: Deferred) -> None:
        try:
            frame = await work
        except asyncio.CancelledError:
            deferred.fail()
            raise
        if frame is None:
            deferred.fail()
        else:
            deferred.resolve(frame)

    def _begin_large(
        self, api: Api[Any], context: RequestContext[Any], schema: RequestSchema, frame: bytes, position: int
    ) -> Deferred:
        deferred = HoldingBack()
        let_go = context.peer.hold_room(len(frame))
        reading = self._read(api, context, schema, frame, position)  # nothing else keeps the frame

        async def begin_when_read() -> None:
            try:
                request = await reading
            finally:
                let_go()
            if request is None:
                deferred.fail()
            elif api.handle is not None:
                await self._resolve(self._answer(api, context, request), deferred)
            else:
                self._begin_late(api, context, request, deferred)

        self._work_on(api, begin_when_read(), deferred)
        return deferred

    def _begin_late(
        self, api: Api[Any], context: RequestContext[Any], request: Any, deferred: Deferred
    ) -> None:
        assert api.begin is not None
        begun_s = self._quotas.seconds()
        try:
            begun = api.begin(context, request)
        except (CloseConnection, MalformedRequest) as error:
            logger.warning(
                "the connection of %s is closed, because its %s can't be served: %s",
                context.peer.name,
                api.name,
                error,
            )
            deferred.fail()
        except Exception:
            logger.exception("%s v%d of %s failed", api.name, context.api_version, context.peer.name)
            deferred.fail()
        else:
            if context.charge is not None:
                context.charge.busy_s += self._quotas.seconds() - begun_s
            deferred.follow(begun)

    async def _read(
        self, api: Api[Any], context: RequestContext[Any], schema: RequestSchema, frame: bytes, position: int
    ) -> Any:
        """Decode the request in a thread; return None for a malformed one, and when there is no memory or
        thread to decode it.
        """
        view = memoryview(frame)
        try:
            request, _ = await self._in_thread(context.charge, schema.read_large, view, position)
        except MalformedRequest as error:
            logger.warning(
                "%s v%d of %s is malformed: %s", api.name, context.api_version, context.peer.name, error
            )
            return None
        except Exception:
            logger.exception(
                "%s v%d of %s can't be decoded", api.name, context.api_version, context.peer.name
            )
            return None
        except asyncio.CancelledError:
            view.release()  # the work stays in the queue of the threads, and must not keep the frame
            raise
        return request

    async def _in_thread(self, charge: Charge | None, work: Callable[..., T], *arguments: Any) -> T:

        def timed() -> T:
            begun_s = self._quotas.seconds()
            done = work(*arguments)
            if charge is not None:
                charge.busy_s += self._quotas.seconds() - begun_s
            return done

        return await asyncio.to_thread(timed)

    async def _answer(self, api: Api[Any], context: RequestContext[Any], request: Any) -> bytes | None:
        """Return the frame of the answer; None when a bug prevented it."""
        assert api.handle is not None
        try:
            work: Timed[Any] = Timed(api.handle(context, request), self._quotas.seconds)
            try:
                response = await work
            finally:
                if context.charge is not None:
                    context.charge.busy_s += work.busy_s
            if api.is_long or work.busy_s > LONG_S:
                return await self._in_thread(
                    context.charge, encode_response, api.key, context.correlation_id, response
                )
            return encode_response(api.key, context.correlation_id, response)
        except CloseConnection as error:
            logger.warning("%s of %s: %s", api.name, context.peer.name, error)
            return None
        except Exception:
            logger.exception("%s v%d of %s failed", api.name, context.api_version, context.peer.name)
            return None

    @property
    def running(self) -> int:
        """Return the number of administrative requests in progress."""
        return len(self._tasks)


SHARE_FETCH: Final = 78


class ChargedAnswer:
    """The answer, now or later, of a request that quotas apply to: it tells and applies the throttle time."""

    __slots__ = ("_api_key", "_api_version", "_charge", "_peer")

    def __init__(self, charge: Charge, peer: Peer, api_key: int, api_version: int) -> None:
        self._charge = charge
        self._peer = peer
        self._api_key = api_key
        self._api_version = api_version

    def of(self, begun: ResponseBytes | Deferred | None) -> ResponseBytes | Deferred | None:
        """Return the answer of a request that has begun, with its throttle time."""
        if isinstance(begun, Deferred):
            return self._later(begun)
        if begun is None:
            self._mute()
            return None
        return self._finished(begun)

    def _later(self, begun: Deferred) -> Deferred:
        self._mute()
        charged = Deferred()
        charged.holds_back = begun.holds_back
        if begun.answer is not None:
            self._resolve(begun, charged)
            return charged
        charged.on_abandoned = partial(self._abandon, begun)
        begun.on_others_may_begin = charged.let_others_begin
        begun.on_resolved = partial(self._resolve, begun, charged)
        return charged

    def _resolve(self, begun: Deferred, charged: Deferred) -> None:
        # The callback refers to the answer that holds the callback. Break this cycle, so that the connection
        # is freed at once.
        begun.on_resolved = None
        if begun.failed or begun.answer is None:
            self._charge.count_time()
            charged.take_over(begun)
        else:
            charged.resolve(self._finished(begun.answer))

    def _abandon(self, begun: Deferred) -> None:
        """Charge the work for a client that has hung up: work done so far, and work that continues."""
        begun.abandon()
        begun.on_resolved = self._charge.count_time
        self._charge.count_time()

    def _finished(self, answer: ResponseBytes) -> ResponseBytes:
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


class Finished(msgspec.Struct, Generic[T]):
    """A coroutine that ended in its first step, with its result."""

    value: T


class StartedCoroutine(Generic[T]):
    """A coroutine that ran up to its first wait. Awaiting it in a task runs the rest; returns the result."""

    __slots__ = ("_first", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], first: Any) -> None:
        self._work = work
        self._first = first
        """The future for which the coroutine waits, and which no task has awaited yet."""

    def __await__(self) -> Generator[Any, Any, T]:
        yielded = self._first
        while True:
            try:
                yield yielded
            except BaseException as error:  # noqa: BLE001 - the coroutine gets all, cancellations too
                step: Callable[[], Any] = partial(self._work.throw, error)
            else:
                step = partial(self._work.send, None)
            try:
                yielded = step()
            except StopIteration as end:
                value: T = end.value
                return value


def begin(work: Coroutine[Any, Any, T]) -> Finished[T] | StartedCoroutine[T]:
    """Run a coroutine until it first waits. Until then it has no current task and can't use timeouts or task
    groups. Raises the errors of the coroutine.
    """
    try:
        first = work.send(None)
    except StopIteration as end:
        return Finished(end.value)
    return StartedCoroutine(work, first)


class Timed(Generic[T]):
    """A coroutine that measures how long its own steps take, without the time in which it waits."""

    __slots__ = ("_now_s", "_work", "busy_s")

    def __init__(self, work: Coroutine[Any, Any, T], now_s: Callable[[], float]) -> None:
        self._work = work
        self._now_s = now_s
        self.busy_s = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        step: Callable[[], Any] = partial(self._work.send, None)
        while True:
            begun_s = self._now_s()
            try:
                yielded = step()
            except StopIteration as end:
                value: T = end.value
                return value
            finally:
                self.busy_s += self._now_s() - begun_s
            try:
                yield yielded
            except BaseException as error:  # noqa: BLE001 - the coroutine gets all, cancellations too
                step = partial(self._work.throw, error)
            else:
                step = partial(self._work.send, None)


class RequestTimes:
    """The requests of each API since the start, and their times, from the whole request to its answer."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self.durations: dict[int, Durations] = {}
        """The durations by API key, with the waits of a fetch for records, and of a Produce for its flush."""
        self._counts: dict[int, int] = {}
        self._repeats: list[TimedRepeats] = []

    def counts(self) -> dict[int, int]:
        counts = self._counts.copy()
        for repeats in self._repeats:
            counts[repeats.api_key] = counts.get(repeats.api_key, 0) + repeats.begun
        return counts

    def follow(self, api_key: int, repeats: Repeats, put: Callable[[Repeats], object]) -> None:
        """Count and time repeats here; `put` takes the repeats that the next requests begin with."""
        self._repeats.append(TimedRepeats(api_key, repeats, self, put))

    def arm(self) -> None:
        """Time the next repeat of each API and version."""
        for repeats in self._repeats:
            repeats.arm()

    def count(self, api_key: int) -> None:
        self._counts[api_key] = self._counts.get(api_key, 0) + 1

    def began(
        self, api_key: int, begun_s: float, answer: ResponseBytes | Deferred | None, weight: int = 1
    ) -> None:
        """Time a request begun at `begun_s`, now or when answered; one whose client hangs up is not timed."""
        if isinstance(answer, Deferred) and answer.answer is None:
            answer.on_answered = partial(self._end, api_key, begun_s, weight)
        else:
            self._end(api_key, begun_s, weight)

    def _end(self, api_key: int, begun_s: float, weight: int) -> None:
        durations = self.durations.get(api_key)
        if durations is None:
            durations = self.durations[api_key] = Durations()
        durations.add(self.seconds() - begun_s, weight)


class TimedRepeats:
    """Puts itself before the repeats of one API and version for one request per `arm`. Repeats are short and
    many, so that between measurements they pay nothing; a timed one counts for all since the one before.
    """

    def __init__(
        self, api_key: int, repeats: Repeats, times: RequestTimes, put: Callable[[Repeats], object]
    ) -> None:
        """`put` takes the repeats that the next requests begin with."""
        self.api_key = api_key
        self.learn: Callable[[memoryview, RequestContext[Any], Any], None] = repeats.learn
        self._repeats = repeats
        self._times = times
        self._put = put
        self._counted = 0
        """The repeats that earlier measurements stand for."""

    @property
    def begun(self) -> int:
        return self._repeats.begun

    def arm(self) -> None:
        self._put(self)

    def begin(
        self, peer: Peer, frame: memoryview, correlation_id: int, client_id_bytes: int
    ) -> ResponseBytes | Deferred | NotRepeated | None:
        """Begin the request, and time it. May raise the handler's errors."""
        self._put(self._repeats)
        begun_s = self._times.seconds()
        begun = self._repeats.begin(peer, frame, correlation_id, client_id_bytes)
        if not isinstance(begun, NotRepeated):
            weight = self._repeats.begun - self._counted
            self._counted = self._repeats.begun
            self._times.began(self.api_key, begun_s, begun, weight)
        return begun
