"""A virtual network: connections with latency, whose bytes arrive in random portions, and which faults cut,
delay and lose.

Bytes within one connection keep their order. Bytes of different connections have none.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from tests.simulation.loop import SimulatedLoop
from tests.simulation.pairs import Pairs
from tests.simulation.process import Process, process_of

WINDOW_BYTES = 64 << 10
"""The most bytes in flight or unread per connection; further bytes wait at the sender."""
LEAST_ROOM_BYTES = WINDOW_BYTES // 4
LATENCY_S = (0.0001, 0.002)
SLOW_LATENCY_S = 0.5
STUCK, STUCK_LATENCY_S = 0.1, 5.0
SLOW = 0.005
"""The share of portions that are slow."""
LEAST_PORT = 9092


class _Socket:
    """A stand-in for the socket that asyncio expects of a listener."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def setsockopt(self, *_: Any) -> None:
        """Ignore the option."""


class Listener:
    """A process that accepts connections at an address."""

    def __init__(
        self, network: Network, process: Process, factory: Callable[[], Any], address: tuple[str, int]
    ) -> None:
        self.process = process
        self.factory = factory
        self.sockets = [_Socket(address)]
        self._network = network
        self._address = address

    def close(self) -> None:
        if self._network.listeners.get(self._address) is self:
            del self._network.listeners[self._address]

    async def wait_closed(self) -> None:
        """Return at once."""


