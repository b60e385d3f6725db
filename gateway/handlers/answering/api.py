"""The interface of a handler: an API, its versions, and the function that answers it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from seqgate.gateway.protocol.kafka_4_4 import api_name
from seqgate.gateway.protocol.messages import build, response_type, row_type
from seqgate.gateway.protocol.schema import Read
from seqgate.gateway.runtime.client_quotas import Charge
from seqgate.gateway.runtime.loop.audit import DeniedRight, Requester
from seqgate.gateway.runtime.services import (
    CoordinatorServices,
    NodeServices,
    PartitionServices,
    SecurityServices,
    Services,
    TopicServices,
)
from seqgate.gateway.runtime.telemetry import Telemetry
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType
from seqgate.gateway.security.principals import ANONYMOUS, LONGEST_TEXT, ClientIdentity
from seqgate.log import FileRegion
from seqgate.seq_validator import RefusedBatches

R = TypeVar("R")

ResponseBytes = bytes | Sequence[bytes | FileRegion]
"""A whole frame: bytes in memory, or pieces of which some are still in their file, sent one after another."""


class ClientSoftware(NamedTuple):
    """The name and version of a client's software, as it gave them in ApiVersions (KIP-511)."""

    name: str
    version: str


UNKNOWN_SOFTWARE: Final = ClientSoftware("unknown", "unknown")
"""The software of a client that gave none (Kafka's ClientInformation)."""


class CloseConnection(Exception):
    """The connection must be closed instead of an answer, as Kafka does (an error under acks=0). The message
    is logged as a warning; it is empty where the reason was logged before.
    """


REQUEST_FAILED: Final = "its request failed in the gateway"


class Deferred:
    """The frame of an answer that comes later: the second stage of a request."""

    # Class attributes are the initial values: an answer is made for nearly every request, and costs no call.
    abandoned = False
    """Whether the client no longer waits for the answer."""
    answer: ResponseBytes | None = None
    holds_back = False
    """Whether later requests of the connection begin only after this answer, or after `let_others_begin`."""
    on_others_may_begin: Callable[[], object] | None = None
    """Called when later requests may begin before the answer is there."""
    on_abandoned: Callable[[], object] | None = None
    """Called when the connection has closed before the answer."""
    on_answered: Callable[[], object] | None = None
    """Called when the answer is set, before it is sent: here the time of a request ends."""
    failed = False
    """Whether the connection must be closed: after this answer, or in its place."""
    closed_because = ""
    """The reason that is logged as a warning when the connection closes; empty where it was logged before."""
    on_resolved: Callable[[], object] | None = None
    """Called when the answer is set, to send it or to pass it on."""

    def resolve(self, answer: ResponseBytes) -> None:
        """Set the answer and call back whoever waits for it."""
        self.answer = answer
        # The callback refers to this object. Break the cycle, so that the answer is freed with its last
        # reference and not by the garbage collector.
        self.on_abandoned = None
        if self.on_answered is not None:
            self.on_answered()
            self.on_answered = None
        if self.on_resolved is not None:
            self.on_resolved()

    def fail(self) -> None:
        """Fail the request without an answer, because of an error in the gateway; the connection closes after
        the answers to earlier requests.
        """
        self.closed_because = REQUEST_FAILED
        self.resolve_last(b"")

    def resolve_last(self, answer: ResponseBytes) -> None:
        """Set the answer after which the connection is closed; an empty one is not sent. The caller has
        logged why.
        """
        self.failed = True
        self.resolve(answer)

    def follow(self, answer: ResponseBytes | Deferred | None) -> None:
        """Take over the answer of another part of the work, now or when it is resolved."""
        if not isinstance(answer, Deferred):
            self.resolve(b"" if answer is None else answer)
        elif answer.answer is not None:
            self.take_over(answer)
        elif self.abandoned:
            answer.abandon()
        else:
            self.on_abandoned = answer.abandon
            answer.on_resolved = lambda: self.take_over(answer)

    def take_over(self, other: Deferred) -> None:
        """Resolve with the answer of `other`, and close the connection if it does."""
        self.failed, self.closed_because = other.failed, other.closed_because
        self.resolve(b"" if other.answer is None else other.answer)

    def let_others_begin(self) -> None:
        """Let later requests of the connection begin, although this answer may still be missing."""
        self.holds_back = False
        callback, self.on_others_may_begin = self.on_others_may_begin, None
        if callback is not None and self.answer is None:
            callback()

    def abandon(self) -> None:
        """Note that nobody waits for the answer any more."""
        self.abandoned = True
        self.on_resolved = self.on_others_may_begin = self.on_answered = None
        if self.on_abandoned is not None:
            self.on_abandoned()


