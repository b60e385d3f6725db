"""TLS of a listener: who gets in, what is refused and logged, replaced certificates, and clients that hold a
handshake.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqgate.gateway.admin import client as control
from seqgate.gateway.admin.status import StatusRequest
from tests.support.batches import Batch, records
from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.wire import Wire, decode, encode
from tests.system.server.test_connections import eventually
from tests.system.server.test_slow_readers import receive_exactly

DEADLINE_S = 120.0
RECORD_BYTES = 1 << 20
BATCHES = 50


class Secured:
    """A gateway with a listener that speaks TLS, and the certificates for its clients."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.authority = Authority()
        self.authority.write(folder / "ca.pem")
        self.key_store = self.authority.listener().write_pem(folder / "listener.pem")
        self.port = free_port()
        stores = {"keystore": self.key_store, "truststore": folder / "ca.pem"}
        located = {f"ssl.{name}.location": str(path) for name, path in stores.items()}
        self.gateway = GatewayProcess(
            folder / "data",
            settings={**located, **{name.replace("_", "."): value for name, value in settings.items()}},
            also_listen=[f"SSL://127.0.0.1:{self.port}"],
        )

    def context(self, shown: Path | None = None) -> ssl.SSLContext:
        """Return the context of a client that shows this certificate."""
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        if shown is not None:
            context.load_cert_chain(shown)
        return context

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)

    @contextlib.contextmanager
    def client(self, shown: Path | None = None) -> Iterator[ssl.SSLSocket]:
        with (
            self.connect() as connected,
            self.context(shown).wrap_socket(connected, server_hostname="localhost") as secured,
        ):
            yield secured

    def eventually_logs(self, text: str) -> None:
        eventually(lambda: text in self.gateway.stderr_text(), text)


def ask(connected: socket.socket, api: str, version: int, fields: dict[str, object]) -> dict[str, object]:
    payload = encode(api, version, fields)
    connected.sendall(struct.pack(">i", len(payload)) + payload)
    size = int.from_bytes(receive_exactly(connected, 4), "big")
    return decode(api, version, receive_exactly(connected, size)).fields


def create(connected: socket.socket, topic: str) -> None:
    row = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    answer = ask(connected, "create_topics", 5, {"topics": [row], "timeout": 30_000, "validate_only": False})
    assert answer["topics"][0]["error_code"] == 0  # type: ignore[index]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    found = Secured(tmp_path, ssl_client_auth="requested")
    with found.gateway:
        yield found


def test_a_certificate_names_the_principal_of_its_client(secured: Secured) -> None:
    with secured.client(
        secured.authority.client("writer").write_pem(secured.folder / "writer.pem")
    ) as client:
        create(client, "named")
    with secured.client() as client:
        create(client, "unnamed")
    secured.eventually_logs("created topic named (1 partition), by User:CN=writer,O=Example at 127.0.0.1:")
    secured.eventually_logs("created topic unnamed (1 partition), by User:ANONYMOUS at 127.0.0.1:")


def test_the_status_has_the_age_of_the_certificate(secured: Secured) -> None:
    status = control.ask(secured.folder / "data", StatusRequest())
    (certificate,) = status.certificates
    assert (certificate.listener, certificate.warning, status.failed_logins) == ("SSL", None, 0)
    assert abs(certificate.valid_until_ms / 1000 - time.time() - 30 * 86_400) < 600


def test_metadata_names_the_port_of_the_listener_that_was_asked(secured: Secured) -> None:
    with secured.client() as client:
        answer = ask(client, "metadata", 5, {"topics": [], "allow_auto_topic_creation": False})
    assert [broker["port"] for broker in answer["brokers"]] == [secured.port]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "it sent an HTTP request without TLS"),
        (
            struct.pack(">ihhih", 10, 18, 0, 1, -1),
            "what it sent is not TLS; a Kafka client needs security.protocol=SSL",
        ),
        (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", ""),
    ],
    ids=["HTTP", "Kafka without TLS", "a malformed hello"],
)
def test_bytes_that_are_no_handshake_are_refused_and_logged(
    secured: Secured, sent: bytes, reason: str
) -> None:
    with secured.connect() as connected:
        connected.sendall(sent)
        connected.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while connected.recv(1024):
                pass
    secured.eventually_logs("refused a TLS handshake of 127.0.0.1:")
    secured.eventually_logs(reason)
    with secured.client() as client:
        create(client, "after")


def test_a_certificate_of_another_authority_is_refused_even_where_none_is_needed(secured: Secured) -> None:
    shown = Authority("Others").client("writer").write_pem(secured.folder / "other.pem")
    with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"), secured.client(shown) as client:
        create(client, "never")
    secured.eventually_logs("its certificate is not accepted: unable to get local issuer certificate")


