"""Asks every gateway and every worker of a cluster one question over the Kafka protocol, as commands with
--bootstrap do. Raises ControlError.

Brokers answer such a question in a tagged field of DescribeCluster. Apache Kafka, and gateways of earlier
releases, do not. All brokers are asked at once, so that a page waits for those that stand still as long as
for one; then they are not asked again for some seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed, wait
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.describe_cluster.v0.request import DescribeClusterRequest

from seqgate.gateway.admin.remote.broker import BrokerAddress, KeptConnections, open_connection
from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.admin.remote.cluster import Cluster, check, first_that_answers
from seqgate.gateway.admin.remote.operations import question_of, told_in
from seqgate.gateway.admin.request import ControlError, Elsewhere, Request, Unreachable

MOST_GATEWAYS: Final = 20
"""Gateways that are asked; the answers lack further ones, and say so."""
AT_ONCE: Final = 8
"""Gateways that the sampler asks at the same time; a page asks all."""
TIMEOUT_S: Final = 3.0
SILENT_S: Final = 10.0
"""Time for which a broker that gave no answer in time is not asked again."""

A = TypeVar("A")
R = TypeVar("R")

_WHO: Final = DescribeClusterRequest(include_cluster_authorized_operations=False)
_VERSIONS: Final = ApiVersionsRequest(client_software_name="seqgate", client_software_version="1")


class Reply(NamedTuple, Generic[A]):
    """The answer of a gateway, or the reason why there is none. `name` is the node id of the gateway. With
    `is_elsewhere` the gateway named another one that has the answer.
    """

    name: str
    address: str
    answer: A | None = None
    trouble: str | None = None
    is_elsewhere: bool = False

    @property
    def silence(self) -> str:
        """The sentence about a gateway without an answer."""
        return silence_of(self.name, self.address, self.trouble or "")


class Replies(NamedTuple, Generic[A]):
    """The answers of all gateways; there are none if the brokers don't know such questions. `of` is the
    number of brokers. `trouble` says why the cluster could not be asked, and then `cluster_id` is None.
    """

    rows: Sequence[Reply[A]] = ()
    of: int = 0
    cluster_id: str | None = None
    trouble: str | None = None


class BrokerMemory:
    """The addresses of the brokers by node id, as the last answer named them, and the brokers that gave no
    answer in time a few seconds ago. All logins share it. Thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.addresses: Mapping[str, tuple[str, int]] = {}
        self._clock = clock
        self._lock = threading.Lock()
        self._silent_until: dict[tuple[str, int], float] = {}

    def is_silent(self, address: BrokerAddress) -> bool:
        return self._silent_until.get((address.host, address.port), 0.0) > self._clock()

    def note_silence(self, address: BrokerAddress) -> None:
        """Remember a broker for SILENT_S, and forget those that are due to be asked again."""
        now = self._clock()
        with self._lock:
            left = {place: until for place, until in self._silent_until.items() if until > now}
            self._silent_until = left | {(address.host, address.port): now + SILENT_S}

    def note_answer(self, address: BrokerAddress) -> None:
        with self._lock:
            self._silent_until.pop((address.host, address.port), None)