class End(asyncio.Transport):
    """One end of a connection."""

    peer: End

    def __init__(self, network: Network, process: Process, protocol: Any, names: dict[str, Any]) -> None:
        super().__init__(names)
        self.network = network
        self.process = process
        self.protocol = protocol
        self.is_over = False
        """Whether this end neither sends nor receives any more."""
        self._closing = False
        self._outgoing = bytearray()
        self._on_the_way = 0
        self._arrived: deque[bytes] = deque()
        self._paused = False
        self._low, self._high = 16 << 10, 64 << 10
        self._writing_paused = False
        self._last_delivery_s = 0.0
        self._line: deque[tuple[Callable[..., None], object]] = deque()
        """The bytes and events in flight, in order."""
        self._due = 0
        """The number of bytes that have arrived but are not delivered yet."""

    def begin(self, protocol: Any) -> None:
        """Give the connection to the process that listens."""
        self.protocol = protocol
        protocol.connection_made(self)

    # --- the interface of asyncio

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self.network.loop.call_soon(self._read, context=self.process.context())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = (64 << 10) if high is None else high
        self._low = self._high // 4 if low is None else low
        self._watch_buffer()

    def get_write_buffer_size(self) -> int:
        return len(self._outgoing)

    def write(self, data: Any) -> None:
        if self.is_over or self._closing or not self.process.alive:
            return
        self._outgoing += data
        self._transmit()
        self._watch_buffer()

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if not self._closing and not self.is_over:
            self._closing = True
            self._transmit()

    def abort(self) -> None:
        if not self.is_over:
            self._closing = True
            self.network.loop.call_soon(self._lost, None, context=self.process.context())
            self._hang_up(ConnectionResetError("the other end aborted"))

    # --- bytes in flight

    def _watch_buffer(self) -> None:
        size = len(self._outgoing)
        if not self._writing_paused and size > self._high:
            self._writing_paused = True
            self.protocol.pause_writing()
        elif self._writing_paused and size <= self._low:
            self._writing_paused = False
            # after `write` has returned, as in real transports
            self.network.loop.call_soon(self._resume_writing, context=self.process.context())

    def _resume_writing(self) -> None:
        if not self.is_over:
            self.protocol.resume_writing()

    def _transmit(self) -> None:
        # as in TCP: send no single bytes into a window that is nearly full
        while (room := WINDOW_BYTES - self._on_the_way) >= min(len(self._outgoing), LEAST_ROOM_BYTES) > 0:
            size = self.network.portion_bytes(min(len(self._outgoing), room))
            portion = bytes(self._outgoing[:size])
            del self._outgoing[:size]
            self._on_the_way += size
            self._send(self.peer._deliver, portion)
        if self._closing and not self._outgoing and not self.is_over:
            self._lost(None)
            self._send(self.peer._other_end_closed, None)

    def _hang_up(self, error: Exception | None) -> None:
        self._send(self.peer._other_end_closed, error)

    def _send(self, callback: Callable[..., None], argument: object) -> None:
        """Send an event to the other process, in order, after some time."""
        self._line.append((callback, argument))
        loop = self.network.loop
        latency_s = self.network.latency_between_s(self.process, self.peer.process)
        at_s = max(self._last_delivery_s, loop.now_s + latency_s)
        self._last_delivery_s = at_s + 1e-6
        loop.call_at_loop_s(at_s, self._arrive, context=self.peer.process.context())

    def _arrive(self) -> None:
        self._due += 1
        self.arrive_due()

    def arrive_due(self) -> None:
        """Deliver the bytes that are due, unless the network delays them."""
        while self._due and not self.network.holds_up(self.process, self.peer.process):
            self._due -= 1
            callback, argument = self._line.popleft()
            callback(argument)

    def _deliver(self, portion: bytes) -> None:
        if self.is_over or self._closing:
            return
        self._arrived.append(portion)
        self._read()

    def _read(self) -> None:
        while self._arrived and not self._paused and not self.is_over and not self._closing:
            portion = self._arrived.popleft()
            self.peer._taken(len(portion))
            self.network.bytes_delivered += len(portion)
            self._give(portion)

    def _give(self, portion: bytes) -> None:
        protocol = self.protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(portion)
            return
        position = 0
        while position < len(portion) and not self.is_over:
            buffer = protocol.get_buffer(-1)
            size = min(len(buffer), len(portion) - position)
            buffer[:size] = portion[position : position + size]
            position += size
            protocol.buffer_updated(size)
            if self._paused and position < len(portion):
                self._arrived.appendleft(portion[position:])
                self.peer._on_the_way += len(portion) - position
                return

    def _taken(self, size: int) -> None:
        self._on_the_way -= size
        if not self.is_over and self.process.alive:
            self.network.loop.call_soon(self._go_on, context=self.process.context())

    def _go_on(self) -> None:
        if not self.is_over:
            self._transmit()
            self._watch_buffer()

    # --- the end of a connection

    def _other_end_closed(self, error: Exception | None) -> None:
        self._read()
        self._lost(error)

    def _lost(self, error: Exception | None) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._closing = True
        self._outgoing.clear()
        self._arrived.clear()
        self.network.ends.pop(self, None)
        if error is None and hasattr(self.protocol, "eof_received"):
            self.protocol.eof_received()
        self.protocol.connection_lost(error)

    def cut(self) -> None:
        """Break the connection: bytes in flight are lost, and each end learns of it later."""
        for end in (self, self.peer):
            if not end._closing:
                end._closing = True
                self.network.loop.call_later(
                    self.network.latency_s(),
                    end._lost,
                    ConnectionResetError("the connection broke"),
                    context=end.process.context(),
                )

    def vanish(self, *, polite: bool) -> None:
        """End the connections of a process that died.

        If the kernel lives (`polite`), bytes already sent arrive, and then the end.
        """
        self.is_over = True
        self.network.ends.pop(self, None)
        loop, peer = self.network.loop, self.peer
        if polite and self.network.chance.random() < 0.5:
            self._send(peer._other_end_closed, ConnectionResetError("the other end died"))
            return
        peer._closing = peer._closing or not polite
        wait_s = self.network.latency_s() if polite else self.network.chance.uniform(0.0, 3.0)
        loop.call_later(
            wait_s, peer._lost, ConnectionResetError("the other end died"), context=peer.process.context()
        )


