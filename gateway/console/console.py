"""The options of `seqgate console`, and the parts that all pages of a console share."""

from __future__ import annotations

from dataclasses import dataclass, field

from seqgate.gateway.admin.remote.client_security import OPEN, ClientSecurity
from seqgate.gateway.console.asking.connections import Connections, WayIn
from seqgate.gateway.console.contents.schemas import Schemas
from seqgate.gateway.console.metrics.listener import MetricsClient
from seqgate.gateway.console.metrics.rates import Sampler
from seqgate.gateway.console.security.sessions import FormTokens, LoginLimit, Notices, Sessions


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """The options of a console.

    `security` is how the console connects; the sampler uses its login, and visitors log in themselves.
    `public_names` are further host names for browsers, such as that of a proxy.
    """

    bootstrap: tuple[tuple[str, int], ...]
    listen: tuple[str, int] = ("127.0.0.1", 8080)
    security: ClientSecurity = OPEN
    metrics_url: str | None = None
    public_names: frozenset[str] = field(default_factory=frozenset)
    is_insecure: bool = False
    certificate: str | None = None
    certificate_key: str | None = None


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
