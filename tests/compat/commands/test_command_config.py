"""Commands with `--command-config`, against listeners with TLS and logins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from seqgate.gateway.cli import app
from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess, free_port
from tests.system.commands.conftest import Outcome, seqgate


@dataclass(frozen=True)
class Secured:
    """A listener with TLS that requires certificates, and the client properties with which a command connects
    to it.
    """

    bootstrap: str
    properties: Path
    data_dir: Path

    def run(
        self, *arguments: str, code: int = 0, stdin: bytes | None = None, properties: Path | None = None
    ) -> Outcome:
        config = ("--command-config", str(properties or self.properties))
        return seqgate(*arguments, "--bootstrap", self.bootstrap, *config, code=code, stdin=stdin)

    def with_lines(self, name: str, *changes: str) -> Path:
        """Write other client properties: those of this listener, then the changes."""
        file = self.properties.with_name(name)
        file.write_text(self.properties.read_text() + "\n".join(changes) + "\n")
        return file


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority()
    authorities = authority.write(folder / "ca.pem")
    port = free_port()
    settings = {
        "ssl.keystore.location": str(authority.listener().write_pem(folder / "listener.pem")),
        "ssl.truststore.location": str(authorities),
        "ssl.client.auth": "required",
        "advertised.listeners": f"SSL://localhost:{port}",
    }
    properties = folder / "client.properties"
    store = authority.client("operator").write_pkcs12(folder / "operator.p12", "changeit")
    properties.write_text(
        f"# an operator\nsecurity.protocol=SSL\nssl.truststore.location={authorities}\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location={store}\nssl.keystore.type=PKCS12\nssl.keystore.password=changeit\nclient.id=x\n"
    )
    data = folder / "data"
    with GatewayProcess(data, settings=settings, also_listen=[f"SSL://127.0.0.1:{port}"]):
        yield Secured(f"localhost:{port}", properties, data)


def commands_with_bootstrap() -> Iterator[tuple[str, set[str]]]:
    """Yield each command that takes `--bootstrap`, with its options."""

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, set[str]]]:
        if isinstance(command, TyperGroup):
            for name, below in command.commands.items():
                yield from walk(below, (*path, name))
            return
        options = {option for parameter in command.params for option in parameter.opts}
        if "--bootstrap" in options:
            yield " ".join(path), options

    return walk(get_command(app), ())


def test_every_command_with_bootstrap_takes_it() -> None:
    found = dict(commands_with_bootstrap())
    assert len(found) > 10
    assert [name for name, options in found.items() if "--command-config" not in options] == []


def test_records_and_topics_over_tls(secured: Secured) -> None:
    assert "created" in secured.run("topics", "create", "orders", "--partitions", "2").stdout
    assert secured.run("topics", "list", "--json").document["topics"][0]["topic"] == "orders"
    secured.run("produce", "orders", stdin=b"one\ntwo\n")
    assert sorted(secured.run("consume", "orders").stdout.split()) == ["one", "two"]
    secured.run("configs", "set", "topic", "orders", "retention.ms=86400000")
    assert "86400000" in secured.run("configs", "get", "topic", "orders").stdout
    secured.run("configs", "set", "broker", "default", "log.retention.ms=86400000")
    assert "log.retention.ms" in secured.run("configs", "get", "broker", "default").stdout
    assert secured.run("producers").code == 0
    assert secured.run("topics", "delete", "orders", "--yes").code == 0


def test_groups_transactions_and_status_over_tls(secured: Secured) -> None:
    secured.run("topics", "create", "letters")
    secured.run("produce", "letters", stdin=b"a\nb\n")
    secured.run("groups", "reset", "readers", "--topic", "letters", "--to-latest", "--execute")
    assert "readers" in secured.run("groups", "list").stdout
    assert "letters" in secured.run("groups", "describe", "readers").stdout
    assert secured.run("transactions", "list").code == 0
    assert secured.run("status").code == 0
    secured.run("groups", "delete", "readers", "--dry-run")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("ssl.keystore.location=", "ssl.keystore.password="), "certificate"),
        (("ssl.truststore.location=", "ssl.truststore.type="), "self-signed certificate"),
        # a slow machine gives up before it knows that the protocol is another
        (("security.protocol=PLAINTEXT",), "does not answer"),
        (("security.protocol=SASL_SSL",), "sasl.mechanism must be one of"),
        (("security.protocol=KERBEROS",), "security.protocol must be one of"),
    ],
)
def test_what_does_not_fit_is_told_in_one_sentence(
    secured: Secured, changes: tuple[str, ...], words: str
) -> None:
    said = secured.run("topics", "list", code=1, properties=secured.with_lines("other.properties", *changes))
    assert words in said.stderr
    sentences = [line for line in said.stderr.splitlines() if not line.endswith("; still trying")]
    assert len(sentences) == 1
    assert "changeit" not in said.stderr


def test_without_properties_the_sentence_names_the_option(secured: Secured) -> None:
    said = seqgate("topics", "list", "--bootstrap", secured.bootstrap, code=1).stderr
    assert "--command-config" in said


def test_the_control_socket_takes_no_properties(secured: Secured) -> None:
    for command in (("groups", "list"), ("status",)):
        words = (*command, "--data-dir", str(secured.data_dir), "--command-config", str(secured.properties))
        assert "needs --bootstrap" in seqgate(*words, code=2).stderr
