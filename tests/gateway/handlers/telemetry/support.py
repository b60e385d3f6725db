"""Clients that ask a node for subscriptions and push metrics."""

from __future__ import annotations

import uuid
from typing import Any

from seqgate.gateway.handlers.telemetry import client_telemetry
from tests.gateway.handlers.requests import alter
from tests.gateway.handlers.support import Node

CLIENT_METRICS = 16


async def subscribe(node: Node, name: str = "s", **values: str | None) -> None:
    """Set values of a subscription; `_` stands for `.` in a name."""
    named = {key.replace("_", "."): value for key, value in values.items()}
    assert (await alter(node, CLIENT_METRICS, name, named)).error_code == 0


async def ask(node: Node, client_instance_id: uuid.UUID | None = None) -> Any:
    """Return the answer to GetTelemetrySubscriptions."""
    return await node.ask(
        client_telemetry.GET_TELEMETRY_SUBSCRIPTIONS_API,
        0,
        lambda _: {"client_instance_id": client_instance_id},
    )


async def push(node: Node, asked: Any, metrics: bytes = b"", **changes: Any) -> str:
    """Push metrics as the client that got the answer `asked`; return the name of the error."""
    fields = {
        "client_instance_id": asked.client_instance_id,
        "subscription_id": asked.subscription_id,
        "terminating": False,
        "compression_type": 0,
        "metrics": metrics,
        **changes,
    }
    answer = await node.ask(client_telemetry.PUSH_TELEMETRY_API, 0, lambda _: fields)
    return str(answer.error_code.name)
