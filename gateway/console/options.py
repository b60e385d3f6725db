"""The options of `seqgate console`."""

from __future__ import annotations

from dataclasses import dataclass, field

from seqgate.gateway.admin.remote.client_security import OPEN, ClientSecurity


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """The options of a console.

    `security` says how to connect to the cluster. When it has a login, the sampler uses the login; visitors
    log in themselves. `public_names` are further host names under which browsers may reach the console, such
    as the name of a proxy.
    """

    bootstrap: tuple[tuple[str, int], ...]
    listen: tuple[str, int] = ("127.0.0.1", 8080)
    security: ClientSecurity = OPEN
    metrics_url: str | None = None
    public_names: frozenset[str] = field(default_factory=frozenset)
    is_insecure: bool = False
    certificate: str | None = None
    certificate_key: str | None = None
