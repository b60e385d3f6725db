"""Answers one request of the control socket: decodes it, runs its operation as a task, and notes what it changed in the audit log."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Union

import msgspec

from gateway.admin.caller import caller_of, note_change
from gateway.admin.live_gateway import LiveGateway
from gateway.admin.operations import OPERATIONS, answer_live, changes_something, note_on
from gateway.admin.pids.blocks import BlockSource
from gateway.admin.pids.sources import gateway_source
from gateway.admin.request import Answer, ControlError, Elsewhere, Request
from gateway.admin.traffic import Traffic
from gateway.runtime.services import Services

logger = logging.getLogger(__name__)

OPERATION_TIMEOUT_S: Final = 30.0
"""Time for an operation; then the gateway answers with an error, and the operation continues as a task."""

_decoder: Final[msgspec.json.Decoder[Request[Any]]] = msgspec.json.Decoder(
    Union[tuple(operation.request for operation in OPERATIONS)]  # noqa: UP007 - `|` takes no list
)


def live_gateway(
    services: Services, source: BlockSource | None, traffic: Callable[[], Traffic], started_at_ms: int
) -> LiveGateway:
    """Return the gateway as operations see it; `source` is the store of its producer-id blocks, if it is not the gateway's own."""
    return LiveGateway(services, source or gateway_source(services), traffic, started_at_ms)


async def answer(gateway: LiveGateway, line: bytes, client: socket.socket) -> Answer:
    """Return the answer to the request in `line`, which came from `client`."""
    try:
        request = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return Answer(error=f"the request is not understood: {error}")
    tasks = gateway.services.node.tasks
    work = tasks.start(
        tasks.begin(f"seqgate {request.operation_name()}", is_brief=True), answer_live(gateway, request)
    )
    if changes_something(request):
        caller = caller_of(client)
        work.add_done_callback(partial(note_change, gateway.services.node.audit, caller, request))
    try:
        # An operation that takes longer continues. Stopping it halfway would leave a state that nobody asked for.
        result = await asyncio.wait_for(asyncio.shield(work), OPERATION_TIMEOUT_S)
    except ControlError as error:
        return Answer(error=str(error), is_elsewhere=isinstance(error, Elsewhere))
    except TimeoutError:
        return Answer(
            error=f"not done within {OPERATION_TIMEOUT_S:g} s; it continues, and `seqgate tasks` shows its progress"
        )
    except Exception as error:
        logger.exception("the control request %s failed", request)
        return Answer(error=f"the gateway failed to answer: {error}")
    return Answer(result=msgspec.Raw(msgspec.json.encode(result)), note=note_on(gateway, request))
