"""Accepts connections on listeners and keeps them within their limits.

`Acceptor` has the listening sockets of one listener, and can stop accepting connections for a while.
Meanwhile connections wait in the backlog of the system (`socket.listen.backlog.size`), where they cost the
gateway nothing. uvloop can't pause its servers, but a closed server leaves its sockets open if this process
has duplicates of them.

`Admission` counts connections and decides which are accepted, by limits on all connections, on those of a
listener or an address, and on the rate of new connections.

Source: Kafka's ConnectionQuotas. A connection beyond a limit on the number is closed. A connection beyond the
rate of its address is closed after a delay, which keeps the address from trying again at once. Beyond the
rate of a listener, or of all listeners, no connection is closed; the next connections are accepted later.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakSet

from seqgate.gateway.config import Config, Listener
from seqgate.gateway.config.cluster import LISTENER as INTER_BROKER_LISTENER
from seqgate.gateway.config.listeners import is_loopback
from seqgate.gateway.config.network import parse_overrides
from seqgate.gateway.config.setting import INT_MAX
from seqgate.gateway.quota.client_quotas import Rate, Windows
from seqgate.gateway.runtime.client_quotas import ClientQuotas
from seqgate.gateway.runtime.loop.machine import split_file_handles
from seqgate.gateway.runtime.loop.request_memory import RequestMemory
from seqgate.gateway.runtime.partitions.cold_reads import ColdReads
from seqgate.gateway.security.certificates import RenewableListener
from seqgate.gateway.security.principals import ANONYMOUS
from seqgate.gateway.server.connection import Connection, ConnectionLimits, Outbox, UnreadAnswers, hung_up
from seqgate.gateway.server.dispatcher import Requests
from seqgate.gateway.server.handshake_turns import HandshakeTurns
from seqgate.gateway.server.sasl import Logins, RequestLimits, SaslDoor, SaslListener

logger = logging.getLogger(__name__)

STALLED_S = 10.0
"""A request in parts that has been stalled for this time is dropped when memory is short."""
KEEPALIVE_IDLE_S = 120
KEEPALIVE_INTERVAL_S = 30
KEEPALIVE_PROBES = 4
"""Keepalive probes for a silent client after KEEPALIVE_IDLE_S; one that answers none of them is dropped."""
HELD_SHARE = 4
"""The share of the request memory that bytes of requests which may not begin yet may fill; beyond this share,
connections read little at a time.
"""
LITTLE_BYTES = 4 << 10
RECEIVE_BUFFER_BYTES = 256 << 10
"""The size of the one buffer that all sockets are read into; the event loop reads one socket at a time."""
Guard: TypeAlias = Callable[[Connection], Connection]


class Server:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: Config,
        dispatcher: Requests,
        cold_reads: ColdReads | None = None,
        *,
        quotas: ClientQuotas | None = None,
        logins: Logins | None = None,
        handles_limit: int = sys.maxsize,
        memory: RequestMemory | None = None,
        tls_listeners: dict[str, RenewableListener] | None = None,
    ) -> None:
        """Begin without listeners. Without `cold_reads` the event loop waits for records that are not in the
        page cache. Listeners with SASL need `logins`. The process may open `handles_limit` files and sockets
        together. The requests of connections share `memory` with requests that wait elsewhere. Each listener
        with TLS is added to `tls_listeners`.
        """
        self.loop = loop
        self.cold_reads = cold_reads
        self.dispatcher = dispatcher
        self._logins = logins
        self.limits: ConnectionLimits
        self.memory = memory or RequestMemory(config.int("queued.max.request.bytes"))
        self._whole_buffer = self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.received = self.receive_buffer.toreadonly()
        self.held_bytes = 0
        """The received bytes that all connections hold now because their next requests may not begin yet."""
        self.outbox = Outbox(loop)
        self.unread = UnreadAnswers()
        self.refused_connections = 0
        self._config = config
        self._connections: dict[Connection, None] = {}
        self._delayed: set[Connection] = set()
        """The connections over the rate of their address, which are closed later."""
        self._numbers = itertools.count(1)
        self._admission = Admission(config, lambda: int(loop.time() * 1000), quotas, handles_limit)
        self._acceptors: dict[str, Acceptor] = {}
        self._turns = HandshakeTurns(loop, config.int("seqgate.handshake.slice.ms") / 1000)
        self._tls_listeners = {} if tls_listeners is None else tls_listeners
        self._idle_timer: asyncio.TimerHandle | None = None
        self._has_ended = False
        config.follow(self._take_limits)

    def _take_limits(self) -> None:
        self.limits = ConnectionLimits.of(self._config)
        self.unread.limit_bytes = self._config.int("seqgate.response.backlog.max.bytes")
        for connection in self._connections:
            connection.limits_changed()

    def count_held(self, more_bytes: int) -> None:
        """Count bytes that connections keep; when they keep much, each connection reads only a little."""
        self.held_bytes += more_bytes
        limit_bytes = self.memory.limit_bytes
        is_much = 0 <= limit_bytes < HELD_SHARE * self.held_bytes
        self.receive_buffer = self._whole_buffer[:LITTLE_BYTES] if is_much else self._whole_buffer

    async def listen(self, listener: Listener, inherited: Sequence[socket.socket] = ()) -> int:
        """Start to accept on a listener; return its port, chosen by the system for port 0. `inherited` are
        the listener's sockets that another process has bound. Raises OSError if the address can't be bound,
        StoreError for an unusable certificate, LoginSettingsError without logins.
        """
        protocol = self._config.protocol_of(listener.name)
        guard = self._guard(listener) if protocol.has_logins else _unguarded
        make_protocol = (
            self._tls_doors(listener, guard, knows_clients=not protocol.has_logins)
            if protocol.has_tls
            else lambda: guard(Connection(self, listener.name))
        )
        acceptor = Acceptor(self.loop, make_protocol, self._config.int("socket.listen.backlog.size"))
        bound = await acceptor.open(listener, inherited)
        for bound_socket in bound:
            self._set_options(bound_socket)
            # accepted sockets inherit the algorithm; a connection that began with BBR would keep its pacing
            self.suit_peer(bound_socket, bound_socket.getsockname()[0])
        self._acceptors[listener.name] = acceptor
        if self._idle_timer is None:
            self.close_idle()
        return int(bound[0].getsockname()[1])

    def duplicates(self, listener_name: str) -> list[int]:
        """Return duplicates of a listener's sockets: connections wait there once the listener is closed."""
        return self._acceptors[listener_name].duplicates()

    def _guard(self, listener: Listener) -> Guard:
        """Return what puts a login stage before a new connection's requests. Raises LoginSettingsError."""
        assert self._logins is not None
        served_limits = RequestLimits(self.limits.request_max_bytes, self.memory)
        logins = SaslListener(
            self._logins,
            self._config,
            listener.name,
            self.dispatcher.begin,
            served_limits,
            serve_unknown=self.dispatcher.begin_uncharged,
            turns=self._turns,
        )

        def guard(connection: Connection) -> Connection:
            SaslDoor(logins, connection)
            return connection

        return guard

    def _tls_doors(
        self, listener: Listener, guard: Guard, *, knows_clients: bool
    ) -> Callable[[], asyncio.BaseProtocol]:
        """Return the function that makes the protocol of a socket that was accepted for TLS. Raises
        StoreError. With `knows_clients` the certificate of a client gives its principal.
        """
        # Import TLS only when it is needed: most gateways speak plaintext, and should start without
        # cryptography.
        from seqgate.gateway.server.tls import TlsDoor, TlsListener  # noqa: PLC0415

        tls = self._tls_listeners[listener.name] = TlsListener(
            self.loop, self._config, listener.name, None if self._logins is None else self._logins.clock
        )
        timeout_s = self._config.int("seqgate.tls.handshake.timeout.ms") / 1000

        def door() -> TlsDoor:
            connection = Connection(self, listener.name, tls.principal if knows_clients else _unknown)
            return TlsDoor(
                self.loop, guard(connection), tls.context, timeout_s, self._turns, self.note_refused
            )

        return door

    def note_refused(self, connection: Connection, reason: str) -> None:
        """Count and audit a client whose certificate is missing, not accepted, or gives no principal."""
        if self._logins is not None:
            self._logins.note_refused_certificate(connection, reason)

    def _set_options(self, bound_socket: socket.socket) -> None:
        """Set the options that accepted sockets inherit from the listening one."""
        # Without keepalive, the gateway would not notice that the machine of a client which waits for an
        # answer is gone.
        bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            for option, value in (
                (socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
                (socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S),
                (socket.TCP_KEEPCNT, KEEPALIVE_PROBES),
            ):
                bound_socket.setsockopt(socket.IPPROTO_TCP, option, value)
        if self.limits.send_buffer_bytes > 0:
            bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.send_buffer_bytes)
        if self.limits.receive_buffer_bytes > 0:
            bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.limits.receive_buffer_bytes)

    def suit_peer(self, connected: socket.socket, peer_host: str) -> None:
        """Set the congestion control for a client on this machine, which needs none made for a network."""
        wanted = self.limits.loopback_congestion_control
        if wanted and hasattr(socket, "TCP_CONGESTION") and is_loopback(peer_host):
            # The system may lack the algorithm, or not allow this process to use it.
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, wanted.encode())

    @property
    def counts(self) -> tuple[int, int, int]:
        """The refused connections, the requests and the failed logins since the start."""
        failed_logins = 0 if self._logins is None else self._logins.failures
        return self.refused_connections, self.dispatcher.requests, failed_logins

    def __len__(self) -> int:
        return len(self._connections)

    def producer_ids(self) -> Iterator[int]:
        """Yield the producer that each connection used last; -1 where there is none."""
        return (connection.producer_id for connection in self._connections)

    def admit(self, connection: Connection) -> float | None:
        """Count a new connection; return None, or the time (s) after which to close it as one too many."""
        self._connections[connection] = None
        connection.number = next(self._numbers)
        if self._has_ended:
            return 0.0
        verdict = self._admission.admit(connection.listener_name, connection.peer_host)
        acceptor = self._acceptors.get(connection.listener_name)
        if verdict.hold_ms and acceptor is not None:
            logger.debug("listener %s accepts nothing for %d ms", connection.listener_name, verdict.hold_ms)
            acceptor.hold(verdict.hold_ms / 1000)
        if not verdict.refusal:
            logger.debug("%s has opened a connection", connection.name)
            return None
        if verdict.close_after_ms:
            self._delayed.add(connection)
        self.refused_connections += 1
        logger.warning("refused a connection of %s: %s", connection.name, verdict.refusal)
        return verdict.close_after_ms / 1000

    def dismiss(self, connection: Connection) -> None:
        logger.debug("the connection of %s has ended", connection.name)
        self._connections.pop(connection, None)
        if connection in self._delayed:
            self._delayed.remove(connection)
            self._admission.dismiss_delayed()
        else:
            self._admission.dismiss(connection.listener_name, connection.peer_host)

    def close_idle(self) -> None:
        """Close connections that sent nothing for connections.max.idle.ms; check again later. Drop closed
        ones whose client reads no last answers, and ones with a stalled request while others wait for memory.
        """
        idle_s = self.limits.idle_ms / 1000
        now_s = self.loop.time()
        self._drop_vanished()
        for connection in list(self._connections):
            if connection.active:
                connection.active = False
                connection.last_active_s = now_s
            silent_s = now_s - connection.last_active_s
            slow_s = connection.slow_s(now_s)
            if connection.is_closing:
                if silent_s > 2 * idle_s:
                    connection.abort("its last answers were not read")
            elif silent_s > idle_s and (not connection.awaits_answers or connection.waits_unread):
                connection.close(f"idle for more than {self.limits.idle_ms} ms")
            elif slow_s > idle_s:
                connection.close(f"its request is not whole after more than {self.limits.idle_ms} ms")
            elif slow_s > STALLED_S and connection.holds_memory and self.memory.is_short:
                connection.abort("its request stopped half-way and others wait for the memory")
        self._idle_timer = self.loop.call_later(max(0.05, min(idle_s / 4, STALLED_S / 2)), self.close_idle)

    def _drop_vanished(self) -> None:
        """Drop long polls whose client hung up: nothing reads these connections, so ask the kernel."""
        waiting = {
            connection.fileno(): connection for connection in self._connections if connection.waits_unread
        }
        waiting.pop(-1, None)
        for number in hung_up(waiting) if waiting else ():
            waiting[number].abort("its client is gone")

    async def stop_accepting(self) -> None:
        """Close the listeners and begin no more requests."""
        self._close_listeners()
        for connection in self._connections:
            connection.drain()

    def abort_all(self) -> None:
        """Close the listeners and all connections at once, without the answers that are due."""
        self._has_ended = True  # a connection that was accepted may begin only now
        self._close_listeners()
        if self._connections:
            logger.warning("dropping all %d connections: the gateway ends at once", len(self._connections))
        for connection in list(self._connections):
            connection.abort()

    def _close_listeners(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for acceptor in self._acceptors.values():
            acceptor.close()

    async def finish(self, timeout_s: float) -> None:
        """Wait until the requests in flight are answered, then close the connections."""
        deadline_s = self.loop.time() + timeout_s
        while any(connection.has_work for connection in self._connections):
            if self.loop.time() > deadline_s:
                logger.warning(
                    "closing connections whose requests are still unanswered after %.0f s", timeout_s
                )
                break
            await asyncio.sleep(0.005)
        for connection in list(self._connections):
            connection.hang_up()
        for acceptor in self._acceptors.values():
            await acceptor.wait_closed()


def _unguarded(connection: Connection) -> Connection:
    return connection


def _unknown(transport: asyncio.Transport) -> str:  # noqa: ARG001 - the certificate gives no principal
    return ANONYMOUS


RETRY_S: Final = 1.0
"""Time (s) after which a listener that failed to accept connections again makes the next attempt."""
MakeProtocol = Callable[[], asyncio.BaseProtocol]


class Acceptor:
    def __init__(self, loop: asyncio.AbstractEventLoop, make_protocol: MakeProtocol, backlog: int) -> None:
        self._loop = loop
        self._make_protocol = make_protocol
        self._backlog = backlog
        self._serving: list[asyncio.Server] = []
        self._former: WeakSet[asyncio.Server] = WeakSet()
        """The closed servers that still have connections."""
        self._held: list[socket.socket] = []
        """The sockets while the listener accepts no connections."""
        self._resuming: asyncio.TimerHandle | asyncio.Task[None] | None = None

    async def open(
        self, listener: Listener, inherited: Sequence[socket.socket] = ()
    ) -> Sequence[socket.socket]:
        """Begin to accept; return the listening sockets. Raises OSError when the address can't be bound."""
        if not inherited:
            host, port = listener.bound_host, listener.port
            try:
                server = await self._loop.create_server(
                    self._make_protocol, host, port, backlog=self._backlog, reuse_address=True
                )
            except OSError as error:
                # asyncio gives up where one address of a name can't be bound, such as ::1 with IPv6 off
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                inherited = bound_sockets(listener)
            else:
                self._serving.append(server)
                return server.sockets
        for each in inherited:
            server = await self._loop.create_server(self._make_protocol, sock=each, backlog=self._backlog)
            self._serving.append(server)
        return inherited

    def hold(self, seconds: float) -> None:
        """Accept no connections for this time. A pause that has begun stays as it is."""
        if not self._serving or self._held:
            return
        try:
            self._held.extend(socket.socket(fileno=number) for number in self.duplicates())
        except OSError as error:  # No file handle is left, so no connection can be accepted anyway.
            logger.warning("a listener can't hold new connections back: %s", error.strerror)
            self._close_held()
            return
        self._close_servers()
        self._resuming = self._loop.call_later(seconds, self._resume)

    def duplicates(self) -> list[int]:
        """Return new descriptors of the listening sockets. Raises OSError without a free file handle."""
        serving = [each for server in self._serving for each in server.sockets]
        found: list[int] = []
        try:
            found.extend(os.dup(each.fileno()) for each in (*self._held, *serving))
        except OSError:
            for number in found:
                os.close(number)
            raise
        return found

    @property
    def is_holding(self) -> bool:
        """Whether the listener accepts no connections for now, so that new ones wait."""
        return bool(self._held)

    def close(self) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
        self._close_servers()
        self._close_held()

    async def wait_closed(self) -> None:
        """Wait until all connections have ended, after `close`."""
        for server in list(self._former):
            await server.wait_closed()

    def _close_servers(self) -> None:
        for server in self._serving:
            server.close()
            self._former.add(server)
        self._serving.clear()

    def _close_held(self) -> None:
        for held in self._held:
            held.close()
        self._held.clear()

    def _resume(self) -> None:
        self._resuming = self._loop.create_task(self._accept_again())

    async def _accept_again(self) -> None:
        while self._held:
            try:
                server = await self._loop.create_server(
                    self._make_protocol, sock=self._held[0], backlog=self._backlog
                )
            except OSError as error:
                logger.warning("a listener can't accept connections again yet: %s", error.strerror)
                self._resuming = self._loop.call_later(RETRY_S, self._resume)
                return
            del self._held[0]
            self._serving.append(server)


MAX_CONNECTIONS: Final = "max.connections"
CREATION_RATE: Final = "max.connection.creation.rate"
_ALL: Final = ""
"""The name that stands for all listeners; no listener has an empty name."""


class AdmissionVerdict(NamedTuple):
    """The decision about a new connection, and about the connections that come after it."""

    refusal: str = ""
    """The reason why the connection is refused; empty when it is accepted."""
    close_after_ms: int = 0
    """The time after which a refused connection is closed."""
    hold_ms: int = 0
    """The time for which its listener accepts no further connection."""


class Admission:
    def __init__(
        self, config: Config, now_ms: Callable[[], int], quotas: ClientQuotas | None, handles_limit: int
    ) -> None:
        """Begin without connections. The process may open `handles_limit` files and sockets together."""
        self._config = config
        self._now_ms = now_ms
        self._quotas = quotas
        self._handles_limit = handles_limit
        self._total = 0
        self._delayed = 0
        """Refused connections that are closed later. They have file handles, and count for no other limit."""
        self._per_host: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._longest_ms = config.int("quota.window.size.seconds") * 1000
        self._windows = Windows(config.int("quota.window.num"), self._longest_ms)
        self._rates: dict[str, Rate] = {}
        """The rates of new connections, by the name of the listener."""
        between = config.optional_str(INTER_BROKER_LISTENER)
        self._protected = between.upper() if between and len(config.listeners) > 1 else None
        """The listener of the other gateways, safe from clients elsewhere (Kafka's protectedListener)."""

    def admit(self, listener_name: str, host: str) -> AdmissionVerdict:
        self._total += 1
        self._per_host[host] += 1
        self._per_listener[listener_name] += 1
        hold_ms = self._charge(listener_name)
        refusal = self._limit_complaint(listener_name, host)
        if refusal:
            return AdmissionVerdict(refusal, hold_ms=hold_ms)
        if self._quotas is not None and self._quotas.limits_connections:
            close_after_ms = self._quotas.delay_of_connection(host)
            if close_after_ms:
                self._take_back(listener_name)
                self.dismiss(listener_name, host)
                self._delayed += 1
                return AdmissionVerdict("its address is over its connection_creation_rate", close_after_ms)
        return AdmissionVerdict(hold_ms=hold_ms)

    def dismiss(self, listener_name: str, host: str) -> None:
        self._total -= 1
        for counts, key in ((self._per_host, host), (self._per_listener, listener_name)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]

    def dismiss_delayed(self) -> None:
        """Forget a refused connection that has been closed after its delay."""
        self._delayed -= 1

    def _limit_complaint(self, listener_name: str, host: str) -> str:
        config = self._config
        limit = config.int(MAX_CONNECTIONS)
        if self._total > limit and listener_name != self._protected:
            return f"{MAX_CONNECTIONS} is {limit}"
        of_listener = config.own_of_listener(listener_name, MAX_CONNECTIONS)
        if isinstance(of_listener, int) and self._per_listener[listener_name] > of_listener:
            return f"listener.name.{listener_name.lower()}.{MAX_CONNECTIONS} is {of_listener}"
        handles = split_file_handles(self._handles_limit, config.int("seqgate.log.max.open.files"))
        if self._total + self._delayed > handles.connections:
            return (
                f"the process may open {self._handles_limit} files (ulimit -n), "
                f"{handles.connections} for connections"
            )
        overrides = parse_overrides(config.str("max.connections.per.ip.overrides"))
        per_host = overrides.get(host, config.int("max.connections.per.ip"))
        if self._per_host[host] > per_host:
            return f"max.connections.per.ip is {per_host} for it"
        return ""

    # the rates of new connections

    def _charge(self, listener_name: str) -> int:
        """Count a new connection in the rates; return the time (ms) until they are within limits again."""
        hold_ms = 0
        for key, limit in self._limited_rates(listener_name):
            rate = self._rates.get(key)
            if rate is None:
                rate = self._rates[key] = Rate(self._windows)
            now_ms = self._now_ms()
            rate.record(1.0, now_ms)
            hold_ms = max(hold_ms, rate.throttle_ms(limit, now_ms))
        return min(hold_ms, self._longest_ms)

    def _take_back(self, listener_name: str) -> None:
        for key, _ in self._limited_rates(listener_name):
            self._rates[key].record(-1.0, self._now_ms())

    def _limited_rates(self, listener_name: str) -> list[tuple[str, int]]:
        of_all = self._config.int(CREATION_RATE)
        of_listener = self._config.own_of_listener(listener_name, CREATION_RATE)
        rates = [(_ALL, of_all)] if of_all < INT_MAX and listener_name != self._protected else []
        if isinstance(of_listener, int):
            rates.append((listener_name, of_listener))
        return rates


_NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""The errors for ::1: the system was built without IPv6, or IPv6 is switched off."""


def bound_sockets(listener: Listener) -> list[socket.socket]:
    """Return sockets that are bound to the addresses of the listener's host, and don't listen yet. Without
    IPv6 its addresses are left out, unless the host has no other. Raises OSError.
    """
    found = socket.getaddrinfo(
        listener.bound_host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    missing: OSError | None = None
    bound: list[socket.socket] = []
    with contextlib.ExitStack() as closing:
        for family, kind, protocol, _, address in dict.fromkeys(found):  # /etc/hosts may name a host twice
            try:
                bound.append(closing.enter_context(_bound(family, kind, protocol, address)))
            except OSError as error:
                if family != socket.AF_INET6 or error.errno not in _NO_IPV6:
                    raise
                missing = error
        if missing is not None and not bound:
            raise missing
        closing.pop_all()
    return bound


def _bound(family: int, kind: int, protocol: int, address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made