class HoldingBack(Deferred):
    """An answer that later requests of the connection wait for (long polls, administration)."""

    holds_back = True


class Peer(Protocol):
    """The connection that sent a request."""

    peer_host: str
    peer_port: int
    listener_name: str
    principal: str
    """The principal that the connection stands for, such as `User:ANONYMOUS`."""
    token_id: str | None
    """The delegation token that the client logged in with, or None."""
    number: int
    """The number of the connection, in the order in which the gateway accepted them."""
    software: ClientSoftware
    """The software of the client, as far as it is known."""
    is_nameless: bool
    """Whether the client asked ApiVersions in a version without the name of its software."""
    refused: RefusedBatches | None
    """The refused batches that the client will send again; None, as nearly always, without any."""
    producer_id: int
    """The producer whose client was noted last on this connection; -1: none."""
    producer_epoch: int
    """The epoch of that producer."""

    @property
    def name(self) -> str:
        """The address and port of the client, for people."""

    def when_gone(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call back once when the connection closes, at once if it has closed already."""

    def forget_gone(self, key: Hashable) -> None:
        """Cancel the callback of this key."""

    def mute(self, throttle_ms: int) -> None:
        """Read nothing from the connection for this time."""

    def hold_room(self, size_bytes: int) -> Callable[[], None]:
        """Let the request that begins count towards `queued.max.request.bytes` until the returned function is
        called, even if the connection closes.
        """


def client_of(peer: Peer, client_id: str) -> ClientIdentity:
    """Return who sends a request with this client id over the connection."""
    software = peer.software
    library = None if software is UNKNOWN_SOFTWARE else f"{software.name} {software.version}"[:LONGEST_TEXT]
    return ClientIdentity(client_id[:LONGEST_TEXT], peer.peer_host, peer.principal[:LONGEST_TEXT], library)


def sharer_of(peer: Peer) -> str:
    """Return who shares turns and room with other clients: the principal, so that many addresses do not help
    a client that has logged in; the address of a client that has not.
    """
    return peer.peer_host if peer.principal == ANONYMOUS else peer.principal


class RequestContext(Generic[R]):
    """The surroundings of a request: its header fields, connection, node, and the services of its API."""

    __slots__ = (
        "api_key",
        "api_version",
        "charge",
        "client_id",
        "correlation_id",
        "listener_name",
        "node",
        "peer",
        "peer_host",
        "services",
    )

    def __init__(
        self,
        node: NodeServices,
        services: R,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str,
        peer: Peer,
        charge: Charge | None = None,
    ) -> None:
        """Take the parts of a request. `charge` counts it towards client quotas, while there are any."""
        self.node = node
        self.services = services
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.peer = peer
        self.charge = charge
        self.listener_name = peer.listener_name
        self.peer_host = peer.peer_host

    def row(self, name: str, /, **fields: Any) -> Any:
        """Return kio's structure of this name, a part of the answer, with the fields that the version has."""
        return build(row_type(self.api_key, self.api_version, name), **fields)

    def answer(self, **fields: Any) -> Any:
        """Return kio's response of the request's API and version with the fields that the version has."""
        return build(response_type(self.api_key, self.api_version), **fields)

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the client may do the operation on the resource that it names; audit a refusal."""
        if self.could(operation, resource_type, name):
            return True
        self.audit_refusal(operation, resource_type, name)
        return False

    def could(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return the same as `may` without an audit line, for lists that omit what the client may not see."""
        access = self.node.access
        return not access.is_on or access.allows(
            self.peer.principal, self.peer_host, operation, resource_type, name
        )

    def audit_refusal(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Note in the audit log that the client lacks a right for which it asked."""
        audit = self.node.audit
        if audit.is_on:
            audit.refused(DeniedRight(*self.requester(), operation.name, resource_type.name, name))

    def requester(self) -> Requester:
        """Return who sent the request, for the audit log."""
        return Requester(
            self.peer.principal, self.peer_host, self.listener_name, self.client_id, api_name(self.api_key)
        )

    def may_topic(self, operation: Operation, topic: str) -> bool:
        """Return whether the client may carry out the operation on the topic."""
        return self.may(operation, ResourceType.TOPIC, topic)

    def may_group(self, operation: Operation, group_id: str) -> bool:
        """Return whether the client may carry out the operation on the group."""
        return self.may(operation, ResourceType.GROUP, group_id)

    def may_cluster(self, operation: Operation) -> bool:
        """Return whether the client may carry out the operation on the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_transactional_id(self, operation: Operation, transactional_id: str) -> bool:
        """Return whether the client may carry out the operation on the transactional id."""
        return self.may(operation, ResourceType.TRANSACTIONAL_ID, transactional_id)


ColdHandler = Callable[[RequestContext[R], Any], Coroutine[Any, Any, Any]]
"""Takes kio's request entity, returns kio's response entity; the connection's later requests wait."""

HotHandler = Callable[[RequestContext[R], Any], ResponseBytes | Deferred | None]
"""Begins the request at once; returns the frame, or its Deferred, or None for no answer."""


class NotRepeated:
    """The result of a shorter way that can't begin the request (`NOT_REPEATED` only): decode it in full."""

    __slots__ = ()


NOT_REPEATED: Final = NotRepeated()


class Repeats(Protocol):
    """A shorter way for requests of one API and version that repeat most of an earlier request."""

    @property
    def begun(self) -> int:
        """Return the number of requests that have begun this way."""

    def begin(
        self, peer: Peer, frame: memoryview, correlation_id: int, client_id_bytes: int
    ) -> ResponseBytes | Deferred | NotRepeated | None:
        """Begin the request as the handler would. May raise the handler's errors."""

    def learn(self, frame: memoryview, context: RequestContext[Any], request: Any) -> None:
        """Remember the part of a request, which the handler has begun, that later requests may repeat."""


class Api(msgspec.Struct, Generic[R], frozen=True):
    """One API of the Kafka protocol as this gateway serves it. It has `begin` or `handle`.

    `versions`: the lowest and the highest that are served. The dispatcher closes the connection of a request
    of another version, also of `advertised_but_refused`: versions that only ApiVersions has, as in Kafka.

    `reaches` returns the services that both use; the dispatcher calls it once.

    `is_eager`: `handle` starts without a task, because it mostly waits for nothing; it must not use a timeout
    before it first waits. `reader` returns the request reader of a version that does not use the one made
    from kio's schema. `is_long`: a thread encodes the answer, which may have a row for every topic, partition
    or group. `may_be_given_up`: the work ends when the client disconnects; without it the work is always
    carried out. `names_much`: a thread decodes large requests although the API has `begin`; with `handle` a
    thread always does. Where an API has both, `handle` serves the large requests. `is_between_gateways`: only
    gateways ask, so ApiVersions leaves the API out where there is one gateway. `package`: ApiVersions leaves
    the API out where this package is not installed.
    """

    key: int
    versions: tuple[int, int]
    reaches: Callable[[Services], R]
    handle: ColdHandler[R] | None = None
    begin: HotHandler[R] | None = None
    is_eager: bool = False
    is_long: bool = False
    names_much: bool = False
    may_be_given_up: bool = False
    is_between_gateways: bool = False
    package: str | None = None
    reader: Callable[[int], Read] | None = None
    repeats: Callable[[R, int], Repeats] | None = None
    advertised_but_refused: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """Kafka's name of the API, such as DescribeAcls."""
        return api_name(self.key)


# The services that a handler may use: each row of the API table names one of these functions.

node: Callable[[Services], NodeServices] = attrgetter("node")
partitions: Callable[[Services], PartitionServices] = attrgetter("partitions")
topics: Callable[[Services], TopicServices] = attrgetter("topics")
coordinators: Callable[[Services], CoordinatorServices] = attrgetter("coordinators")
security: Callable[[Services], SecurityServices] = attrgetter("security")
telemetry: Callable[[Services], Telemetry] = attrgetter("telemetry")


def everything(services: Services) -> Services:
    """Return all services, for handlers that need several kinds."""
    return services
