"""The checks before Spark starts log in where Python can, and say why where only Java can."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seqgate.gateway.security.acls.access import Operation, ResourceType
from seqgate.spark_kafka_compat.logins import Login, Unchecked, login_of
from seqgate.spark_kafka_compat.pipelines.streaming import check_endpoint
from seqgate.spark_kafka_compat.session import EndpointError, SparkCompatError
from tests.compat.security.matrix.endpoint import Account, Endpoint, Way, running_endpoint
from tests.compat.security.matrix.jvm import properties_of

CHECKED = [Way.CERTIFICATE, Way.PLAIN, Way.SCRAM_SHA_256, Way.SCRAM_SHA_512]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with running_endpoint(tmp_path_factory.mktemp("endpoint")) as endpoint:
        for topic in ("open", "closed"):
            endpoint.create_topic(topic)
        yield endpoint


def options_of(account: Account) -> dict[str, str]:
    properties = properties_of(account)
    return {f"kafka.{name}": value for name, value in properties.items() if name != "bootstrap.servers"}


def check(account: Account, topic: str, **others: str) -> None:
    options = {**options_of(account), **{name.replace("_", "."): value for name, value in others.items()}}
    check_endpoint("land", account.bootstrap, {**options, "subscribe": topic})


@pytest.mark.parametrize("way", CHECKED)
def test_topics_and_rights_are_checked(
    endpoint: Endpoint, way: Way, capsys: pytest.CaptureFixture[str]
) -> None:
    account = endpoint.account(way)
    with pytest.raises(SparkCompatError, match=r"needs the right READ on the topic\.$"):
        check(account, "closed")
    account.allow(ResourceType.TOPIC, "open", Operation.READ)
    check(account, "open")
    account.allow(ResourceType.TOPIC, "opem", Operation.READ)
    with pytest.raises(SparkCompatError, match=r"There is no topic opem .*\(did you mean open\?\)"):
        check(account, "opem")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("way", CHECKED[1:])
def test_a_wrong_password(endpoint: Endpoint, way: Way) -> None:
    account = endpoint.account(way)
    with pytest.raises(SparkCompatError, match=f"refuses the login of {account.login}: "):
        check(account.mistaken(), "open")


def test_an_authority_that_did_not_sign(endpoint: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    account = endpoint.account(Way.PLAIN)
    other = str(endpoint.account(Way.CERTIFICATE).certificate)
    with pytest.raises(SparkCompatError, match=r"^The certificate of 127\.0\.0\.1:\d+ is not accepted: "):
        check(account, "open", kafka_ssl_truststore_location=other)
    # Java's own authorities may have signed it.
    options = {name: value for name, value in options_of(account).items() if "truststore" not in name}
    check_endpoint("land", account.bootstrap, {**options, "subscribe": "closed"})
    told = capsys.readouterr().err
    assert told.startswith("land: topics and rights are not checked before Spark starts: the certificate of ")
    assert told.endswith("; Java may know its authority\n")


def test_a_listener_of_another_protocol(endpoint: Endpoint) -> None:
    account = endpoint.account(Way.PLAIN)
    options = {**options_of(account), "subscribe": "open"}
    with pytest.raises(SparkCompatError, match=r"does kafka\.security\.protocol fit its listener\?$"):
        check_endpoint("land", endpoint.gateway.bootstrap, options)


PEM_TRUST = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/none/ca.pem"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kafka.sasl.mechanism": "OAUTHBEARER"}, "only Java logs in with kafka.sasl.mechanism=OAUTHBEARER"),
        ({}, "only Java logs in with kafka.sasl.mechanism=GSSAPI"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl.jaas.config has no username and password"),
        (
            {"kafka.ssl.truststore.location": "/none/ca.jks"},
            "only Java reads the JKS file of kafka.ssl.truststore.location; PEM is checked",
        ),
        (
            {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.key": "inline"},
            "Python reads a private key from a file only, not kafka.ssl.keystore.key",
        ),
    ],
)
def test_what_only_java_can_do_is_named(options: dict[str, str], reason: str) -> None:
    with pytest.raises(Unchecked) as raised:
        login_of({"kafka.security.protocol": "SASL_SSL", **options})
    assert str(raised.value) == reason


def test_a_file_that_is_missing() -> None:
    with pytest.raises(SparkCompatError) as raised:
        login_of({"kafka.security.protocol": "SSL", **PEM_TRUST})
    told = "kafka.ssl.truststore.location=/none/ca.pem can't be read: No such file or directory."
    assert str(raised.value) == told


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("r={nonce},s=c2FsdA==,i=1000000000", "asks for 1,000,000,000 iterations"),
        ("r={nonce},s=c2FsdA==,i=0", "asks for 0 iterations"),
        ("r={nonce},s=c2FsdA==", "malformed"),
        ("e=other-error", "malformed"),
        ("", "malformed"),
    ],
)
def test_challenges_that_are_refused(answer: str, told: str) -> None:
    def exchange(token: bytes) -> bytes:
        return answer.format(nonce=token.decode().rpartition("r=")[2]).encode()

    with pytest.raises(EndpointError, match=told):
        Login(mechanism="SCRAM-SHA-256", user="ada", password="secret").authenticate(exchange)


def test_a_quoted_password() -> None:
    login = login_of(
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
            r'username=ann password="a \"b\" = c;";',
        }
    )
    assert (login.user, login.password, login.context) == ("ann", 'a "b" = c;', None)
    assert "c;" not in repr(login)
