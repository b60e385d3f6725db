"""Asks every gateway and every worker of a cluster one question over the Kafka protocol, as commands with
--bootstrap do. Raises ControlError.

Brokers answer such a question in a tagged field of DescribeCluster. Apache Kafka, and gateways of earlier
releases, do not.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import Any, Final, Generic, NamedTuple, TypeVar

from seqgate.gateway.admin.remote.broker import BrokerAddress, exchange, open_connection
from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.admin.remote.cluster import first_that_answers
from seqgate.gateway.admin.remote.operations import question_of, told_in
from seqgate.gateway.admin.request import ControlError, Elsewhere, Request
from seqgate.gateway.protocol.frames import MalformedRequest

MOST_GATEWAYS: Final = 20
"""Gateways that are asked; the answers lack further ones, and say so."""
AT_ONCE: Final = 8
"""Gateways that are asked at the same time."""
TIMEOUT_S: Final = 3.0

A = TypeVar("A")


class Reply(NamedTuple, Generic[A]):
    """The answer of a gateway, or the reason why there is none. `name` is the node id of the gateway. With
    `is_elsewhere` the gateway named another one that has the answer.
    """

    name: str
    address: str
    answer: A | None = None
    trouble: str | None = None
    is_elsewhere: bool = False


class Replies(NamedTuple, Generic[A]):
    """The answers of all gateways; there are none if the brokers don't know such questions. `of` is the
    number of brokers. `trouble` says why the cluster could not be asked, and then `cluster_id` is None.
    """

    rows: Sequence[Reply[A]] = ()
    of: int = 0
    cluster_id: str | None = None
    trouble: str | None = None


class GatewayAsker:
    """Asks the gateways of one cluster with one login. It keeps a connection to each. One thread uses it."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        security: ClientSecurity,
        pool: Executor,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Take the addresses at which the cluster is found; `pool` runs the questions that go out at once."""
        self._bootstrap = [BrokerAddress(*address, security) for address in addresses]
        self._pool = pool
        self._timeout_s = timeout_s
        self._open: dict[BrokerAddress, socket.socket] = {}
        self._known: dict[str, BrokerAddress] = {}
        """The gateways by node id, as the last answer named them."""
        self._last: BrokerAddress | None = None
        """The address that answered last; the next question goes there first."""

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
        first = [] if self._last is None else [self._last]
        address, described = first_that_answers(
            dict.fromkeys([*first, *self._bootstrap, *self._known.values()]),
            lambda address: (address, self._asked(address, request)),
        )
        self._last = address
        brokers = {str(row.broker_id): address.other(row.host, int(row.port)) for row in described.brokers}
        self._known = brokers
        self._hang_up_but({address, *brokers.values()})
        if described.answer is None:
            return Replies(of=len(brokers), cluster_id=described.cluster_id)
        own = next((name for name, other in brokers.items() if other == address), None)
        rows = self._pool.map(
            lambda name: (
                _reply(name, address, described, request)
                if name == own
                else self._reply_of(name, brokers[name], request)
            ),
            list(brokers)[:MOST_GATEWAYS],
        )
        return Replies(list(rows), len(brokers), described.cluster_id)

    def _reply_of(self, name: str, address: BrokerAddress, request: Request[A]) -> Reply[A]:
        try:
            return _reply(name, address, self._asked(address, request), request)
        except ControlError as error:
            return Reply(name, address.shown, None, str(error))
        except TimeoutError:
            return Reply(name, address.shown, None, "no answer in time")
        except OSError as error:
            return Reply(name, address.shown, None, f"no answer: {error.strerror or error}")

    def _asked(self, address: BrokerAddress, request: Request[Any]) -> Any:
        """Return a broker's answer to the question. Raises OSError, ControlError."""
        kept = self._open.pop(address, None)
        if kept is not None:
            try:
                return self._exchanged(address, kept, request)
            except ConnectionError:
                pass  # brokers close connections that are old or idle
        return self._exchanged(address, open_connection(address, self._timeout_s), request)

    def _exchanged(self, address: BrokerAddress, connection: socket.socket, request: Request[Any]) -> Any:
        try:
            answer = exchange(connection, *question_of(request))
        except MalformedRequest as error:
            connection.close()
            raise ControlError(f"the answer of {address.shown} is not understood: {error}") from None
        except BaseException:
            connection.close()
            raise
        self._open[address] = connection
        return answer

    def _hang_up_but(self, addresses: Iterable[BrokerAddress]) -> None:
        for address in self._open.keys() - set(addresses):
            self._open.pop(address).close()

    def close(self) -> None:
        self._hang_up_but(())


def _reply(name: str, address: BrokerAddress, described: Any, request: Request[A]) -> Reply[A]:
    try:
        return Reply(name, address.shown, told_in(described, request))
    except ControlError as error:
        return Reply(name, address.shown, None, str(error), isinstance(error, Elsewhere))
