"""A gateway with logins and an authorizer: `ann` may do everything, `bob` nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.gateway_process import GatewayProcess, free_port
from tests.system.commands.conftest import seqgate

PASSWORD = "correct horse"


@dataclass(frozen=True)
class Guarded:
    """The gateway, the address of its listener with logins, and its audit log."""

    process: GatewayProcess
    login: str
    audit_file: Path

    def audited(self) -> list[dict[str, Any]]:
        """Return the lines of the audit log."""
        return [json.loads(line) for line in self.audit_file.read_text(encoding="utf-8").splitlines()]


def seqgate_apart(*arguments: str | Path, stdin: bytes | None = None) -> None:
    """Run a command in a thread of its own, because the thread of a test with a browser has an event loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(partial(seqgate, *arguments, stdin=stdin)).result()


@contextmanager
def guarded_gateway(folder: Path, **settings: str) -> Iterator[Guarded]:
    """Yield such a gateway; the listener without logins is for the test itself."""
    for user in ("ann", "bob"):
        seqgate_apart(
            "users",
            "add",
            user,
            "--password-file",
            "-",
            "--data-dir",
            folder / "data",
            stdin=PASSWORD.encode(),
        )
    port = free_port()
    given = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ann;User:ANONYMOUS",
        "seqgate.audit.file": str(folder / "audit.log"),
        **settings,
    }
    with GatewayProcess(
        folder / "data", settings=given, also_listen=(f"LOGIN://127.0.0.1:{port}",)
    ) as process:
        yield Guarded(process, f"127.0.0.1:{port}", folder / "audit.log")
