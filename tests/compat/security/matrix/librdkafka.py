"""confluent-kafka and kcat: librdkafka as a library, and as a program."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

from tests.compat.security.matrix.client import REFUSALS, Refusal, Refused
from tests.compat.security.matrix.endpoint import TIMEOUT_S, Account, Way

LOGIN_ERRORS = (KafkaError._AUTHENTICATION, KafkaError._SSL)
KCAT_ERRORS = {
    "Topic authorization failed": Refusal.TOPIC,
    "Group authorization failed": Refusal.GROUP,
    "Transactional Id authorization failed": Refusal.TRANSACTIONAL_ID,
    "Cluster authorization failed": Refusal.CLUSTER,
    "SASL authentication error": Refusal.LOGIN,
    "certificate required": Refusal.LOGIN,
}


def settings_of(account: Account) -> dict[str, Any]:
    """Return what confluent-kafka and kcat have in common."""
    common = {"bootstrap.servers": account.bootstrap, "ssl.ca.location": str(account.endpoint.authorities)}
    if account.way is Way.CERTIFICATE:
        shown = account.certificate
        own = {"ssl.certificate.location": str(shown), "ssl.key.location": str(shown)} if shown else {}
        return {**common, "security.protocol": "ssl", **own}
    common |= {"security.protocol": "sasl_ssl", "sasl.mechanism": account.mechanism}
    if account.way is Way.OAUTHBEARER:
        return common
    return {**common, "sasl.username": account.login, "sasl.password": account.secret}


class ConfluentKafka:
    """The client of confluent-kafka, with TLS and logins."""

    ways = tuple(way for way in Way if way is not Way.DELEGATION_TOKEN)

    def __init__(self, account: Account) -> None:
        self._login_errors: list[str] = []
        self._settings: dict[str, Any] = {
            **settings_of(account),
            "error_cb": self._note,
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
        }
        if account.way is Way.OAUTHBEARER:
            self._settings["oauth_cb"] = lambda _: (account.token, time.time() + 3_600)
        self._producer: Producer | None = None

    def _note(self, error: KafkaError) -> None:
        # librdkafka reports the alert of a missing certificate as a connection that broke
        if error.code() in LOGIN_ERRORS or "certificate required" in error.str():
            self._login_errors.append(error.str())

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as failure:
            self._raise(failure.args[0])

    def _raise(self, error: KafkaError) -> None:
        refusal = REFUSALS.get(error.code())
        if refusal is None and (error.code() in LOGIN_ERRORS or self._login_errors):
            refusal = Refusal.LOGIN
        raise Refused(refusal, f"{error} {self._login_errors}")

    def create(self, topic: str) -> None:
        admin = AdminClient(self._settings)
        with self._refusals():
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)

    def describe(self, topic: str) -> int:
        admin = AdminClient(self._settings)
        with self._refusals():
            found = self._listed(admin, topic)
        if found.error is not None:
            self._raise(found.error)
        return len(found.partitions)

    def _listed(self, admin: AdminClient, topic: str) -> TopicMetadata:
        """Ask again while the cluster is only slow. Raises KafkaException."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return admin.list_topics(topic, timeout=5).topics[topic]
            except KafkaException as failure:
                admin.poll(0)
                is_slow = failure.args[0].code() in {KafkaError._TRANSPORT, KafkaError._TIMED_OUT}
                if not is_slow or self._login_errors or time.monotonic() > deadline_s:
                    raise

    def send(self, topic: str, value: str) -> None:
        if self._producer is None:
            self._producer = Producer({**self._settings, "enable.idempotence": True})
        reports: list[KafkaError | None] = []
        self._producer.produce(topic, value.encode(), on_delivery=lambda error, _: reports.append(error))
        deadline_s = time.monotonic() + TIMEOUT_S
        with self._refusals():
            while not reports and not self._login_errors and time.monotonic() < deadline_s:
                self._producer.poll(0.5)
        if self._login_errors:
            raise Refused(Refusal.LOGIN, self._login_errors)
        (error,) = reports
        if error is not None:
            self._raise(error)

    def transact(self, transactional_id: str, topic: str, value: str) -> None:
        producer = Producer({**self._settings, "transactional.id": transactional_id})
        with self._refusals():
            producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
            producer.produce(topic, value.encode())
            producer.commit_transaction(TIMEOUT_S)

    def read(self, topic: str, group: str, count: int) -> list[str]:
        consumer = Consumer({**self._settings, "group.id": group, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        found: list[str] = []
        deadline_s = time.monotonic() + TIMEOUT_S
        try:
            while len(found) < count:
                assert time.monotonic() < deadline_s, found
                message = consumer.poll(0.5)
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    self._raise(error)
                found.append((message.value() or b"").decode())
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return found

    def close(self) -> None:
        if self._producer is not None:
            with suppress(KafkaException):  # an error that is fatal for the producer, which send raised
                self._producer.purge()
                assert self._producer.flush(TIMEOUT_S) == 0
            self._producer = None


class Kcat:
    """kcat, which creates no topics.

    Debian's kcat is too old to log in with SCRAM, and knows no signed tokens.
    """

    ways = (Way.CERTIFICATE, Way.PLAIN)

    def __init__(self, account: Account) -> None:
        self._settings = settings_of(account)
        self._account = account

    def _run(self, *arguments: str, stdin: str = "", **more: str) -> str:
        program = shutil.which("kcat")
        assert program is not None, "kcat is not installed: run `make peers`"
        options = [word for pair in (self._settings | more).items() for word in ("-X", "=".join(pair))]
        done = subprocess.run(
            [program, *options, *arguments],
            input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        found = next((KCAT_ERRORS[text] for text in KCAT_ERRORS if text in done.stderr), None)
        if done.returncode or found:
            raise Refused(found, f"{done.returncode} {done.stderr}")
        return done.stdout

    def create(self, topic: str) -> None:
        """Let an administrator create the topic."""
        self._account.endpoint.create_topic(topic)

    def describe(self, topic: str) -> int:
        return self._run("-L", "-t", topic).count(", leader ")

    def send(self, topic: str, value: str) -> None:
        self._run("-P", "-t", topic, stdin=value, **{"enable.idempotence": "true"})

    def transact(self, transactional_id: str, topic: str, value: str) -> None:
        self._run("-P", "-t", topic, stdin=value, **{"transactional.id": transactional_id})

    def read(self, topic: str, group: str, count: int) -> list[str]:
        # kcat does not leave the group when it ends with an error
        more = {"auto.offset.reset": "earliest", "session.timeout.ms": "10000"}
        return self._run("-G", group, "-q", "-c", str(count), topic, **more).splitlines()

    def close(self) -> None:
        """Do nothing: every call is a process of its own."""
