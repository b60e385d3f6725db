"""Every client without a right gets its own authorization error and ends; with the right it does its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from seqgate.gateway.security.acls.access import Operation, ResourceType
from tests.compat.security.matrix.client import Client, Refusal, Refused
from tests.compat.security.matrix.endpoint import Endpoint, Way, running_endpoint
from tests.compat.security.matrix.jvm import stopped
from tests.compat.security.matrix.kinds import KINDS, Kind, opened
from tests.compat.security.matrix.librdkafka import Kcat
from tests.compat.security.matrix.python_clients import KafkaPython

Right = tuple[ResourceType, Operation]
TOPIC, GROUP, ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
DESCRIBE, READ, WRITE = Operation.DESCRIBE, Operation.READ, Operation.WRITE


@dataclass(frozen=True)
class Case:
    """A call that the gateway refuses, until the client gets the missing rights."""

    call: Callable[[Client, str], object]
    refusal: Refusal
    rights: tuple[Right, ...]
    missing: tuple[Right, ...]


def send(client: Client, name: str) -> None:
    client.send(name, "value")


def transact(client: Client, name: str) -> None:
    client.transact(name, name, "value")


def read(client: Client, name: str) -> None:
    assert client.read(name, name, 1) == ["stored"]


CASES = {
    "write a hidden topic": Case(send, Refusal.TOPIC, (), ((TOPIC, WRITE),)),
    "write": Case(send, Refusal.TOPIC, ((TOPIC, DESCRIBE),), ((TOPIC, WRITE),)),
    "read a hidden topic": Case(read, Refusal.TOPIC, ((GROUP, READ),), ((TOPIC, READ),)),
    "read": Case(read, Refusal.TOPIC, ((GROUP, READ), (TOPIC, DESCRIBE)), ((TOPIC, READ),)),
    "join a group": Case(read, Refusal.GROUP, ((TOPIC, READ),), ((GROUP, READ),)),
    "begin a transaction": Case(transact, Refusal.TRANSACTIONAL_ID, ((TOPIC, WRITE),), ((ID, WRITE),)),
    "write in a transaction": Case(
        transact, Refusal.TOPIC, ((ID, WRITE), (TOPIC, DESCRIBE)), ((TOPIC, WRITE),)
    ),
}
# kafka-python logs the error about a topic that it may not see, and waits for the topic
MATRIX = [
    pytest.param(kind, case, id=f"{kind.__name__}: {case}")
    for kind in KINDS
    for case in CASES
    if (kind, case) != (KafkaPython, "read a hidden topic")
]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with running_endpoint(tmp_path_factory.mktemp("rights")) as endpoint, stopped():
        endpoint.create_topic("another")
        yield endpoint


@pytest.mark.parametrize(("kind", "case"), MATRIX)
def test_a_client_without_the_right_is_refused(endpoint: Endpoint, kind: Kind, case: str) -> None:
    asked = CASES[case]
    account = endpoint.account(Way.PLAIN)
    name = f"of-{account.login}"
    endpoint.create_topic(name)
    endpoint.store(name, b"stored")
    # who may write no topic at all gets no producer id
    account.allow(TOPIC, "another", WRITE)
    for resource, operation in asked.rights:
        account.allow(resource, name, operation)
    with opened(kind, account) as client, pytest.raises(Refused) as refused:
        asked.call(client, name)
    assert refused.value.refusal is asked.refusal, refused.value
    for resource, operation in asked.missing:
        account.allow(resource, name, operation)
    with opened(kind, account) as client:
        asked.call(client, name)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not Kcat])
def test_who_may_not_create_a_topic_is_refused(endpoint: Endpoint, kind: Kind) -> None:
    account = endpoint.account(Way.PLAIN)
    name = f"of-{account.login}"
    with opened(kind, account) as client:
        with pytest.raises(Refused) as refused:
            client.create(name)
        assert refused.value.refusal is Refusal.TOPIC, refused.value
        with pytest.raises(Refused) as refused:
            client.describe("another")
        assert refused.value.refusal is Refusal.TOPIC, refused.value
        account.allow(TOPIC, name, Operation.CREATE, DESCRIBE)
        client.create(name)
        assert client.describe(name) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_who_may_write_nothing_gets_no_producer_id(endpoint: Endpoint, kind: Kind) -> None:
    account = endpoint.account(Way.PLAIN)
    account.allow(TOPIC, "another", DESCRIBE)
    with opened(kind, account) as client, pytest.raises(Refused) as refused:
        client.send("another", "value")
    assert refused.value.refusal is Refusal.CLUSTER, refused.value
