"""Decodes frames and begins their requests with the right handler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from struct import Struct
from typing import Any, Protocol, TypeVar

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import (
    Answer,
    Api,
    CloseConnection,
    Deferred,
    NotRepeated,
    Peer,
    Repeats,
    RequestContext,
)
from gateway.protocol.error_answers import PRODUCE
from gateway.protocol.frames import MalformedRequest, parse_request_header, skip_tagged_fields
from gateway.protocol.messages import (
    API_VERSIONS,
    RequestSchema,
    encode_response,
    is_flexible,
    request_schema,
)
from gateway.runtime.quotas.client_quotas import Charge
from gateway.runtime.services import Services
from gateway.server.charged_answer import ChargedAnswer
from gateway.server.eager import Timed, Waiting, begin
from gateway.server.request_times import RequestTimes

logger = logging.getLogger(__name__)

T = TypeVar("T")


# api_key and api_version as one number, correlation_id, size of client_id
_START = Struct(">Iih")
_unpack_start = _START.unpack_from
_VERSION_BITS = 16
_KEY_BYTES = 2
LARGE_REQUEST_BYTES = 32 << 10
"""A request of at least this size is decoded in a thread, because it may name many things, unless most of it is
records."""
_EXEMPT_FROM_QUOTAS = frozenset({27})
"""WriteTxnMarkers: the gateway that coordinates a transaction ends it here, and no client pays for that (KafkaApis.handleWriteTxnMarkersRequest)."""
LONG_S = 0.005
"""When a handler works longer than this, not counting the time it waits, its answer is large, and a thread encodes it.
"""


class Requests(Protocol):
    """Begins requests: the dispatcher, or a part before it that lets some of them fail."""

    @property
    def requests(self) -> int:
        """Return the number of requests since the start."""

    def begin(self, frame: memoryview, peer: Peer) -> Answer | Deferred | None:
        """Begin one request, as `Dispatcher.begin`."""

    def begin_uncharged(self, frame: memoryview, peer: Peer) -> Answer | Deferred | None:
        """Begin a request of a client that has not logged in, as `Dispatcher.begin_uncharged`."""


class Dispatcher:
    """Knows the served APIs, decodes requests and begins them."""

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

    def begin(self, frame: memoryview, peer: Peer) -> Answer | Deferred | None:
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

    def begin_uncharged(self, frame: memoryview, peer: Peer) -> Answer | Deferred | None:
        """Begin a request of a client that has not logged in yet, without charging a quota: the client may
        have made up its client id.
        """
        self.requests += 1
        return self._begin_new(frame, peer)

    def _begin_charged(self, frame: memoryview, peer: Peer) -> Answer | Deferred | None:
        """Begin a request while there are client quotas."""
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
    ) -> Answer | Deferred | None:
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
    ) -> Answer | Deferred | None:
        api_key, api_version, correlation_id, client_id, position = parse_request_header(frame)
        found = self._schemas.get((api_key, api_version))
        if found is None:
            if api_key == API_VERSIONS and not self._serves(api_key, api_version):
                return self._refuse_api_versions(correlation_id)
            found = self._look_up(api_key, api_version, client_id)
        api, schema = found
        if schema.flexible:
            position = skip_tagged_fields(frame, position)
        context = RequestContext(
            self._node,
            self._reached[api_key],
            api_key,
            api_version,
            correlation_id,
            client_id,
            peer,
            charge,
        )
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s (client id %r) asks %s v%d", peer.name, client_id, api.name, api_version)
        if len(frame) >= LARGE_REQUEST_BYTES and (api.begin is None or api.names_much):
            # copy the frame, so that its memory is free for other requests
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
        return api is not None and api.min_version <= api_version <= api.max_version

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

    def _refuse_api_versions(self, correlation_id: int) -> Answer:
        """Refuse an ApiVersions version that is too new, in version 0, with error 35 and the versions of ApiVersions
        itself (KIP-511).
        """
        api = self._apis[API_VERSIONS]
        row = (API_VERSIONS, api.min_version, api.max_version)
        body = int(ErrorCode.unsupported_version).to_bytes(2, "big") + (1).to_bytes(4, "big")
        body += b"".join(number.to_bytes(2, "big") for number in row)
        head = (len(body) + 4).to_bytes(4, "big") + correlation_id.to_bytes(4, "big", signed=True)
        return head + body

    def _begin_eagerly(self, api: Api[Any], context: RequestContext[Any], request: Any) -> Answer | Deferred:
        begun = begin(self._answer(api, context, request))
        if isinstance(begun, Waiting):
            return self._begin_in_task(api, begun)
        if begun.value is None:
            raise CloseConnection(f"{api.name} failed")
        return begun.value

    def _begin_in_task(self, api: Api[Any], work: Awaitable[bytes | None]) -> Deferred:
        deferred = Deferred(holds_back=True)
        self._work_on(api, self._resolve(work, deferred), deferred)
        return deferred

    def _work_on(self, api: Api[Any], work: Coroutine[Any, Any, None], deferred: Deferred) -> None:
        loop = self._node.loop
        task = loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if api.may_be_given_up:
            # Cancel in the next turn. A task that is cancelled before its first step would drop the handler's coroutine.
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
        """Begin a request that a thread decodes."""
        deferred = Deferred(holds_back=True)

        async def begin_when_read() -> None:
            request = await self._read(api, context, schema, frame, position)
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
        """Decode the request in a thread; return None for a malformed one."""
        try:
            request, _ = await self._in_thread(context.charge, schema.read, memoryview(frame), position)
        except MalformedRequest as error:
            logger.warning(
                "%s v%d of %s is malformed: %s", api.name, context.api_version, context.peer.name, error
            )
            return None
        return request

    async def _in_thread(self, charge: Charge | None, work: Callable[..., T], *arguments: Any) -> T:
        """Carry out work in a thread, and count its time."""

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
