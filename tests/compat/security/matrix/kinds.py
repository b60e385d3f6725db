"""The kinds of clients of the matrix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.compat.security.matrix.client import Client
from tests.compat.security.matrix.endpoint import Account
from tests.compat.security.matrix.jvm import Jvm
from tests.compat.security.matrix.librdkafka import ConfluentKafka, Kcat
from tests.compat.security.matrix.python_clients import Aiokafka, KafkaPython

Kind = type[Aiokafka] | type[ConfluentKafka] | type[Jvm] | type[KafkaPython] | type[Kcat]
KINDS: tuple[Kind, ...] = (Aiokafka, ConfluentKafka, Jvm, KafkaPython, Kcat)


@contextmanager
def opened(kind: Kind, account: Account) -> Iterator[Client]:
    """Return a client of the account, and close it at the end."""
    client = kind(account)
    try:
        yield client
    finally:
        client.close()
