"""Kafka's client properties as a command understands them, and what it says when they can't work."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from seqgate.gateway.admin.remote.client_security import OPEN, client_security, read_client_security
from seqgate.gateway.admin.request import ControlError
from tests.support.certificates import Authority

SECRET = "p4ss-w0rd"
PLAIN = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{SECRET}";'
)
SCRAM = PLAIN.replace("plain.PlainLoginModule", "scram.ScramLoginModule")


def login(jaas: str = PLAIN, mechanism: str = "PLAIN") -> dict[str, str]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def refusal(properties: dict[str, str]) -> str:
    with pytest.raises(ControlError) as refused:
        client_security(properties)
    assert SECRET not in str(refused.value)
    return str(refused.value)


def test_without_a_file_a_connection_is_open() -> None:
    assert read_client_security(None) is OPEN
    assert client_security({"client.id": "x", "request.timeout.ms": "5"}) == OPEN
    assert OPEN.client_settings() == {"security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_by_a_jaas_line(mechanism: str) -> None:
    found = client_security(login(PLAIN if mechanism == "PLAIN" else SCRAM, mechanism))
    assert found.client_settings() == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": SECRET,
    }
    assert SECRET not in repr(found)


def test_a_login_by_name_and_password() -> None:
    given = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
    found = client_security(given | {"sasl.username": "alice", "sasl.password": SECRET})
    assert (found.username, found.password) == ("alice", SECRET)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ('"a;b"', "a;b"),
        ('"a\\"b"', 'a"b'),
        ('"a\\\\b"', "a\\b"),
        ("'a b'", "a b"),
        ("plain", "plain"),
        ('"p=q"', "p=q"),
    ],
)
def test_values_of_a_jaas_line_may_be_quoted(option: str, value: str) -> None:
    found = client_security(login(f"PlainLoginModule required\n username=bob\n password={option} ;"))
    assert (found.username, found.password) == ("bob", value)


def test_the_name_of_a_user_is_escaped_for_scram_alone() -> None:
    jaas = 'ScramLoginModule required username="a=b,c" password="x";'
    assert client_security(login(jaas, "SCRAM-SHA-256")).login_name == "a=3Db=2Cc"
    plain = jaas.replace("Scram", "Plain")
    assert client_security(login(plain)).login_name == "a=b,c"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol must be one of"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism must be one of PLAIN"),
        ({"sasl.mechanism": ""}, "sasl.mechanism must be one of PLAIN"),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "PlainLoginModule of sasl.jaas.config does not log in"),
        ({"sasl.jaas.config": PLAIN[:-1]}, "must have the form"),
        ({"sasl.jaas.config": f"password={SECRET}"}, "must have the form"),
        ({"sasl.jaas.config": PLAIN.replace("Plain", "Krb5")}, "one of the modules"),
        ({"sasl.jaas.config": PLAIN.replace("username", "user")}, "must have username and password"),
        ({"sasl.jaas.config": PLAIN.replace('";', '" ?;')}, "must have the form"),
        ({"sasl.jaas.config": PLAIN.replace('";', '" tokenauth="true";')}, "delegation token"),
        ({"sasl.kerberos.service.name": "kafka"}, "sasl.kerberos.service.name has no effect"),
        ({"ssl.engine.factory.class": SECRET}, "ssl.engine.factory.class has no effect"),
    ],
)
def test_what_can_not_work_is_told(change: dict[str, str], words: str) -> None:
    assert words in refusal(login() | change)


def test_a_login_needs_both_name_and_password() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.password": SECRET}
    assert "both sasl.username and sasl.password" in refusal(given)


def test_tls_checks_certificate_and_name_unless_told_otherwise(tmp_path: Path) -> None:
    authority = str(Authority().write(tmp_path / "ca.pem"))
    tls = {"security.protocol": "SSL", "ssl.truststore.location": authority, "ssl.truststore.type": "PEM"}
    context = client_security(tls).context
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    loose = client_security(tls | {"ssl.endpoint.identification.algorithm": ""}).context
    assert loose is not None
    assert (loose.verify_mode, loose.check_hostname) == (ssl.CERT_REQUIRED, False)
    newest = client_security(tls | {"ssl.enabled.protocols": "TLSv1.3"}).context
    assert newest is not None
    assert newest.minimum_version is ssl.TLSVersion.TLSv1_3
    assert client_security(
        {"security.protocol": "SASL_SSL"} | login() | tls | {"security.protocol": "SASL_SSL"}
    ).context


def test_stores_that_can_not_be_used_are_told(tmp_path: Path) -> None:
    tls = {"security.protocol": "SSL"}
    assert "can't be read" in refusal(tls | {"ssl.truststore.location": str(tmp_path / "none.pem")})
    assert "TLSv1.1" in refusal(tls | {"ssl.enabled.protocols": "TLSv1.1"})
    assert "https or empty" in refusal(tls | {"ssl.endpoint.identification.algorithm": "ldaps"})
    store = Authority().client("x").write_pkcs12(tmp_path / "x.p12", "other")
    wrong = {"ssl.keystore.location": str(store), "ssl.keystore.password": SECRET}
    assert "its password is not that of the setting" in refusal(tls | wrong)


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    for content in (b"\xff", b"security.protocol=TLS"):
        file.write_bytes(content)
        with pytest.raises(ControlError, match=str(file)):
            read_client_security(file)
    file.unlink()
    with pytest.raises(ControlError, match="No such file"):
        read_client_security(file)