class GatewayAsker:
    """Asks the gateways of one cluster with one login. It keeps a connection to each. One thread uses it."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        security: ClientSecurity,
        pool: Executor,
        timeout_s: float = TIMEOUT_S,
        memory: BrokerMemory | None = None,
        *,
        asks_silent: bool = False,
    ) -> None:
        """Take the addresses at which the cluster is found; `pool` runs the questions that go out at once.
        With `asks_silent` questions go to silent brokers, too, and only their answers are remembered: a
        shorter time without an answer proves less.
        """
        self._bootstrap = [BrokerAddress(*address, security) for address in addresses]
        self._pool = pool
        self._timeout_s = timeout_s
        self._memory = memory or BrokerMemory()
        self._asks_silent = asks_silent
        self._connections = KeptConnections(lambda address: open_connection(address, timeout_s))
        self._known = {
            name: BrokerAddress(*place, security) for name, place in self._memory.addresses.items()
        }
        """The gateways by node id, as the last answer named them."""

    def ask(self, request: Request[A]) -> Replies[A]:
        """Return what all gateways answer. Raises ControlError when the cluster does not answer and this
        asker has not seen its gateways.
        """
        try:
            return self._asked_brokers(request)
        except ControlError as error:
            if not self._known:
                raise
            silent: list[Reply[A]] = [
                Reply(name, address.shown, None, "the cluster does not answer")
                for name, address in self._known.items()
            ]
            return Replies(silent, len(silent), None, str(error))

    def _asked_brokers(self, request: Request[A]) -> Replies[A]:
        """Return what each broker answers. Raises Unreachable when none answers, and ControlError for a login
        that is refused.
        """
        _, described, answers = self._round(question_of(request))
        if all(getattr(answer, "answer", None) is None for answer in answers.values()):
            return Replies(of=len(self._known), cluster_id=described.cluster_id)
        rows = [
            _reply(name, address, answers[address], request)
            for name, address in self._known.items()
            if address in answers
        ]
        return Replies(rows, len(self._known), described.cluster_id)

    def find(self) -> FoundBrokers:
        """Return which brokers answer. Raises ControlError when none does."""
        first, _, answers = self._round(_WHO)
        versions = self.answers({first: _VERSIONS})[first]
        if isinstance(versions, Exception):
            raise Unreachable(f"the broker at {first.shown} did not answer: {_why(versions)}")
        return FoundBrokers(
            first,
            {int(row.api_key): int(row.max_version) for row in versions.api_keys},
            {int(name): address for name, address in self._known.items()},
            {
                int(name): _why(answer)
                for name, address in self._known.items()
                if isinstance(answer := answers.get(address), Exception)
            },
        )

    def _round(self, question: Any) -> tuple[BrokerAddress, Any, dict[BrokerAddress, Any]]:
        """Ask all brokers at once. Return the one that answered first, its answer, and the answers of all, or
        their errors. Raises ControlError when none answers.
        """
        asked: dict[BrokerAddress, Future[Any]] = {}
        try:
            try:
                first, described = self._first(asked, list(self._known.values())[:MOST_GATEWAYS], question)
            except Unreachable:
                first, described = self._first(asked, self._bootstrap, question)
            brokers = {str(row.broker_id): first.other(row.host, int(row.port)) for row in described.brokers}
            self._begin(asked, list(brokers.values())[:MOST_GATEWAYS], question)
        finally:
            wait(asked.values())
        self._known = brokers
        self._memory.addresses = {name: (each.host, each.port) for name, each in brokers.items()}
        self._connections.close(brokers.values())
        return first, described, {address: _outcome(future) for address, future in asked.items()}

    def _first(
        self, asked: dict[BrokerAddress, Future[Any]], addresses: Sequence[BrokerAddress], question: Any
    ) -> tuple[BrokerAddress, Any]:
        """Ask brokers at once, those that are silent only if all are. Return the first that answers, and its
        answer. Raises ControlError.
        """
        self._begin(asked, addresses, question, asks_silent=all(map(self._is_silent, addresses)))
        return first_of({address: asked[address] for address in addresses})

    def _begin(
        self,
        asked: dict[BrokerAddress, Future[Any]],
        addresses: Iterable[BrokerAddress],
        question: Any,
        *,
        asks_silent: bool = False,
    ) -> None:
        """Begin to ask the brokers that are not in `asked` yet."""
        for address in addresses:
            if address in asked:
                continue
            if self._is_silent(address) and not asks_silent:
                asked[address] = Future()
                asked[address].set_exception(TimeoutError())
            else:
                asked[address] = self._pool.submit(self._asked, address, question)

    def _is_silent(self, address: BrokerAddress) -> bool:
        return not self._asks_silent and self._memory.is_silent(address)

    def answers(self, questions: Mapping[BrokerAddress, Any]) -> dict[BrokerAddress, Any]:
        """Return the answers of brokers, or their errors; each gets its question, all at once."""
        asked: dict[BrokerAddress, Future[Any]] = {}
        for address, question in questions.items():
            self._begin(asked, [address], question)
        return {address: _outcome(future) for address, future in asked.items()}

    def _asked(self, address: BrokerAddress, question: Any) -> Any:
        """Return a broker's answer to the question. Raises OSError, ControlError."""
        try:
            answer = self._connections.ask(address, question, self._timeout_s)
        except TimeoutError:
            if not self._asks_silent:
                self._memory.note_silence(address)
            raise
        self._memory.note_answer(address)
        return answer

    def close(self) -> None:
        self._connections.close()


