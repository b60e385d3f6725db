"""Holds each conversation with both endpoints, and compares the answers."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

from tests.compat.differential.logins.endpoints import Endpoint
from tests.compat.differential.logins.known_differences import KNOWN_DIFFERENCES
from tests.compat.differential.logins.visit import Table
from tests.compat.differential.verdict import expect_agreement

TOKEN = uuid.uuid4().hex[:8]


def expect_alike(table: Table, name: str, kafka: Endpoint, gateway: Endpoint) -> None:
    with ThreadPoolExecutor(1) as beside:
        expected = beside.submit(table.run, name, kafka, TOKEN)
        seen = table.run(name, gateway, TOKEN)
    expect_agreement(name, expected.result(), seen, KNOWN_DIFFERENCES)
