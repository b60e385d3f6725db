"""A bounded cache of connections to the cluster, some for each login."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeVar

from kio.schema.describe_cluster.v0.request import DescribeClusterRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from seqgate.gateway.admin.remote.addresses import shown_address
from seqgate.gateway.admin.remote.broker import (
    BrokerAddress,
    api_versions,
    begin_session,
    connect,
    exchange,
    metadata,
    open_connection,
)
from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.admin.remote.cluster import Cluster, connected, first_that_answers
from seqgate.gateway.admin.request import ControlError, Unreachable
from seqgate.gateway.console.asking.gateways import (
    MOST_GATEWAYS,
    BrokerMemory,
    GatewayAsker,
    PartialCluster,
    first_of,
)
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.protocol.frames import MalformedRequest

MOST_IDLE: Final = 32
"""Connections that wait for their next use; the one that waits longest is closed when another comes."""
IDLE_S: Final = 120.0
ANSWER_S: Final = 5.0
"""Time that a page gives each gateway for its answer."""

SURE_S: Final = 0.5
"""Time after its last use in which a connection is not asked whether it still answers."""


P = TypeVar("P", Cluster, GatewayAsker)


@dataclass(slots=True)
class _Open(Generic[P]):
    """A connected cluster, or what asks each of its gateways; `closing` closes it."""

    part: P
    closing: ExitStack
    since: float = field(default_factory=time.monotonic)


class Connections:
    """Lends connections: one thread uses one connection at a time. Thread-safe."""

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self.addresses = tuple(addresses)
        self._lock = threading.Lock()
        self._idle: OrderedDict[int, tuple[ClientSecurity, _Open[Any]]] = OrderedDict()
        self.memory = BrokerMemory()
        self.pool = ThreadPoolExecutor(2 * MOST_GATEWAYS, "console-gateways")
        """Runs the questions that go out to brokers at once."""

    @contextmanager
    def lend(self, security: ClientSecurity) -> Iterator[Cluster]:
        """Yield the cluster, connected as `security` says. Raises ControlError, also in place of an error of
        kafka-python; such an error closes the connection.
        """
        with self._kept(security, self._taken(security) or self._opened(security)) as cluster:
            yield cluster

    @contextmanager
    def lend_asker(self, security: ClientSecurity) -> Iterator[GatewayAsker]:
        """Yield what asks each gateway of the cluster, connected as `security` says. Raises ControlError."""
        idle = self._popped(security, GatewayAsker)
        with self._kept(security, idle or self._new_asker(security)) as asker:
            yield asker

    @contextmanager
    def lend_partial(self, security: ClientSecurity) -> Iterator[PartialCluster]:
        """Yield the cluster as the brokers tell it that answer now. Raises ControlError."""
        names = [shown_address(*address) for address in self.addresses]
        with self.lend_asker(security) as asker:
            yield PartialCluster(names, asker)

    @contextmanager
    def _kept(self, security: ClientSecurity, lent: _Open[P]) -> Iterator[P]:
        """Yield a part, and keep it for its next use unless its use fails."""
        try:
            yield lent.part
        except Unreachable:
            lent.closing.close()  # the next use connects to a broker that answers
            raise
        except ControlError:
            self._keep(security, lent, is_sure=False)
            raise
        except BaseException as error:
            lent.closing.__exit__(
                type(error), error, error.__traceback__
            )  # raises ControlError for kafka-python's errors
            raise
        self._keep(security, lent)

    def _opened(self, security: ClientSecurity) -> _Open[Cluster]:
        closing = ExitStack()
        cluster = closing.enter_context(connected(self.addresses, security, read_timeout_s=ANSWER_S))
        return _Open(cluster, closing)

    def _new_asker(self, security: ClientSecurity) -> _Open[GatewayAsker]:
        closing = ExitStack()
        asker = GatewayAsker(self.addresses, security, self.pool, ANSWER_S, self.memory)
        closing.callback(asker.close)
        return _Open(asker, closing)

    def _taken(self, security: ClientSecurity) -> _Open[Cluster] | None:
        """Return an idle connection of the same login that still answers. If the newest does not, all are
        closed: the others know the same brokers.
        """
        lent = self._popped(security, Cluster)
        if lent is None:
            return None
        lent.part.forget_brokers()
        if time.monotonic() - lent.since < SURE_S or _answers(lent.part):
            return lent
        lent.closing.close()
        self._drop(lambda known, idle: known == security and isinstance(idle.part, Cluster))
        return None

    def _popped(self, security: ClientSecurity, kind: type[P]) -> _Open[P] | None:
        """Return the newest idle part of a kind and a login; drop those that are idle for too long."""
        before = time.monotonic() - IDLE_S
        self._drop(lambda _, idle: idle.since < before)
        with self._lock:
            for key in reversed(self._idle):
                known, idle = self._idle[key]
                if known == security and isinstance(idle.part, kind):
                    return self._idle.pop(key)[1]
        return None

    def _keep(self, security: ClientSecurity, lent: _Open[Any], *, is_sure: bool = True) -> None:
        """Keep a connection; after a failure the next use asks first whether it still answers."""
        lent.since = time.monotonic() - (0.0 if is_sure else SURE_S)
        with self._lock:
            self._idle[id(lent)] = (security, lent)
            surplus = None
            if len(self._idle) > MOST_IDLE:
                surplus = self._idle.popitem(last=False)[1][1]
        if surplus is not None:
            surplus.closing.close()

    def forget(self, security: ClientSecurity) -> None:
        self._drop(lambda known, _: known == security)

    def close(self) -> None:
        self._drop(lambda _security, _idle: True)
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _drop(self, is_dropped: Callable[[ClientSecurity, _Open[Any]], bool]) -> None:
        """Close the idle parts that `is_dropped` names by their login."""
        with self._lock:
            keys = [key for key, (known, lent) in self._idle.items() if is_dropped(known, lent)]
            dropped = [self._idle.pop(key)[1] for key in keys]
        for lent in dropped:
            lent.closing.close()


def _answers(cluster: Cluster) -> bool:
    """Return whether a connection still answers; the cluster may have started again meanwhile."""
    try:
        cluster.broker_ids()
    except ControlError:
        return False
    return True


# Keeps answers of the cluster for a few seconds, for each login.

MOST_ANSWERS: Final = 64
"""Answers that are kept; the one that was used longest ago is dropped when another comes."""

TIMES_LONGER: Final = 10
"""An answer counts for so many times the time that asking took: a quick answer is soon asked for again."""

A = TypeVar("A")
Q = ParamSpec("Q")


@dataclass(slots=True)
class _Answer(Generic[A]):
    """An answer, the time until which it counts, and the lock of the thread that asks."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    value: A | None = None
    until: float = float("-inf")


