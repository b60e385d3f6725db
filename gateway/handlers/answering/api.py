"""What a handler is: an API with its versions and the function that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gateway.protocol.schema_reader import Read
from gateway.runtime.services import Services
from log import FileRegion

Answer = bytes | Sequence[bytes | FileRegion]
"""A whole frame: in memory, or with records that are still in their file, to be sent piece after piece."""


class CloseConnection(Exception):
    """The only answer left is to close the connection, as Kafka does (an error under acks=0)."""


class Deferred:
    """The frame of an answer that comes later: the second stage of a request."""

    __slots__ = ("_callback", "abandoned", "answer", "failed", "holds_back", "on_abandoned")

    def __init__(self, *, holds_back: bool = False) -> None:
        self.abandoned = False
        """Whether nobody waits for the answer any more."""
        self.answer: Answer | None = None
        self.holds_back = holds_back
        """Whether later requests of the connection begin only after this one (long polls)."""
        self.on_abandoned: Callable[[], object] | None = None
        """Called when the connection went away before the answer."""
        self.failed = False
        """Whether the connection must be closed instead, because a bug kept the answer from being made."""
        self._callback: Callable[[], None] | None = None

    def resolve(self, answer: Answer) -> None:
        self.answer = answer
        # whoever waited refers to this, and an answer should go with its last reference, not when cycles are looked for
        self.on_abandoned = None
        if self._callback is not None:
            self._callback()

    def fail(self) -> None:
        """Give up: what was asked can't be answered, the connection is closed when its turn comes."""
        self.failed = True
        self.resolve(b"")

    def follow(self, answer: Answer | Deferred | None) -> None:
        """Have the answer of another part of the work, now or when that has it."""
        if not isinstance(answer, Deferred):
            self.resolve(b"" if answer is None else answer)
        elif answer.answer is not None:
            self._take_over(answer)
        elif self.abandoned:
            answer.abandon()
        else:
            self.on_abandoned = answer.abandon
            answer.when_resolved(lambda: self._take_over(answer))

    def _take_over(self, other: Deferred) -> None:
        if other.failed:
            self.fail()
        else:
            self.resolve(other.answer or b"")

    def when_resolved(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def abandon(self) -> None:
        self.abandoned = True
        self._callback = None
        if self.on_abandoned is not None:
            self.on_abandoned()


class Peer(Protocol):
    """Who sent a request."""

    peer_host: str
    listener_name: str

    def when_gone(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call back once when the connection has ended, at once if it has."""

    def forget_gone(self, key: Hashable) -> None:
        """Call nobody back for this key."""


class RequestContext:
    """One request's surroundings."""

    __slots__ = (
        "api_key",
        "api_version",
        "client_id",
        "correlation_id",
        "listener_name",
        "peer",
        "peer_host",
        "services",
    )

    def __init__(
        self,
        services: Services,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str,
        peer: Peer,
    ) -> None:
        self.services = services
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.peer = peer
        self.listener_name = peer.listener_name
        self.peer_host = peer.peer_host


ColdHandler = Callable[[RequestContext, Any], Awaitable[Any]]
"""Takes kio's request entity, returns kio's response entity; the connection's later requests wait."""

HotHandler = Callable[[RequestContext, Any], Answer | Deferred | None]
"""Begins the request at once; returns the frame, or where it will be, or None for no answer."""


class NotRepeated:
    """Says that a request is to be read as any other. The one instance is `NOT_REPEATED`."""

    __slots__ = ()


NOT_REPEATED: Final = NotRepeated()


class Repeats(Protocol):
    """A shorter way for requests of one API and version that repeat most of an earlier one."""

    def begin(
        self, peer: Peer, frame: memoryview, correlation_id: int, client_id_bytes: int
    ) -> Answer | Deferred | NotRepeated | None:
        """Begin the request as the handler would. May raise what the handler raises."""

    def learn(self, frame: memoryview, context: RequestContext, request: Any) -> None:
        """Remember what may be repeated of a request that the handler has begun."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API of the Kafka protocol as served here. Exactly one of `handle` and `begin` is set.

    `is_eager` has `handle` begin without a task, for what mostly has nothing to wait for; it must not use a timeout
    before it first waits. `reader` gives the request reader of a version where it is not the one made from kio's schema.
    `is_long` has a thread write the answer, which may have a row for everything there is.
    `may_be_given_up` ends the work for a client that is gone; what changes something is always carried out.
    `names_much` has a thread read large requests of one that has `begin`; those that have `handle` do so anyway.
    `advertised_min_version` differs from `min_version` where Kafka's own ApiVersions does.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    handle: ColdHandler | None = None
    begin: HotHandler | None = None
    is_eager: bool = False
    is_long: bool = False
    names_much: bool = False
    may_be_given_up: bool = False
    reader: Callable[[int], Read] | None = None
    repeats: Callable[[Services, int], Repeats] | None = None
    advertised_min_version: int | None = None
