"""The parts that all pages of a console share."""

from __future__ import annotations

from dataclasses import dataclass

from seqgate.gateway.console.asking.connections import Connections, WayIn
from seqgate.gateway.console.contents.schemas import Schemas
from seqgate.gateway.console.metrics.listener import MetricsClient
from seqgate.gateway.console.metrics.rates import Sampler
from seqgate.gateway.console.options import ConsoleOptions
from seqgate.gateway.console.security.sessions import FormTokens, LoginLimit, Notices, Sessions


@dataclass(frozen=True, slots=True)
class Console:
    """A running console. `listener` is None without --metrics."""

    options: ConsoleOptions
    way_in: WayIn
    connections: Connections
    listener: MetricsClient | None
    sampler: Sampler
    sessions: Sessions
    tokens: FormTokens
    notices: Notices
    login_limit: LoginLimit
    schemas: Schemas

    @classmethod
    def of(cls, options: ConsoleOptions) -> Console:
        """Compose a console. Nothing connects yet. Raises ValueError for a wrong --metrics."""
        connections = Connections(options.bootstrap)
        listener = None if options.metrics_url is None else MetricsClient(options.metrics_url)
        way_in = WayIn(options.bootstrap, options.security)
        return cls(
            options=options,
            way_in=way_in,
            connections=connections,
            listener=listener,
            sampler=Sampler(listener, connections, way_in, options.security),
            sessions=Sessions(),
            tokens=FormTokens(),
            notices=Notices(),
            login_limit=LoginLimit(),
            schemas=Schemas(),
        )

    def close(self) -> None:
        """Stop sampling and close the connections."""
        self.sampler.stop()
        self.connections.close()
