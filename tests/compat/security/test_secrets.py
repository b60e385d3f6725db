"""A distinctive secret in every sensitive setting appears nowhere: not in log lines, answers, messages or
files.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from seqgate.gateway.config import SETTINGS, ConfigError, load_config
from tests.support.gateway_process import REPOSITORY, GatewayProcess, free_port
from tests.system.commands.conftest import seqgate, seqgate_process

SECRET = "Qz7-planted-secret"
MISTYPED = "Qz8-mistyped-secret"
SENSITIVE = [setting for setting in SETTINGS if setting.sensitive]
TIMEOUT_S = 120.0


def planted(name: str) -> str | None:
    """Return a value with the secret that the setting accepts; None if there is none."""
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}" user_u="{SECRET}";'
    for value in (f"redis://:{SECRET}@127.0.0.1:1/0" if "url" in name else SECRET, jaas):
        with contextlib.suppress(ConfigError):
            load_config(overrides=[f"{name}={value}"])
            return value
    return None


@pytest.fixture(scope="module", params=["text", "json"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway with the secret in every sensitive setting, and for one listener too, which logs everything."""
    values = {setting.name: planted(setting.name) for setting in SENSITIVE}
    settings = {name: value for name, value in values.items() if value is not None}
    assert len(settings) >= len(SENSITIVE) - 2
    for setting in SENSITIVE:
        if setting.per_listener and setting.name in settings:
            settings[f"listener.name.plaintext1.{setting.name}"] = settings[setting.name]
    settings["listener.name.plaintext1.plain.sasl.jaas.config"] = (
        f'PlainLoginModule required user_u="{SECRET}";'
    )
    settings |= {
        "seqgate.logging.level": "DEBUG",
        "seqgate.logging.format": request.param,
        "seqgate.producer.id.store": "redis",
    }
    folder = tmp_path_factory.mktemp("secrets")
    with GatewayProcess(
        folder / "data", settings=settings, also_listen=[f"PLAINTEXT1://127.0.0.1:{free_port()}"]
    ) as started:
        yield started


def no_secret(*texts: str) -> None:
    for text in texts:
        assert SECRET not in text


def described(admin: AdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    (answer,) = admin.describe_configs([resource]).values()
    found: dict[str, ConfigEntry] = answer.result(TIMEOUT_S)
    return found


def test_describe_configs_hides_them(gateway: GatewayProcess) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    entries = described(admin, ConfigResource(ResourceType.BROKER, "1"))
    for setting in SENSITIVE:
        entry = entries[setting.name]
        assert (entry.value, entry.is_sensitive) == (None, True), setting.name
        assert [synonym.value for synonym in entry.synonyms.values()] in ([], [None], [None, None])
    no_secret(*(str(entry.value) for entry in entries.values()))


def test_a_refused_alteration_hides_them(gateway: GatewayProcess) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    for setting in SENSITIVE:
        for name in (setting.name, f"listener.name.plaintext.{setting.name}"):
            wanted = ConfigEntry(
                name,
                f"{SECRET},,\0",
                ConfigSource.DYNAMIC_BROKER_CONFIG,
                incremental_operation=AlterConfigOpType.SET,
            )
            resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[wanted])
            (answer,) = admin.incremental_alter_configs([resource]).values()
            with pytest.raises(KafkaException) as refused:
                answer.result(TIMEOUT_S)
            no_secret(str(refused.value))
        said = seqgate(
            "configs",
            "set",
            "broker",
            "1",
            f"{setting.name}={SECRET}",
            "--bootstrap",
            gateway.bootstrap,
            code=1,
        )
        no_secret(said.stderr, said.stdout)


def test_a_mistyped_name_hides_its_value(gateway: GatewayProcess) -> None:
    """As in Kafka, a broker keeps names that it does not know. No client and no log line tells their values."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    name = "ssl.keystore.password.typo"
    wanted = ConfigEntry(
        name, MISTYPED, ConfigSource.DYNAMIC_BROKER_CONFIG, incremental_operation=AlterConfigOpType.SET
    )
    altered = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.BROKER, "1", incremental_configs=[wanted])]
    )
    for answer in altered.values():
        answer.result(TIMEOUT_S)
    (described,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    entry = described.result(TIMEOUT_S)[name]
    assert entry.is_sensitive
    assert entry.value is None
    lines = gateway.stderr_text()
    assert name in lines
    assert MISTYPED not in lines


def test_commands_hide_them(gateway: GatewayProcess) -> None:
    data = ("--data-dir", str(gateway.data_dir))
    cluster = ("--bootstrap", gateway.bootstrap)
    for words in (
        ("status", *data),
        ("status", "--json", *data),
        ("status", "--json", *cluster),
        ("pids", "list", *data),
        ("tasks", *data),
        ("configs", "get", "broker", "1", *cluster),
        ("configs", "get", "broker", "1", "--json", *cluster),
        ("configs", "get", "broker", "default", "--json", *cluster),
    ):
        said = seqgate(*words, code=None)
        no_secret(said.stdout, said.stderr)


def test_what_the_gateway_prints_and_stores_hides_them(gateway: GatewayProcess) -> None:
    assert gateway.ready_line
    lines = gateway.stderr_text()
    assert lines
    assert "redis" in lines.lower()
    no_secret(lines, gateway.ready_line)
    for path in gateway.data_dir.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
def test_a_failed_start_hides_them(tmp_path: Path, protocol: str) -> None:
    command = [sys.executable, "-m", "seqgate", "serve", "--data-dir", str(tmp_path / "data")]
    command += ["--set", f"listeners={protocol}://127.0.0.1:{free_port()}"]
    for setting in SENSITIVE:
        if "url" not in setting.name:
            command += ["--set", f"{setting.name}={SECRET}"]
    if protocol == "PLAINTEXT":
        command += ["--set", f"ssl.key.password:{SECRET}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    no_secret(done.stdout, done.stderr)


def test_help_hides_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in SENSITIVE:
        monkeypatch.setenv(setting.environment_name, SECRET)
    for words in (("--help",), ("serve", "--help"), ("topics", "list", "--help")):
        said = seqgate_process(*words)
        no_secret(said.stdout, said.stderr)


def test_client_properties_are_hidden(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    for line in (
        f'sasl.jaas.config=PlainLoginModule required password="{SECRET}"',
        f"sasl.jaas.config={SECRET}",
        f"sasl.password={SECRET}",
        f"ssl.keystore.password={SECRET}\nssl.keystore.location={file}",
        f"ssl.keystore.key={SECRET}\nssl.keystore.certificate.chain={SECRET}",
        f"ssl.truststore.certificates={SECRET}",
    ):
        file.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n{line}\n")
        said = seqgate("topics", "list", "--bootstrap", "127.0.0.1:1", "--command-config", file, code=1)
        no_secret(said.stderr, said.stdout)
