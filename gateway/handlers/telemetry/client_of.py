"""Describes the client that sent a telemetry request."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Final

from gateway.handlers.answering.api import RequestContext
from gateway.runtime.telemetry.telemetry import Telemetry
from gateway.telemetry.clients import ClientDescription

_KEY: Final = "telemetry"


def client_of(context: RequestContext[Telemetry], client_instance_id: uuid.UUID) -> ClientDescription:
    """Return the client of this id, and let the gateway forget its requests when the connection closes.

    As in Kafka, a connection stands for the client that used it last.
    """
    peer = context.peer
    peer.when_gone(_KEY, partial(context.services.disconnected, client_instance_id))
    return ClientDescription(
        client_instance_id,
        context.client_id,
        peer.software.name,
        peer.software.version,
        peer.peer_host,
        peer.peer_port,
    )
