"""Commands that log in with `--command-config`: PLAIN and SCRAM, over TLS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess, free_port
from tests.system.commands.conftest import Outcome, seqgate

PASSWORD = 'pa"ss\\w=o,rd'
USER = "al=i,ce"


@dataclass(frozen=True)
class LogIns:
    """A listener with TLS and logins."""

    gateway: GatewayProcess
    bootstrap: str
    folder: Path

    def run(
        self,
        mechanism: str,
        *arguments: str,
        password: str = PASSWORD,
        code: int = 0,
        stdin: bytes | None = None,
    ) -> Outcome:
        module = "Plain" if mechanism == "PLAIN" else "Scram"
        quoted = password.replace("\\", "\\\\").replace('"', '\\"')
        line = f'{module}LoginModule required username="{USER}" password="{quoted}";'
        file = self.folder / "client.properties"
        # a backslash of a properties file is written twice
        file.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nssl.truststore.location={self.folder / 'ca.pem'}\n"
            "sasl.jaas.config=" + line.replace("\\", "\\\\") + "\n"
        )
        return seqgate(
            *arguments, "--bootstrap", self.bootstrap, "--command-config", file, code=code, stdin=stdin
        )


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogIns]:
    folder = tmp_path_factory.mktemp("logins")
    authority = Authority()
    authority.write(folder / "ca.pem")
    port = free_port()
    users = folder / "users"
    users.write_text(f"{USER}:{PASSWORD}\n")
    users.chmod(0o600)
    settings = {
        "ssl.keystore.location": str(authority.listener().write_pem(folder / "own.pem")),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.seqgate.sasl.plain.users.file": str(users),
        "connection.failed.authentication.delay.ms": "1",
        "advertised.listeners": f"SASL_SSL://localhost:{port}",
    }
    with GatewayProcess(
        folder / "data", settings=settings, also_listen=[f"SASL_SSL://127.0.0.1:{port}"]
    ) as gateway:
        seqgate(
            *("users", "add", USER, "--password-file", "-", "--bootstrap", gateway.bootstrap),
            stdin=f"{PASSWORD}\n".encode(),
        )
        yield LogIns(gateway, f"localhost:{port}", folder)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_command_logs_in(logins: LogIns, mechanism: str) -> None:
    topic = f"by-{mechanism.lower()}"
    logins.run(mechanism, "topics", "create", topic)
    logins.run(mechanism, "produce", topic, stdin=b"one\n")
    assert logins.run(mechanism, "consume", topic).stdout == "one\n"
    logins.run(mechanism, "configs", "set", "broker", "default", "log.retention.ms=86400000")
    assert "log.retention.ms" in logins.run(mechanism, "configs", "get", "broker", "default").stdout
    assert logins.run(mechanism, "status").code == 0
    logins.run(mechanism, "groups", "reset", "g", "--topic", topic, "--to-latest", "--execute")
    assert topic in logins.run(mechanism, "groups", "describe", "g").stdout
    assert f"by User:{USER} at" in logins.gateway.stderr_text()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_told_in_one_sentence(logins: LogIns, mechanism: str) -> None:
    said = logins.run(mechanism, "topics", "list", password="w7-wrong", code=1).stderr
    assert f"refuses the login of {USER}" in said
    assert said.count("\n") == 1
    assert "w7-wrong" not in said + logins.gateway.stderr_text()


def test_a_mechanism_that_the_listener_lacks_is_told(tmp_path: Path) -> None:
    port = free_port()
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": 'PlainLoginModule required user_u="x";',
    }
    listener = f"SASL_PLAINTEXT://127.0.0.1:{port}"
    with GatewayProcess(tmp_path / "data", settings=settings, also_listen=[listener]) as gateway:
        file = tmp_path / "client.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=u\nsasl.password=x\n"
        )
        at = ("--bootstrap", f"127.0.0.1:{port}", "--command-config", file)
        said = seqgate("topics", "list", *at, code=1).stderr
        assert "does not let clients log in with SCRAM-SHA-256, but with PLAIN" in said
        elsewhere = seqgate(
            "topics", "list", "--bootstrap", gateway.bootstrap, "--command-config", file, code=1
        )
        assert "change security.protocol" in elsewhere.stderr
        file.write_text(file.read_text().replace("SCRAM-SHA-256", "PLAIN"))
        assert seqgate("topics", "list", *at).code == 0
