"""Producer names through four libraries: duplicates are acknowledged and not stored, a newer name epoch
fences an older one, and every library can read a name's last sequence id as a committed offset."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.deduplication.named_clients import CLIENTS, Confluent, Jvm, NamedClient, Refused
from tests.compat.topics import fresh_topic, stored_batches
from tests.support.gateway_process import GatewayProcess
from tests.support.named_batches import DEDUPLICATED

FENCED = {
    "Jvm": "ProducerFencedException",
    "Confluent": "PRODUCER_FENCED",
    "KafkaPython": "ProducerFencedError",
    "Aiokafka": "UnknownError",  # aiokafka does not know this error code, so it does not retry
}


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest, shared_gateway: GatewayProcess) -> Iterator[NamedClient]:
    opened = CLIENTS[request.param](shared_gateway.bootstrap)
    yield opened
    opened.close()


def stored_count(gateway: GatewayProcess, topic: str) -> int:
    return sum(batch.record_count for batch in stored_batches(gateway.bootstrap, topic))


@pytest.mark.parametrize("idempotent", [True, False])
def test_what_was_there_before_is_not_stored(
    shared_gateway: GatewayProcess, client: NamedClient, *, idempotent: bool
) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "named", configs=DEDUPLICATED)
    for sequence_id in (1, 2, 2, 1, 3):
        client.send(topic, "Köln", sequence_id, idempotent=idempotent)
    assert stored_count(shared_gateway, topic) == 3


def test_where_a_name_was(shared_gateway: GatewayProcess, client: NamedClient) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "named", configs=DEDUPLICATED)
    assert client.committed("Köln", topic) is None
    client.send(topic, "Köln", 41, epoch=3)
    metadata = None if isinstance(client, Confluent) else {"persisted": 41, "epoch": 3}
    assert client.committed("Köln", topic) == (41, metadata)
    if isinstance(client, Jvm):
        client.send(topic, "listed", 0)
        assert client.listed("listed") == f'{topic}-0=0 {{"persisted": 0, "epoch": null}}'


@pytest.mark.parametrize("idempotent", [True, False])
def test_an_older_epoch_is_told_that_it_is_over(
    shared_gateway: GatewayProcess, client: NamedClient, *, idempotent: bool
) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "named", configs=DEDUPLICATED)
    client.send(topic, "a", 1, epoch=2, idempotent=idempotent)
    with pytest.raises(Refused) as refused:
        client.send(topic, "a", 2, epoch=1, idempotent=idempotent)
    assert str(refused.value) == FENCED[type(client).__name__]
    client.send(topic, "a", 2, epoch=3, idempotent=idempotent)
    assert stored_count(shared_gateway, topic) == 2
