"""The options of `seqgate console`, and the parts that all pages of a console share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from seqgate.gateway.admin.remote.client_security import OPEN, ClientSecurity
from seqgate.gateway.console.asking.connections import ClusterLogin, Connections
from seqgate.gateway.console.contents import Schemas
from seqgate.gateway.console.metrics.listener import MetricsClient
from seqgate.gateway.console.metrics.sampler import Sampler
from seqgate.gateway.console.sessions import FormTokens, LoginLimit, Notices, Sessions


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """The options of a console.

    `security` is how the console connects; the sampler uses its login, and visitors log in themselves.
    `public_names` are further host names for browsers, such as that of a proxy. `history` is the file that
    keeps the samples over restarts. `p99_limit_ms` is the produce time that the Overview warns about.
    """

    bootstrap: tuple[tuple[str, int], ...]
    listen: tuple[str, int] = ("127.0.0.1", 8080)
    security: ClientSecurity = OPEN
    metrics_urls: tuple[str, ...] = ()
    public_names: frozenset[str] = field(default_factory=frozenset)
    is_insecure: bool = False
    certificate: str | None = None
    certificate_key: str | None = None
    history: Path | None = None
    p99_limit_ms: int = 1_000


class Console:
    """A running console."""

    def __init__(self, options: ConsoleOptions) -> None:
        """Compose a console. Nothing connects yet. Raises ValueError for a wrong --metrics."""
        self.options = options
        self.connections = Connections(options.bootstrap)
        self.cluster_login = ClusterLogin(options.bootstrap, options.security, self.connections.pool)
        self.listeners = [MetricsClient(url) for url in options.metrics_urls]
        self.listener = next(iter(self.listeners), None)
        """The listener that tells the pages about its gateway; None without --metrics."""
        self.sampler = Sampler(
            self.listeners, self.connections, self.cluster_login, options.security, options.history
        )
        self.sessions = Sessions()
        self.tokens = FormTokens()
        self.notices = Notices()
        self.login_limit = LoginLimit()
        self.schemas = Schemas()

    def close(self) -> None:
        self.sampler.stop()
        self.connections.close()
