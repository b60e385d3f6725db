"""Every client with every way to authenticate itself: it does its work, learns of a wrong password, and
outlives a restart of the gateway.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from seqgate.gateway.security.acls.access import Operation, ResourceType
from tests.compat.security.matrix.client import Client, Refusal, Refused
from tests.compat.security.matrix.endpoint import Account, Endpoint, Way, running_endpoint
from tests.compat.security.matrix.jvm import Jvm, stopped
from tests.compat.security.matrix.kinds import KINDS, Kind, opened
from tests.compat.security.matrix.librdkafka import ConfluentKafka, Kcat
from tests.compat.security.matrix.python_clients import Aiokafka
from tests.tiers import in_tiers

MATRIX = [pytest.param(kind, way, id=f"{kind.__name__}-{way}") for kind in KINDS for way in kind.ways]
# aiokafka takes the gateway's error about a token, which is a challenge in OAUTHBEARER, for a login
MISTAKEN = [param for param in MATRIX if param.values != (Aiokafka, Way.OAUTHBEARER)]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with running_endpoint(tmp_path_factory.mktemp("matrix")) as endpoint, stopped():
        yield endpoint


def of(account: Account) -> str:
    """Return the name of the account's topic, group and transactional id."""
    return f"of-{account.login}"


def worker(endpoint: Endpoint, way: Way) -> Account:
    """Return an account with all that a pipeline needs, and nothing else."""
    account = endpoint.account(way)
    name = of(account)
    account.allow(ResourceType.TOPIC, name, Operation.CREATE, Operation.READ, Operation.WRITE)
    account.allow(ResourceType.GROUP, name, Operation.READ)
    account.allow(ResourceType.TRANSACTIONAL_ID, name, Operation.WRITE)
    return account


@pytest.mark.parametrize(
    ("kind", "way"),
    in_tiers(
        [param.values for param in MATRIX], test=[(ConfluentKafka, Way.SCRAM_SHA_512), (Jvm, Way.CERTIFICATE)]
    ),
    ids=[param.id for param in MATRIX],
)
def test_a_client_does_its_work(endpoint: Endpoint, kind: Kind, way: Way) -> None:
    account = worker(endpoint, way)
    name = of(account)
    with opened(kind, account) as client:
        client.create(name)
        assert client.describe(name) == 1
        client.send(name, "one")
        client.send(name, "two")
        assert client.read(name, name, 2) == ["one", "two"]
        client.transact(name, name, "three")
        assert client.read(name, name, 1) == ["three"]


@pytest.mark.parametrize(("kind", "way"), MISTAKEN)
def test_a_client_with_a_wrong_password_learns_of_it(
    endpoint: Endpoint, kind: Kind, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    account = worker(endpoint, way)
    name = of(account)
    endpoint.create_topic(name)
    with opened(kind, account.mistaken()) as client, pytest.raises(Refused) as refused:
        client.send(name, "value")
    assert refused.value.refusal is Refusal.LOGIN, refused.value
    if kind is Aiokafka and way is not Way.CERTIFICATE:  # it raises that it can't bootstrap, and logs why
        assert "[Error 58] SaslAuthenticationFailed" in caplog.text


def test_a_scram_client_that_repeats_its_nonce_twice_is_refused(endpoint: Endpoint) -> None:
    """librdkafka before 2.6.1 does, which Debian's kcat is made of; Apache Kafka 4 refuses it too."""
    account = worker(endpoint, Way.SCRAM_SHA_256)
    endpoint.create_topic(of(account))
    with opened(Kcat, account) as client, pytest.raises(Refused, match="has another nonce") as refused:
        client.send(of(account), "value")
    assert refused.value.refusal is Refusal.LOGIN


def test_clients_outlive_a_restart_of_the_gateway(endpoint: Endpoint) -> None:
    """Their producers keep their sequence, and their groups their offsets."""
    with ExitStack() as all_clients:
        clients: dict[str, Client] = {}
        for kind in KINDS:
            for way in kind.ways:
                account = worker(endpoint, way)
                name = of(account)
                endpoint.create_topic(name)
                clients[name] = client = all_clients.enter_context(opened(kind, account))
                client.send(name, "before")
                assert client.read(name, name, 1) == ["before"]
        endpoint.gateway.restart(kill=True)
        for name, client in clients.items():
            client.send(name, "after")
            assert client.read(name, name, 1) == ["after"]