def test_a_certificate_is_required_where_the_setting_says_so(tmp_path: Path) -> None:
    secured = Secured(tmp_path, ssl_client_auth="required")
    shown = secured.authority.client("writer").write_pem(tmp_path / "writer.pem")
    with secured.gateway:
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"), secured.client() as client:
            create(client, "never")
        secured.eventually_logs("it showed no certificate, which ssl.client.auth=required asks for")
        with secured.client(shown) as client:
            create(client, "named")


def test_a_subject_that_no_rule_matches_closes_the_connection(tmp_path: Path) -> None:
    secured = Secured(
        tmp_path, ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=(w.*?),.*$/$1/U"
    )
    writer, reader = (
        secured.authority.client(name).write_pem(tmp_path / f"{name}.pem") for name in ("writer", "reader")
    )
    with secured.gateway:
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)), secured.client(reader) as client:
            create(client, "never")
        secured.eventually_logs(
            "no rule of ssl.principal.mapping.rules matches the subject 'CN=reader,O=Example'"
        )
        with secured.client(writer) as client:
            create(client, "named")
        secured.eventually_logs("by User:WRITER at")


def serial_of(secured: Secured) -> str:
    with secured.client() as client:
        shown = client.getpeercert()
    assert shown is not None
    return str(shown["serialNumber"])


def test_a_replaced_certificate_counts_for_new_connections_only(secured: Secured) -> None:
    before = serial_of(secured)
    with secured.client() as old:
        create(old, "before")
        secured.authority.listener().write_pem(secured.folder / "new.pem").rename(secured.key_store)
        eventually(lambda: serial_of(secured) != before, "the new certificate")
        create(old, "after")
    secured.eventually_logs("listener SSL: certificate renewed, valid until")


@pytest.mark.parametrize("kind", ["another name", "no key store"])
def test_a_replaced_store_that_is_of_no_use_changes_nothing(secured: Secured, kind: str) -> None:
    before = serial_of(secured)
    new = secured.folder / "new.pem"
    if kind == "another name":
        secured.authority.listener("elsewhere").write_pem(new)
    else:
        new.write_text("nothing")
    new.rename(secured.key_store)
    assert serial_of(secured) == before
    secured.eventually_logs("listener SSL keeps its certificate: ")
    assert serial_of(secured) == before
    secured.authority.listener().write_pem(new).rename(secured.key_store)
    eventually(lambda: serial_of(secured) != before, "the certificate of a store that was mended")


def test_silent_handshakes_count_as_connections_and_end(tmp_path: Path) -> None:
    secured = Secured(tmp_path, max_connections="8")
    secured.gateway.settings["seqgate.tls.handshake.timeout.ms"] = "3000"
    with secured.gateway:
        silent = [secured.connect() for _ in range(8)]
        with secured.connect() as ninth:
            assert ninth.recv(1) == b""
        secured.eventually_logs("refused a connection of 127.0.0.1:")
        for connected in silent:
            assert connected.recv(1) == b""
            connected.close()
        eventually(lambda: _gets_in(secured), "room for a client")


def _gets_in(secured: Secured) -> bool:
    try:
        with secured.client() as client:
            ask(client, "api_versions", 0, {})
    except (ConnectionError, ssl.SSLError):
        return False
    return True


def test_a_stop_does_not_wait_for_silent_handshakes(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.gateway as gateway:
        silent = [secured.connect() for _ in range(20)]
        with secured.client() as client:
            create(client, "counted")
        gateway.stop()
        for connected in silent:
            connected.close()


def test_a_reader_gets_a_large_answer_whole(secured: Secured) -> None:
    batch = Batch(records(1, RECORD_BYTES))
    with secured.client() as client, Wire(secured.gateway.bootstrap) as plain:
        create(client, "big")
        for _ in range(BATCHES):
            entry = {"index": 0, "records": batch.encode()}
            fields = {
                "transactional_id": None,
                "acks": -1,
                "timeout": 30_000,
                "topic_data": [{"name": "big", "partition_data": [entry]}],
            }
            ask(client, "produce", 7, fields)
        fetched = {
            "replica_id": -1,
            "max_wait": 100,
            "min_bytes": 1,
            "max_bytes": 1 << 30,
            "isolation_level": 0,
            "topics": [
                {
                    "topic": "big",
                    "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 30}],
                }
            ],
            "forgotten_topics_data": [],
        }
        expected = plain.call("fetch", 4, fetched).fields
        assert ask(client, "fetch", 4, fetched) == expected
    assert "Traceback" not in secured.gateway.stderr_text()
