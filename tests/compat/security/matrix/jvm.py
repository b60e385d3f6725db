"""Apache Kafka's own clients; one process of Java serves all accounts."""

from __future__ import annotations

import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.compat.security.matrix.client import Refusal, Refused
from tests.compat.security.matrix.endpoint import Account, Way
from tests.support.kafka_tools import java_command

SOURCE = Path(__file__).with_name("SecuredClient.java")
ANSWER_TIMEOUT_S = 180.0
SECURITY = "org.apache.kafka.common.security"
EXCEPTIONS = {
    "SaslAuthenticationException": Refusal.LOGIN,
    "SslAuthenticationException": Refusal.LOGIN,
    "TopicAuthorizationException": Refusal.TOPIC,
    "GroupAuthorizationException": Refusal.GROUP,
    "ClusterAuthorizationException": Refusal.CLUSTER,
    "TransactionalIdAuthorizationException": Refusal.TRANSACTIONAL_ID,
}


class Java:
    """A running Java process with the program SecuredClient."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            java_command(str(SOURCE)),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def tell(self, *words: object) -> list[str]:
        """Send a command; return the words of its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        readable, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
        assert readable, f"{words}: no answer in {ANSWER_TIMEOUT_S} s"
        told, *found = self._process.stdout.readline().split()
        if told != "ok":
            raise Refused(EXCEPTIONS.get(told), f"{told} {' '.join(found)}")
        return found

    def stop(self) -> None:
        """Close standard input; the process must end."""
        _, _ = self._process.communicate(timeout=ANSWER_TIMEOUT_S)
        assert self._process.returncode == 0


@cache
def shared() -> Java:
    """Return the process that all clients of a test process share, until `stopped`."""
    return Java()


@contextmanager
def stopped() -> Iterator[None]:
    """Stop the shared process at the end."""
    try:
        yield
    finally:
        if shared.cache_info().currsize:
            shared().stop()
            shared.cache_clear()


def properties_of(account: Account) -> dict[str, str]:
    """Return the properties of a JVM client."""
    common = {
        "bootstrap.servers": account.bootstrap,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(account.endpoint.authorities),
    }
    if account.way is Way.CERTIFICATE:
        shown = str(account.certificate)
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": shown} if account.certificate else {}
        return {**common, "security.protocol": "SSL", **own}
    common |= {"security.protocol": "SASL_SSL", "sasl.mechanism": account.mechanism}
    if account.way is Way.OAUTHBEARER:
        file = account.endpoint.folder / f"{account.login}-{account.secret.replace(' ', '-')}.jwt"
        file.write_text(account.token)
        return {
            **common,
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
            "sasl.login.callback.handler.class": f"{SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
        }
    module = "plain.PlainLoginModule" if account.way is Way.PLAIN else "scram.ScramLoginModule"
    token = ' tokenauth="true"' if account.way is Way.DELEGATION_TOKEN else ""
    jaas = f'{SECURITY}.{module} required username="{account.login}" password="{account.secret}"{token};'
    return {**common, "sasl.jaas.config": jaas}


def write_properties(account: Account) -> Path:
    """Return a file with the properties of a JVM client."""
    right = "wrong" if account.secret == "wrong" else "right"
    path = account.endpoint.folder / f"{account.login}-{account.way.name}-{right}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties_of(account).items()))
    return path


class Jvm:
    """Apache Kafka's own clients."""

    ways = tuple(Way)

    def __init__(self, account: Account) -> None:
        self._file = write_properties(_borrowed(account))

    def create(self, topic: str) -> None:
        shared().tell("create", self._file, topic)

    def describe(self, topic: str) -> int:
        return int(shared().tell("describe", self._file, topic)[0])

    def send(self, topic: str, value: str) -> None:
        shared().tell("send", self._file, topic, value)

    def transact(self, transactional_id: str, topic: str, value: str) -> None:
        shared().tell("transact", self._file, transactional_id, topic, value)

    def read(self, topic: str, group: str, count: int) -> list[str]:
        return shared().tell("read", self._file, topic, group, count)

    def close(self) -> None:
        shared().tell("close", self._file)


def _borrowed(account: Account) -> Account:
    """Return the account with the id and the password of a delegation token that it asked for, if it logs in
    with one.
    """
    if account.way is not Way.DELEGATION_TOKEN or account.secret == "wrong":
        return account
    owner = replace(account, way=Way.PLAIN)
    name, password = shared().tell("token", write_properties(owner))
    return replace(account, login=name, secret=password)
