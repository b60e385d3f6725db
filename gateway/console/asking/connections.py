"""A bounded cache of connections to the cluster, some for each login."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from kafka.errors import KafkaError

from gateway.admin.remote.client_security import ClientSecurity
from gateway.admin.remote.cluster import Cluster, connected
from gateway.admin.request import ControlError

MOST_IDLE: Final = 32
"""Connections that wait for their next use; the one that waits longest is closed when another comes."""
IDLE_S: Final = 120.0
"""Time after which a connection without use is closed."""


SURE_S: Final = 0.5
"""Time after its last use in which a connection is not asked whether it still answers."""


@dataclass(slots=True)
class _Open:
    """A connection that answered before, and what closes it."""

    cluster: Cluster
    closing: ExitStack
    since: float = field(default_factory=time.monotonic)


class Connections:
    """Lends connections: one thread uses one connection at a time. Thread-safe."""

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Prepare connections to the cluster at these addresses."""
        self._addresses = tuple(addresses)
        self._lock = threading.Lock()
        self._idle: OrderedDict[int, tuple[ClientSecurity, _Open]] = OrderedDict()

    @contextmanager
    def lend(self, security: ClientSecurity) -> Iterator[Cluster]:
        """Yield the cluster, connected as `security` says.

        Raises ControlError, also in place of an error of kafka-python; such an error closes the connection.
        """
        lent = self._taken(security) or self._opened(security)
        try:
            yield lent.cluster
        except ControlError:
            self._keep(security, lent, is_sure=False)
            raise
        except BaseException as error:
            lent.closing.__exit__(
                type(error), error, error.__traceback__
            )  # raises ControlError for kafka-python's errors
            raise
        self._keep(security, lent)

    def _opened(self, security: ClientSecurity) -> _Open:
        closing = ExitStack()
        return _Open(closing.enter_context(connected(self._addresses, security)), closing)

    def _taken(self, security: ClientSecurity) -> _Open | None:
        """Return an idle connection of the same login that still answers."""
        self._drop_old()
        while True:
            lent = self._popped(security)
            if lent is None or time.monotonic() - lent.since < SURE_S or _answers(lent):
                return lent
            lent.closing.close()

    def _popped(self, security: ClientSecurity) -> _Open | None:
        with self._lock:
            for key in reversed(self._idle):
                if self._idle[key][0] == security:
                    return self._idle.pop(key)[1]
        return None

    def _keep(self, security: ClientSecurity, lent: _Open, *, is_sure: bool = True) -> None:
        """Keep a connection for its next use. After a failure it is not sure: the next use asks first whether it still answers."""
        lent.since = time.monotonic() - (0.0 if is_sure else SURE_S)
        with self._lock:
            self._idle[id(lent)] = (security, lent)
            surplus = None
            if len(self._idle) > MOST_IDLE:
                surplus = self._idle.popitem(last=False)[1][1]
        if surplus is not None:
            surplus.closing.close()

    def _drop_old(self) -> None:
        before = time.monotonic() - IDLE_S
        with self._lock:
            old = [key for key, (_, lent) in self._idle.items() if lent.since < before]
            dropped = [self._idle.pop(key)[1] for key in old]
        for lent in dropped:
            lent.closing.close()

    def forget(self, security: ClientSecurity) -> None:
        """Close the idle connections of a login."""
        with self._lock:
            keys = [key for key, (known, _) in self._idle.items() if known == security]
            dropped = [self._idle.pop(key)[1] for key in keys]
        for lent in dropped:
            lent.closing.close()

    def close(self) -> None:
        """Close every idle connection."""
        with self._lock:
            dropped = [lent for _, lent in self._idle.values()]
            self._idle.clear()
        for lent in dropped:
            lent.closing.close()


def _answers(lent: _Open) -> bool:
    """Return whether a connection still answers; the cluster may have started again meanwhile."""
    try:
        lent.cluster.broker_ids()
    except KafkaError:
        return False
    return True