def first_of(asked: Mapping[BrokerAddress, Future[R]]) -> tuple[BrokerAddress, R]:
    """Return the first broker that answers, and its answer. Raises ControlError."""
    by_future = {future: address for address, future in asked.items()}
    return first_that_answers(
        (by_future[future] for future in as_completed(by_future)),
        lambda address: (address, asked[address].result()),
    )


def _outcome(future: Future[Any]) -> Any:
    """Return the answer of a broker, or the error in its place: OSError or ControlError."""
    try:
        return future.result()
    except (OSError, ControlError) as error:
        return error


def silence_of(name: str, address: str, reason: str) -> str:
    """Return the sentence about a gateway without an answer. A listener has its address as its name."""
    where = f"node {name} at {address}" if name != address else name
    return f"{where} gives no answer: {reason}"


def _why(error: Exception) -> str:
    """Return the reason for which a broker gave no answer."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return f"no answer: {error.strerror or error}" if isinstance(error, OSError) else str(error)


def _reply(name: str, address: BrokerAddress, described: Any, request: Request[A]) -> Reply[A]:
    if isinstance(described, Exception):
        return Reply(name, address.shown, None, _why(described))
    try:
        return Reply(name, address.shown, told_in(described, request))
    except ControlError as error:
        return Reply(name, address.shown, None, str(error), isinstance(error, Elsewhere))


# The cluster for pages that show what some brokers tell while others are silent.


class FoundBrokers(NamedTuple):
    """The broker that answered first, the newest version of each API that it serves, all brokers by node id,
    and why each of the silent ones gives no answer.
    """

    reached: BrokerAddress
    versions: Mapping[int, int]
    brokers: Mapping[int, BrokerAddress]
    silent: dict[int, str]


class PartialCluster(Cluster):
    """The cluster as the brokers tell it that answer now. A question to several goes out at once. `silent`
    has a sentence about each broker whose answer is missing.
    """

    is_partial = True

    def __init__(self, addresses: Sequence[str], asker: GatewayAsker) -> None:
        """Find out who answers. Raises ControlError when no broker answers."""
        found = asker.find()
        super().__init__(tuple(addresses), found.reached, found.versions)
        self._asker = asker
        self._found = found

    @property
    def brokers(self) -> Mapping[int, BrokerAddress]:
        return self._found.brokers

    def _any_brokers(self) -> list[BrokerAddress]:
        return [self.reached]

    @property
    def silent(self) -> Sequence[str]:
        return [
            silence_of(str(node_id), self.brokers[node_id].shown, reason)
            for node_id, reason in self._found.silent.items()
        ]

    @property
    def lacks_brokers(self) -> bool:
        return bool(self._found.silent)

    def trouble_of(self, node_id: int) -> str | None:
        return self._found.silent.get(node_id)

    def ask(self, address: BrokerAddress, request: Any, *, is_change: bool = False) -> Any:
        answers = self.ask_each({address: request}, is_change=is_change)
        if not answers:
            raise Unreachable("; ".join(self.silent))
        return answers[address]

    def ask_each(
        self, questions: Mapping[BrokerAddress, Any], *, is_change: bool = False
    ) -> dict[BrokerAddress, Any]:
        """Return the answers of the brokers that give one. Raises Refused for an answer that is an error, and
        Unreachable where a broker hangs up.
        """
        assert not is_change, "a change needs the whole cluster"
        nodes = {address: node_id for node_id, address in self.brokers.items()}
        asked = {
            address: request
            for address, request in questions.items()
            if nodes.get(address) not in self._found.silent
        }
        found = self._asker.answers(asked)
        for address, answer in found.items():
            if isinstance(answer, TimeoutError | ConnectionRefusedError) and address in nodes:
                self._found.silent[nodes[address]] = _why(answer)
            elif isinstance(answer, ControlError):
                raise answer
            elif isinstance(answer, OSError):
                raise Unreachable(f"the broker at {address.shown} did not answer: {_why(answer)}")
            else:
                check(answer)
        return {address: answer for address, answer in found.items() if not isinstance(answer, Exception)}
