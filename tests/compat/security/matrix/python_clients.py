"""The clients kafka-python and aiokafka, with TLS and logins."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.errors import KafkaConnectionError as AioConnectionError
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.errors import for_code
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.compat.security.matrix.client import REFUSALS, Refusal, Refused
from tests.compat.security.matrix.endpoint import TIMEOUT_S, Account, Way
from tests.support.group_members import know_topic

T = TypeVar("T")
WAYS = tuple(way for way in Way if way is not Way.DELEGATION_TOKEN)
REFUSED_LOGIN_MS = 2_000


class Provider(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


class AioProvider(AioTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def settings_of(account: Account, provider: type[Provider | AioProvider]) -> dict[str, Any]:
    """Return what both libraries have in common."""
    if account.way is Way.CERTIFICATE:
        return {"bootstrap_servers": account.bootstrap, "security_protocol": "SSL"}
    logins: dict[str, Any] = {
        "bootstrap_servers": account.bootstrap,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": account.mechanism,
    }
    if account.way is Way.OAUTHBEARER:
        return {**logins, "sasl_oauth_token_provider": provider(account.token)}
    return {**logins, "sasl_plain_username": account.login, "sasl_plain_password": account.secret}


class KafkaPython:
    """kafka-python, which reports a refused login as a bootstrap that failed."""

    ways = WAYS

    def __init__(self, account: Account) -> None:
        self._settings = settings_of(account, Provider)
        self._settings |= {
            "ssl_cafile": str(account.endpoint.authorities),
            "bootstrap_timeout_ms": REFUSED_LOGIN_MS if account.secret == "wrong" else TIMEOUT_S * 1_000,
        }
        if account.certificate:
            self._settings |= {
                "ssl_certfile": str(account.certificate),
                "ssl_keyfile": str(account.certificate),
            }
        self._producer: Any = None

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as failure:
            # an error of InitProducerId has its code in the text alone
            code = re.search(r"\[Error (\d+)\]", str(failure))
            refusal = REFUSALS.get(int(code[1])) if code else None
            if "ootstrap" in str(failure):
                refusal = Refusal.LOGIN
            raise Refused(refusal, repr(failure)) from failure

    def create(self, topic: str) -> None:
        with self._refusals():
            admin = KafkaAdminClient(**self._settings)
            try:
                admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
            finally:
                admin.close()

    def describe(self, topic: str) -> int:
        with self._refusals():
            admin = KafkaAdminClient(**self._settings)
            try:
                (found,) = admin.describe_topics([topic])
            finally:
                admin.close()
        if found["error_code"]:
            raise Refused(REFUSALS.get(found["error_code"]), found)
        return len(found["partitions"])

    def send(self, topic: str, value: str) -> None:
        with self._refusals():
            if self._producer is None:
                self._producer = KafkaProducer(
                    **self._settings, enable_idempotence=True, max_block_ms=TIMEOUT_S * 1_000
                )
            self._producer.send(topic, value.encode()).get(TIMEOUT_S)

    def transact(self, transactional_id: str, topic: str, value: str) -> None:
        with self._refusals():
            producer = KafkaProducer(**self._settings, transactional_id=transactional_id)
            try:
                producer.init_transactions()
                producer.begin_transaction()
                producer.send(topic, value.encode()).get(TIMEOUT_S)
                producer.commit_transaction()
            finally:
                producer.close(1)

    def read(self, topic: str, group: str, count: int) -> list[str]:
        with self._refusals():
            consumer = KafkaConsumer(
                topic,
                **self._settings,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            know_topic(consumer, topic)
            found: list[str] = []
            deadline_s = time.monotonic() + TIMEOUT_S
            try:
                while len(found) < count:
                    assert time.monotonic() < deadline_s, found
                    for rows in consumer.poll(500).values():
                        found += [row.value.decode() for row in rows]
                consumer.commit()
            finally:
                consumer.close()
        return found

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close(TIMEOUT_S)


class Aiokafka:
    """aiokafka, which reports a refused login as a bootstrap that failed."""

    ways = WAYS

    def __init__(self, account: Account) -> None:
        context = ssl.create_default_context(cafile=account.endpoint.authorities)
        if account.certificate:
            context.load_cert_chain(account.certificate)
        self._settings = {**settings_of(account, AioProvider), "ssl_context": context}
        self._loop = asyncio.new_event_loop()
        self._producer: Any = None

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run_until_complete(asyncio.wait_for(work, TIMEOUT_S))
        except AioConnectionError as failure:
            raise Refused(Refusal.LOGIN, repr(failure)) from failure
        except AioKafkaError as failure:
            raise Refused(REFUSALS.get(getattr(failure, "errno", 0)), repr(failure)) from failure

    def create(self, topic: str) -> None:
        async def run() -> None:
            admin = AIOKafkaAdminClient(**self._settings)
            try:
                await admin.start()
                answer = await admin.create_topics([AioNewTopic(topic, 1, 1)])
            finally:
                await admin.close()
            for _, code, *_ in answer.topic_errors:
                if code:
                    raise for_code(code)(answer)

        self._wait(run())

    def describe(self, topic: str) -> int:
        async def run() -> int:
            admin = AIOKafkaAdminClient(**self._settings)
            try:
                await admin.start()
                (found,) = await admin.describe_topics([topic])
            finally:
                await admin.close()
            if found["error_code"]:
                raise for_code(found["error_code"])(found)
            return len(found["partitions"])

        return self._wait(run())

    def send(self, topic: str, value: str) -> None:
        async def run() -> None:
            if self._producer is None:
                producer = AIOKafkaProducer(**self._settings, enable_idempotence=True)
                try:
                    await producer.start()
                except BaseException:
                    await producer.stop()
                    raise
                self._producer = producer
            await self._producer.send_and_wait(topic, value.encode())

        self._wait(run())

    def transact(self, transactional_id: str, topic: str, value: str) -> None:
        async def run() -> None:
            producer = AIOKafkaProducer(**self._settings, transactional_id=transactional_id)
            try:
                await producer.start()
                async with producer.transaction():
                    await producer.send_and_wait(topic, value.encode())
            finally:
                await producer.stop()

        self._wait(run())

    def read(self, topic: str, group: str, count: int) -> list[str]:
        async def run() -> list[str]:
            consumer = AIOKafkaConsumer(
                topic,
                **self._settings,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            try:
                await consumer.start()
                found = [(await consumer.getone()).value.decode() for _ in range(count)]
                await consumer.commit()
            finally:
                await consumer.stop()
            return found

        return self._wait(run())

    def close(self) -> None:
        if self._producer is not None:
            self._loop.run_until_complete(self._producer.stop())
        self._loop.close()