class Network:
    """All connections. `chance` decides about latency and portions."""

    def __init__(self, loop: SimulatedLoop, chance: Random) -> None:
        self.loop = loop
        self.chance = chance
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.ends: dict[End, None] = {}
        self.one_byte_portions = 0.0
        """The share of writes that arrive byte by byte."""
        self.slow = SLOW
        self.faults: Counter[str] = Counter()
        self.bytes_delivered = 0
        self.pairs = Pairs()
        self._ports = count(40_000)
        loop.network = self

    def latency_between_s(self, one: Process, other: Process) -> float:
        """Return the time that bytes take from one process to the other."""
        most_s = self.pairs.most_latency_s(one.name, other.name)
        return self.latency_s() + (self.chance.uniform(0, most_s) if most_s else 0.0)

    def latency_s(self) -> float:
        if self.chance.random() < self.slow:
            # longer than some clients wait, so that a retry over another connection may overtake the first
            # attempt
            stuck = self.chance.random() < STUCK
            return self.chance.uniform(0, STUCK_LATENCY_S if stuck else SLOW_LATENCY_S)
        return self.chance.uniform(*LATENCY_S)

    def portion_bytes(self, most: int) -> int:
        """Return how many bytes arrive at once."""
        roll = self.chance.random()
        if roll < self.one_byte_portions:
            return min(most, self.chance.choice((1, 1, 2, 3, 5)))
        return most if roll < 0.8 else self.chance.randint(1, most)

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> Listener:
        address = (host, port or LEAST_PORT + len(self.listeners))
        if address in self.listeners and self.listeners[address].process.alive:
            raise OSError(98, "Address already in use")
        listener = Listener(self, process_of(), factory, address)
        self.listeners[address] = listener
        return listener

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[End, Any]:
        """Open a connection. Raises ConnectionRefusedError if no process listens, TimeoutError if no packet
        arrives.
        """
        await asyncio.sleep(self.latency_s())
        listener = self.listeners.get((host, port))
        if listener is None or not listener.process.alive:
            raise ConnectionRefusedError(f"no process listens at {host}:{port}")
        here = process_of()
        if self.holds_up(here, listener.process) or self.holds_up(listener.process, here):
            await asyncio.sleep(1.0)
            raise TimeoutError("connection timed out")
        address = ("127.0.0.1", next(self._ports))
        near = End(self, here, factory(), {"peername": (host, port), "sockname": address})
        far_context = listener.process.context()
        far = End(self, listener.process, None, {"peername": address, "sockname": (host, port)})
        near.peer, far.peer = far, near
        self.ends[near] = self.ends[far] = None
        if listener.process.is_paused:
            # the kernel accepts, and the process learns of it when it goes on
            listener.process.deferred.append(lambda: far.begin(listener.factory()))
        else:
            far_context.run(lambda: far.begin(listener.factory()))
        near.protocol.connection_made(near)
        return near, near.protocol

    # --- faults

    def lead_away(self, process: Process, keeps: Callable[[str], bool]) -> None:
        """Free the addresses of a process that goes on, and cut its connections, except those of the clients
        that `keeps` names.
        """
        for address, listener in list(self.listeners.items()):
            if listener.process is process:
                del self.listeners[address]
        for end in list(self.ends):
            if end.process is process and not keeps(end.peer.process.name):
                end.cut()

    def holds_up(self, one: Process, other: Process) -> bool:
        """Return whether bytes from one process to the other wait."""
        return self.pairs.holds_up(one.name, other.name)

    def part(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Separate two processes until `heal`: bytes are delayed, not lost. With `one_way` only those from
        the first to the second.
        """
        self.faults["partition"] += 1
        self.pairs.part(one, other, one_way=one_way)

    def heal(self) -> None:
        self.pairs.rejoin_all()
        self._deliver_due()

    def rejoin(self, one: str, other: str) -> None:
        """End what `part` began for two processes."""
        self.pairs.rejoin(one, other)
        self._deliver_due()

    def _deliver_due(self) -> None:
        for end in list(self.ends):
            self.loop.call_later(self.latency_s(), end.arrive_due, context=end.peer.process.context())

    def cut_some(self, share: float) -> None:
        """Break the given share of all connections."""
        for end in list(self.ends):
            if end in self.ends and self.chance.random() < share / 2 and not end.is_over:
                self.faults["connection cut"] += 1
                end.cut()

    def process_died(self, process: Process, *, polite: bool) -> None:
        """End the connections of a dead process.

        With `polite` only the process died, and the kernel informs its peers.
        """
        for end in list(self.ends):
            if end.process is process and not end.is_over:
                end.vanish(polite=polite)
