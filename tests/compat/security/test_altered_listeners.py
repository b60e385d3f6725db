"""The key store of a running listener, altered by Kafka's tool and by librdkafka; and the same alterations of
Apache Kafka and of Seqgate.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.kafka_peer import KafkaPeer
from tests.support.kafka_tools import run_tool
from tests.support.wire import Wire

TIMEOUT_S = 60.0
SETTLED_S = 120.0
BROKER, NODE = 4, "1"
SET, DELETE = 0, 1
PREFIX = "listener.name.ssl."
LOCATION = f"{PREFIX}ssl.keystore.location"


@dataclass(frozen=True)
class Endpoint:
    """A broker with a listener SSL, and the files of its first stores."""

    bootstrap: str
    port: int
    folder: Path
    authority: Authority

    def serial(self) -> str:
        """Return the serial number of the certificate that a new connection gets."""
        context = ssl.create_default_context(cadata=self.authority.pem)
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as connected,
            context.wrap_socket(connected, server_hostname="localhost") as client,
        ):
            shown = client.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])

    def alter(self, values: dict[str, str | None], *, broker: str = NODE) -> int:
        """Alter settings of the broker; return the error code."""
        rows = [
            {"name": name, "config_operation": DELETE if value is None else SET, "value": value}
            for name, value in values.items()
        ]
        resource = {"resource_type": BROKER, "resource_name": broker, "configs": rows}
        with Wire(self.bootstrap) as wire:
            answer = wire.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
        error: int = answer.fields["responses"][0]["error_code"]
        return error

    def settings(self) -> dict[str, tuple[str | None, bool]]:
        """Return the value of each setting of the listener, and whether it is sensitive."""
        resource = {"resource_type": BROKER, "resource_name": NODE, "configuration_keys": None}
        with Wire(self.bootstrap) as wire:
            answer = wire.call("describe_configs", 4, resources=[resource]).fields["results"][0]
        return {
            row["name"]: (row["value"], row["is_sensitive"])
            for row in answer["configs"]
            if row["name"].startswith(PREFIX)
        }


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def _stores(folder: Path, authority: Authority) -> dict[str, str]:
    return {
        f"{PREFIX}ssl.keystore.type": "PEM",
        LOCATION: str(authority.listener().write_pem(folder / "own.pem")),
        f"{PREFIX}ssl.truststore.type": "PEM",
        f"{PREFIX}ssl.truststore.location": str(authority.write(folder / "ca.pem")),
    }


@pytest.fixture
def seqgate(tmp_path: Path, authority: Authority) -> Iterator[Endpoint]:
    port, folder = free_port(), tmp_path / "seqgate"
    folder.mkdir()
    with GatewayProcess(
        folder / "data", settings=_stores(folder, authority), also_listen=[f"SSL://127.0.0.1:{port}"]
    ) as gateway:
        yield Endpoint(gateway.bootstrap, port, folder, authority)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Endpoint]:
    port, folder = free_port(), tmp_path_factory.mktemp("kafka")
    with KafkaPeer(
        folder / "peer", properties=_stores(folder, authority), also_listen=[f"SSL://127.0.0.1:{port}"]
    ) as peer:
        yield Endpoint(peer.bootstrap, port, folder, authority)


def _configs(endpoint: Endpoint, *arguments: str) -> str:
    broker = ("--entity-type", "brokers", "--entity-name", NODE)
    tool = ("kafka-configs", "--bootstrap-server", endpoint.bootstrap)
    return run_tool(*tool, *broker, *arguments).expect_success().stdout


def test_a_client_that_reconnects_meets_what_kafka_configs_altered(seqgate: Endpoint) -> None:
    others = Authority("Others")
    store = others.listener().write_pkcs12(seqgate.folder / "new.p12", "open sesame")
    errors: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{seqgate.port}",
            "security.protocol": "ssl",
            "ssl.ca.location": str(others.write(seqgate.folder / "others.pem")),
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
            "error_cb": lambda error: errors.append(str(error)),
        }
    )
    delivered: list[object] = []
    producer.produce("reconnecting", b"v", on_delivery=lambda error, _: delivered.append(error))
    while not errors:
        producer.poll(0.1)
    assert delivered == []
    changes = {
        LOCATION: str(store),
        f"{PREFIX}ssl.keystore.type": "PKCS12",
        f"{PREFIX}ssl.keystore.password": "open sesame",
    }
    added = ",".join(f"{name}={value}" for name, value in changes.items())
    _configs(seqgate, "--alter", "--add-config", added)
    assert producer.flush(TIMEOUT_S) == 0
    assert delivered == [None]
    shown = _configs(seqgate, "--describe")
    assert f"{LOCATION}={store} sensitive=false" in shown
    assert f"{PREFIX}ssl.keystore.password=null sensitive=true" in shown
    _configs(seqgate, "--alter", "--delete-config", ",".join(changes))
    assert seqgate.serial()


def test_librdkafka_alters_a_key_store(seqgate: Endpoint) -> None:
    admin = AdminClient({"bootstrap.servers": seqgate.bootstrap})

    def alter(location: Path) -> None:
        entry = ConfigEntry(LOCATION, str(location), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, NODE, incremental_configs=[entry])
        (altered,) = admin.incremental_alter_configs([resource]).values()
        altered.result(TIMEOUT_S)

    before = seqgate.serial()
    with pytest.raises(KafkaException, match="can't be read: No such file or directory"):
        alter(seqgate.folder / "none.pem")
    assert seqgate.serial() == before
    alter(seqgate.authority.listener().write_pem(seqgate.folder / "new.pem"))
    assert seqgate.serial() != before


Alterations = Callable[[Endpoint], list[dict[str, str | None]]]


def _alterations(endpoint: Endpoint) -> list[tuple[dict[str, str | None], str]]:
    """Return alterations, one after the other, each with the node; "" is all nodes."""
    folder, authority = endpoint.folder, endpoint.authority
    new = str(authority.listener().write_pem(folder / "new.pem"))
    more = str(authority.listener(names=("localhost", "kafka.test")).write_pem(folder / "more.pem"))
    other = str(authority.listener("elsewhere").write_pem(folder / "other.pem"))
    spaced = str(authority.listener("LOCALHOST").write_pem(folder / "spaced.pem"))
    packed = str(authority.listener().write_pkcs12(folder / "new.p12", "open sesame"))
    damaged = folder / "damaged.pem"
    damaged.write_text("nothing")
    authorities = str(Authority("Others").write(folder / "others.pem"))
    password, kind = f"{PREFIX}ssl.keystore.password", f"{PREFIX}ssl.keystore.type"
    of_one: list[dict[str, str | None]] = [
        {LOCATION: new},
        {LOCATION: new},
        {LOCATION: str(folder / "none.pem")},
        {LOCATION: str(damaged)},
        {LOCATION: other},
        {LOCATION: spaced},
        {LOCATION: None},
        {LOCATION: packed, kind: "PKCS12", password: "wrong"},
        {LOCATION: packed, kind: "PKCS12", password: "open sesame"},
        {password: "wrong"},
        {LOCATION: None, kind: None, password: None},
        {f"{PREFIX}ssl.truststore.location": authorities},
        {f"{PREFIX}ssl.truststore.location": str(folder / "none.pem")},
        {f"{PREFIX}ssl.truststore.location": None},
        {"ssl.keystore.location": new},
        {f"{PREFIX}max.connections": "0"},
        {f"{PREFIX}max.connections": "many"},
        {f"{PREFIX}max.connections": "100"},
        {f"{PREFIX}max.connection.creation.rate": "0"},
        {f"{PREFIX}max.connection.creation.rate": "100"},
        {"max.connection.creation.rate": "0"},
        {"max.connection.creation.rate": "-1"},
        {"max.connection.creation.rate": "100"},
        {f"{PREFIX}max.connections": None, f"{PREFIX}max.connection.creation.rate": None},
        {LOCATION: more},
        {LOCATION: new},
        {LOCATION: None},
    ]
    of_all: list[dict[str, str | None]] = [{LOCATION: new}, {f"{PREFIX}max.connections": "100"}]
    return [*((values, NODE) for values in of_one), *((values, "") for values in of_all)]


@dataclass(frozen=True)
class Outcome:
    """The outcome of an alteration: its error, whether new connections get another certificate, and the
    settings.
    """

    alteration: str
    error: int
    is_new: bool
    settings: dict[str, tuple[str | None, bool]]


def _carry_out(endpoint: Endpoint, values: dict[str, str | None], broker: str) -> Callable[[], Outcome]:
    """Alter settings; return the function that reads the outcome."""
    before = endpoint.serial()
    error = endpoint.alter(values, broker=broker)

    def shown(text: str) -> str:
        return text.replace(str(endpoint.folder), "")

    def look() -> Outcome:
        settings = {
            name: (value if value is None else shown(value), sensitive)
            for name, (value, sensitive) in endpoint.settings().items()
        }
        return Outcome(shown(f"{broker or 'all'}: {values}"), error, endpoint.serial() != before, settings)

    return look


def test_apache_kafka_answers_the_same(seqgate: Endpoint, kafka: Endpoint) -> None:
    """Kafka's brokers apply a change after its answer, so the test waits for them."""
    for own, theirs in zip(_alterations(seqgate), _alterations(kafka), strict=True):
        expected = _carry_out(seqgate, *own)()
        look = _carry_out(kafka, *theirs)
        deadline_s = time.monotonic() + SETTLED_S
        while (found := look()) != expected and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert found == expected
