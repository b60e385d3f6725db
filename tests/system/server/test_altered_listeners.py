"""Settings of listeners altered while the gateway runs: key stores, trust stores, limits of connections."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.wire import Plain, Wire
from tests.system.commands.conftest import seqgate
from tests.system.server.test_connections import eventually
from tests.system.server.test_tls import DEADLINE_S, Secured, ask, create, serial_of

BROKER, NODE = 4, "1"
SET, DELETE = 0, 1
INVALID_REQUEST = 42
PREFIX = "listener.name.ssl."
LOCATION, PASSWORD = f"{PREFIX}ssl.keystore.location", f"{PREFIX}ssl.keystore.password"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    found = Secured(tmp_path, ssl_client_auth="requested")
    with found.gateway:
        yield found


def alter(
    secured: Secured, *, broker: str = NODE, validate_only: bool = False, **values: str | None
) -> tuple[int, str | None]:
    """Alter settings of the listener, named without their prefix and with underscores; return the error."""
    rows = [
        {
            "name": PREFIX + name.replace("_", "."),
            "config_operation": DELETE if value is None else SET,
            "value": value,
        }
        for name, value in values.items()
    ]
    resource = {"resource_type": BROKER, "resource_name": broker, "configs": rows}
    with Wire(secured.gateway.bootstrap) as wire:
        answer = wire.call(
            "incremental_alter_configs", 1, resources=[resource], validate_only=validate_only
        ).fields["responses"][0]
    return answer["error_code"], answer["error_message"]


def described(secured: Secured) -> dict[str, Plain]:
    """Return the settings of the broker that are set for a listener, by their names."""
    resource = {"resource_type": BROKER, "resource_name": NODE, "configuration_keys": None}
    with Wire(secured.gateway.bootstrap) as wire:
        answer = wire.call("describe_configs", 4, resources=[resource], include_synonyms=True).fields
    configs = answer["results"][0]["configs"]
    return {config["name"]: config for config in configs if config["name"].startswith("listener.name.")}


def test_new_connections_get_the_altered_certificate_and_old_ones_live_on(secured: Secured) -> None:
    before = serial_of(secured)
    new = secured.authority.listener().write_pem(secured.folder / "new.pem")
    with secured.client() as old:
        create(old, "before")
        assert alter(secured, ssl_keystore_location=str(new), validate_only=True) == (0, None)
        assert serial_of(secured) == before
        assert alter(secured, ssl_keystore_location=str(new)) == (0, None)
        altered = serial_of(secured)
        assert altered != before
        create(old, "after")
    secured.gateway.stop()
    secured.gateway.start()
    assert serial_of(secured) == altered
    assert alter(secured, ssl_keystore_location=None) == (0, None)
    assert serial_of(secured) == before


def test_a_store_with_a_password(secured: Secured) -> None:
    before = serial_of(secured)
    store = secured.authority.listener().write_pkcs12(secured.folder / "new.p12", "open sesame")
    changes = {"ssl_keystore_location": str(store), "ssl_keystore_type": "PKCS12"}
    for password in ("wrong", None):
        error, said = alter(secured, **changes, ssl_keystore_password=password)
        assert error == INVALID_REQUEST
        assert said is not None
        assert "its password is not that of the setting" in said
        assert serial_of(secured) == before
    assert alter(secured, **changes, ssl_keystore_password="open sesame") == (0, None)
    assert serial_of(secured) != before
    found = described(secured)
    assert found[LOCATION]["value"] == str(store)
    assert found[PASSWORD]["is_sensitive"]
    assert found[PASSWORD]["value"] is None
    assert [synonym["value"] for synonym in found[PASSWORD]["synonyms"]] == [None]
    for file in filter(Path.is_file, secured.gateway.data_dir.rglob("*")):
        content = file.read_bytes()
        assert b"wrong" not in content
        assert b"sesame" not in content or file.parent.name == "__cluster_metadata-0", file
    assert "sesame" not in secured.gateway.stderr_text()


def test_a_certificate_in_the_settings_themselves(secured: Secured) -> None:
    own = secured.authority.listener()
    before = serial_of(secured)
    texts = {"ssl_keystore_key": own.key_pem(), "ssl_keystore_certificate_chain": own.certificate_pem}
    # ssl.keystore.location takes precedence over ssl.keystore.key. So it must be unset.
    assert alter(secured, ssl_keystore_location="", **texts) == (0, None)
    assert serial_of(secured) not in ("", before)
    assert "PRIVATE KEY" not in secured.gateway.stderr_text()
    assert described(secured)[f"{PREFIX}ssl.keystore.key"]["value"] is None


@pytest.mark.parametrize(
    "kind", ["no file", "no path", "no store", "another name", "fewer names", "no trust"]
)
def test_stores_that_are_of_no_use_are_refused(secured: Secured, kind: str) -> None:
    before = serial_of(secured)
    new = secured.folder / "new.pem"
    changes: dict[str, str | None] = {"ssl_keystore_location": str(new)}
    match kind:
        case "no path":
            changes = {"ssl_keystore_location": "a\0b"}
        case "no store":
            new.write_text("nothing")
        case "another name":
            secured.authority.listener("elsewhere").write_pem(new)
        case "fewer names":
            secured.authority.listener(names=()).write_pem(new)
        case "no trust":
            changes = {"ssl_truststore_location": str(new)}
    error, said = alter(secured, **changes)
    assert error == INVALID_REQUEST
    assert said is not None
    assert said.startswith("The stores of listener SSL can't be altered: ")
    assert serial_of(secured) == before
    assert described(secured) == {}
    secured.gateway.stop()
    secured.gateway.start()
    assert serial_of(secured) == before


def test_naming_the_same_file_again_reads_it_again(secured: Secured) -> None:
    secured.authority.listener().write_pem(secured.key_store)
    assert alter(secured, ssl_keystore_location=str(secured.key_store)) == (0, None)
    before = serial_of(secured)
    secured.authority.listener().write_pem(secured.key_store)
    assert alter(secured, ssl_keystore_location=str(secured.key_store)) == (0, None)
    assert serial_of(secured) != before


def test_an_altered_trust_store_decides_about_new_clients(secured: Secured) -> None:
    others = Authority("Others")
    shown = others.client("writer").write_pem(secured.folder / "writer.pem")
    with pytest.raises(ssl.SSLError), secured.client(shown) as client:
        create(client, "never")
    assert alter(secured, ssl_truststore_location="", ssl_truststore_certificates=others.pem) == (0, None)
    with secured.client(shown) as client:
        create(client, "named")
    secured.eventually_logs("by User:CN=writer,O=Example at")


def test_of_all_brokers_only_the_limits_can_be_altered(secured: Secured) -> None:
    error, said = alter(secured, broker="", ssl_keystore_location=str(secured.key_store))
    assert (error, said) == (
        INVALID_REQUEST,
        f"Cannot update these configs at default cluster level, broker id must be specified: [{LOCATION}]",
    )
    assert alter(secured, broker="", max_connections="100") == (0, None)


def test_a_listener_gets_a_limit_of_its_own(secured: Secured) -> None:
    with secured.client() as first, secured.client():
        assert alter(secured, max_connections="0")[0] == INVALID_REQUEST
        assert alter(secured, max_connections="2") == (0, None)
        with pytest.raises((ssl.SSLError, ConnectionError)), secured.client():
            pass
        secured.eventually_logs("listener.name.ssl.max.connections is 2")
        assert alter(secured, max_connections=None) == (0, None)
        with secured.client():
            create(first, "open")


def test_beyond_the_rate_connections_wait_and_none_is_refused(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    secured.gateway.settings |= {"quota.window.num": "2", "quota.window.size.seconds": "1"}
    with secured.gateway:
        assert alter(secured, max_connection_creation_rate="0")[0] == INVALID_REQUEST
        assert alter(secured, max_connection_creation_rate="5") == (0, None)
        began_s = time.monotonic()
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                client = stack.enter_context(secured.client())
                assert ask(client, "api_versions", 0, {})["error_code"] == 0
        # 5 at once and 5 a second, with windows of whole seconds
        assert time.monotonic() - began_s > 1.5
        assert "refused a connection" not in secured.gateway.stderr_text()
        with Wire(secured.gateway.bootstrap) as others:
            others.call("api_versions", 0)


def test_a_start_says_that_the_missing_file_was_altered(secured: Secured) -> None:
    new = secured.authority.listener().write_pem(secured.folder / "new.pem")
    assert alter(secured, ssl_keystore_location=str(new)) == (0, None)
    secured.gateway.stop()
    new.rename(secured.folder / "away.pem")
    with pytest.raises(AssertionError, match="was altered while the gateway ran"):
        secured.gateway.start()
    (secured.folder / "away.pem").rename(new)
    secured.gateway.start()
    eventually(lambda: serial_of(secured) != "", "a certificate")


def test_a_stop_while_connections_wait(tmp_path: Path) -> None:
    secured = Secured(tmp_path, max_connection_creation_rate="1")
    secured.gateway.settings |= {"quota.window.num": "2", "quota.window.size.seconds": "1"}
    with secured.gateway, contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", secured.port), timeout=DEADLINE_S))
        secured.gateway.stop()


def test_seqgate_configs_sets_shows_and_unsets_the_settings_of_a_listener(secured: Secured) -> None:
    cluster = ("--bootstrap", secured.gateway.bootstrap)
    before = serial_of(secured)
    store = secured.authority.listener().write_pkcs12(secured.folder / "new.p12", "open sesame")
    values = {LOCATION: str(store), PASSWORD: "open sesame", f"{PREFIX}max.connections": "100"}
    seqgate(
        "configs", "set", "broker", NODE, *(f"{name}={value}" for name, value in values.items()), *cluster
    )
    assert serial_of(secured) != before
    shown = seqgate("configs", "get", "broker", NODE, *cluster).stdout
    assert all(name in shown for name in values)
    assert "sesame" not in shown
    said = seqgate("configs", "set", "broker", NODE, f"{LOCATION}=none.pem", *cluster, code=1)
    assert "none.pem can't be read: No such file or directory" in said.stderr
    seqgate("configs", "unset", "broker", NODE, *values, *cluster)
    assert serial_of(secured) == before