class Cache(Generic[A]):
    """Answers of one kind. Threads that need the same answer wait for one that asks. Thread-safe."""

    def __init__(
        self, kept_s: float, clock: Callable[[], float] = time.monotonic, *, is_lasting: bool = False
    ) -> None:
        """Keep each answer for at most `kept_s` seconds; with `is_lasting` a quick answer for as long."""
        self._kept_s = kept_s
        self._clock = clock
        self._is_lasting = is_lasting
        self._lock = threading.Lock()
        self._answers: OrderedDict[tuple[ClientSecurity, Any], _Answer[A]] = OrderedDict()

    def get(self, security: ClientSecurity, key: Any, ask: Callable[[], A]) -> A:
        with self._lock:
            answer = self._answers.setdefault((security, key), _Answer())
            self._answers.move_to_end((security, key))
            while len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
        with answer.lock:
            if answer.value is None or self._clock() >= answer.until:
                began = self._clock()
                answer.value = ask()
                came = self._clock()
                counts_s = self._kept_s if self._is_lasting else (came - began) * TIMES_LONGER
                answer.until = came + min(self._kept_s, counts_s)
            return answer.value

    def known(self, security: ClientSecurity, key: Any) -> A | None:
        """Return the last answer, however old; None without one."""
        with self._lock:
            answer = self._answers.get((security, key))
        return None if answer is None else answer.value

    def forget(self) -> None:
        with self._lock:
            self._answers.clear()


class KeptAnswers(Generic[Q, A]):
    """A function that asks a cluster; for the same login an answer that is a few seconds old counts."""

    def __init__(self, kept_s: float, ask: Callable[Concatenate[Cluster, Q], A]) -> None:
        self._ask = ask
        self._cache: Cache[A] = Cache(kept_s)

    def __call__(self, cluster: Cluster, *args: Q.args, **kwargs: Q.kwargs) -> A:
        key = cluster.addresses, cluster.is_partial, args, tuple(sorted(kwargs.items()))
        return self._cache.get(cluster.reached.security, key, lambda: self._ask(cluster, *args, **kwargs))

    def forget(self) -> None:
        self._cache.forget()


def kept(kept_s: float) -> Callable[[Callable[Concatenate[Cluster, Q], A]], KeptAnswers[Q, A]]:
    """Decorate a function that asks a cluster; its arguments tell apart what it asks."""
    return lambda ask: KeptAnswers(kept_s, ask)


# Who leads each partition, with the epoch of the leader. Raises ControlError.

LEADERS_TIMEOUT_S: Final = 10.0


class Leader(NamedTuple):
    """The node that leads a partition, -1 for nobody, and the epoch that began with it."""

    node_id: int
    epoch: int


def leaders_of(cluster: Cluster) -> dict[TopicPartition, Leader]:
    """Return the leader of each partition that this login may see."""
    return {
        (str(topic.name), int(row.partition_index)): Leader(int(row.leader_id), int(row.leader_epoch))
        for topic in metadata(cluster.reached, LEADERS_TIMEOUT_S).topics
        for row in topic.partitions
    }


