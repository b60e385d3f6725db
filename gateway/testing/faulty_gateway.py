"""A gateway with all that lets it fail: faults before its dispatcher, a machine and a loop whose clocks move."""

from __future__ import annotations

from gateway.config import Config
from gateway.gateway import Gateway
from gateway.server.dispatcher import Dispatcher, Requests
from gateway.testing.broken_parts import BrokenParts
from gateway.testing.clock import ShiftedLoop, ShiftedMachine
from gateway.testing.faults import Faults, Run
from gateway.testing.faulty_requests import FaultyRequests
from gateway.testing.inside import Inside


class FaultyGateway:
    """One gateway after the other. Faults and the clock stay when another one is created."""

    def __init__(self, run: Run) -> None:
        """`run` runs coroutines in the event loop of the gateway, for the faults of a thread beside it."""
        self.machine = ShiftedMachine()
        self.inside = Inside(lambda: self.gateway)
        self.parts = BrokenParts(lambda: self.gateway, self.machine.disk)
        self.faults = Faults(self.parts, run)
        self.gateway: Gateway
        self._requests: FaultyRequests | None = None

    def new_loop(self) -> ShiftedLoop:
        """Return an event loop for the next gateway."""
        loop = ShiftedLoop()
        loop.ahead_s = self.machine.ahead_s
        return loop

    def create(self, config: Config) -> Gateway:
        """Return a gateway that is not started. It is `gateway` from now on."""
        self.gateway = Gateway(config, self.machine, before=self._before)
        return self.gateway

    def let_go(self) -> None:
        """Close the connections whose answers are held back, so that a stop does not wait for them."""
        if self._requests is not None:
            self._requests.let_go()

    def _before(self, dispatcher: Dispatcher) -> Requests:
        self._requests = FaultyRequests(dispatcher, self.faults, self.inside)
        return self._requests
