"""Configs of topics and of the gateway, altered by each library's admin client: effective at once, and
durable. Those of Kafka that mean nothing here are kept and described."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioType
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, NewTopic
from confluent_kafka.admin import ConfigResource as ConfluentResource
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from tests.compat.topics import fresh_topic
from tests.support.batches import Batch, Record
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Wire

TOPIC, BROKER = "TOPIC", "BROKER"
TOO_LARGE = 10


class ByKafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def alter(self, kind: str, name: str, key: str, value: str) -> None:
        with KafkaAdminClient(bootstrap_servers=self._bootstrap) as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType[kind], name, configs={key: value})])

    async def value(self, kind: str, name: str, key: str) -> str:
        with KafkaAdminClient(bootstrap_servers=self._bootstrap) as admin:
            found = admin.describe_configs(
                [ConfigResource(ConfigResourceType[kind], name)], config_filter="all"
            )
        return str(found)


class ByAiokafka:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    async def alter(self, kind: str, name: str, key: str, value: str) -> None:
        async with self._admin() as admin:
            answers = await admin.alter_configs([AioResource(AioType[kind], name, configs={key: value})])
        assert [row[0] for answer in answers for row in answer.resources] == [0]

    async def value(self, kind: str, name: str, key: str) -> str:
        async with self._admin() as admin:
            answers = await admin.describe_configs([AioResource(AioType[kind], name, configs={key: None})])
        (entry,) = answers[0].resources[0][4]
        return str(entry[1])


class ByConfluentKafka:
    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    async def alter(self, kind: str, name: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfluentResource(ConfluentResource.Type[kind], name, incremental_configs=[entry])
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(20)

    async def value(self, kind: str, name: str, key: str) -> str:
        resource = ConfluentResource(ConfluentResource.Type[kind], name)
        (future,) = self._admin.describe_configs([resource]).values()
        return str(future.result(20)[key].value)


def produced(bootstrap: str, topic: str) -> int:
    """Produce a batch of 3,000 bytes; return the error."""
    records = Batch((Record(value=b"x" * 3_000),)).encode()
    partition = {"index": 0, "records": records}
    request = {"acks": -1, "timeout": 10_000, "topic_data": [{"name": topic, "partition_data": [partition]}]}
    with Wire(bootstrap) as wire:
        answer = wire.call("produce", 9, request).fields
    error: int = answer["responses"][0]["partition_responses"][0]["error_code"]
    return error


@pytest.mark.parametrize("client", [ByKafkaPython, ByAiokafka, ByConfluentKafka])
async def test_alterations_are_in_effect_when_they_are_answered_and_outlive_a_kill(
    gateway: GatewayProcess, client: Any
) -> None:
    topic = fresh_topic(gateway.bootstrap, "altered")
    assert produced(gateway.bootstrap, topic) == 0
    admin = client(gateway.bootstrap)
    await admin.alter(BROKER, "1", "message.max.bytes", "2000")
    assert produced(gateway.bootstrap, topic) == TOO_LARGE
    await admin.alter(TOPIC, topic, "max.message.bytes", "4000")
    assert produced(gateway.bootstrap, topic) == 0
    await admin.alter(TOPIC, topic, "max.message.bytes", "1000")
    gateway.restart(kill=True)
    assert produced(gateway.bootstrap, topic) == TOO_LARGE
    admin = client(gateway.bootstrap)
    assert "1000" in await admin.value(TOPIC, topic, "max.message.bytes")
    assert "2000" in await admin.value(BROKER, "1", "message.max.bytes")


def test_settings_of_kafka_that_mean_nothing_here_are_kept_and_described(gateway: GatewayProcess) -> None:
    """Create a topic and alter it and the broker as librdkafka's suite, Terraform and Cruise Control do."""
    topic = "kept-without-effect"
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    own = {"unclean.leader.election.enable": "true", "preallocate": "true"}
    for created in admin.create_topics([NewTopic(topic, 1, 1, config=own)]).values():
        created.result(20)
    throttled = {
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "*",
    }
    of_broker = {"sasl.kerberos.min.time.before.relogin": "58000", "num.replica.fetchers": "2"}
    rate = {"leader.replication.throttled.rate": "1000000"}
    replaced = ConfluentResource(ConfluentResource.Type.BROKER, "1", set_config=of_broker)
    with pytest.deprecated_call():
        (answer,) = admin.alter_configs([replaced]).values()
    answer.result(20)
    for kind, name, values in ((TOPIC, topic, throttled), (BROKER, "1", rate)):
        entries = [ConfigEntry(key, value) for key, value in values.items()]
        for entry in entries:
            entry.incremental_operation = AlterConfigOpType.SET
        altered = ConfluentResource(ConfluentResource.Type[kind], name, incremental_configs=entries)
        for future in admin.incremental_alter_configs([altered]).values():
            future.result(20)
    gateway.restart(kill=True)
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    for kind, name, values in ((TOPIC, topic, own | throttled), (BROKER, "1", of_broker | rate)):
        (described,) = admin.describe_configs(
            [ConfluentResource(ConfluentResource.Type[kind], name)]
        ).values()
        found = described.result(20)
        assert {key: found[key].value for key in values} == values
        assert not any(found[key].is_read_only or found[key].is_default for key in values)