# Asks the cluster for the rights of the logged-in user. Raises ControlError.

RIGHTS_TIMEOUT_S: Final = 5.0
_DESCRIBE: Final = 1 << 8
"""The bit of the operation DESCRIBE in Kafka's sets of operations."""


class Server(NamedTuple):
    """The cluster that a console shows; `version` is the gateway's, or else the level of its features."""

    cluster_id: str
    version: str


def server_of(cluster: Cluster) -> Server:
    asked = DescribeClusterRequest(include_cluster_authorized_operations=False)
    answer = cluster.ask_reached(asked, timeout_s=RIGHTS_TIMEOUT_S)
    features = api_versions(cluster.reached, RIGHTS_TIMEOUT_S).finalized_features
    levels = {str(row.name): int(row.max_version_level) for row in features}
    level = levels.get("metadata.version")
    return Server(answer.cluster_id, "" if level is None else f"metadata.version {level}")


def may_describe_cluster(cluster: Cluster) -> bool:
    """Return whether the person has the right DESCRIBE on the cluster."""
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = cluster.ask_reached(asked, timeout_s=RIGHTS_TIMEOUT_S)
    return bool(answer.cluster_authorized_operations & _DESCRIBE)


# Finds out whether the cluster's listener needs a login, and by which mechanisms. Raises ControlError.

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""The mechanisms by which people log in, the safest first."""
KEPT_S: Final = 60.0
LOGIN_TIMEOUT_S: Final = 5.0
_NO_MECHANISM: Final = "?"


class ClusterLogin:
    """Knows how visitors log in to the cluster. Thread-safe."""

    def __init__(
        self, addresses: Sequence[tuple[str, int]], security: ClientSecurity, pool: Executor
    ) -> None:
        """Take the addresses, which `pool` asks at once, and the console's own `security`."""
        self._addresses = tuple(addresses)
        self._pool = pool
        self._security = security
        self._lock = threading.Lock()
        self._known: tuple[str, ...] | None = None
        self._until = 0.0

    def mechanisms(self) -> tuple[str, ...]:
        """Return the mechanisms by which visitors can log in; empty when the listener needs no login."""
        with self._lock:
            if self._known is None or time.monotonic() >= self._until:
                self._known = self._asked()
                self._until = time.monotonic() + KEPT_S
            return self._known

    def _asked(self) -> tuple[str, ...]:
        """Return what the listener offers; while nothing answers, what it offered before."""
        if self._security.mechanism:
            return (self._security.mechanism,)
        places = self._places(self._security)
        try:
            return first_of({place: self._pool.submit(_offered, place) for place in places})[1]
        except Unreachable:
            if self._known is None:
                raise
            return self._known

    def _places(self, security: ClientSecurity) -> list[BrokerAddress]:
        return [BrokerAddress(*address, security) for address in self._addresses]

    def log_in(self, username: str, password: str) -> ClientSecurity:
        """Return how a visitor connects, after the cluster has accepted the login. Raises ControlError;
        Unreachable only where no login was sent, because a refusal may come after the timeout.
        """
        refusal: ControlError | None = None
        reached: list[BrokerAddress] = []

        def try_at(address: BrokerAddress) -> None:
            connection = connect(address, LOGIN_TIMEOUT_S)
            reached.append(address)
            begin_session(connection, address).close()

        protocol = "SASL_SSL" if self._security.context is not None else "SASL_PLAINTEXT"
        for mechanism in self.mechanisms():
            security = ClientSecurity(protocol, self._security.context, mechanism, username, password)
            try:
                first_that_answers(self._places(security), try_at)
            except Unreachable as error:
                refusal = refusal or error
            except ControlError as error:
                refusal = error
            else:
                return security
        if reached and isinstance(refusal, Unreachable):
            raise ControlError(str(refusal))
        raise refusal or ControlError("the listener of the cluster needs no login")


def _offered(address: BrokerAddress) -> tuple[str, ...]:
    """Return what a listener offers in place of an unknown mechanism; one without logins offers nothing.
    Raises ControlError, and OSError without an answer.
    """
    try:
        with open_connection(address, LOGIN_TIMEOUT_S) as connection:
            answer = exchange(connection, SaslHandshakeRequest(mechanism=_NO_MECHANISM))
    except MalformedRequest as error:
        raise ControlError(f"the answer of {address.shown} is not understood: {error}") from None
    offered = tuple(name for name in MECHANISMS if name in answer.mechanisms)
    if answer.mechanisms and not offered:
        raise ControlError(
            f"{address.shown} lets clients log in with {', '.join(answer.mechanisms)} only; the console "
            f"needs one of {', '.join(MECHANISMS)}"
        )
    return offered
