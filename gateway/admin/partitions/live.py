"""Brings offline partitions of a running gateway back."""

from __future__ import annotations

from seqgate.gateway.admin.operation import LiveGateway, check_led_here
from seqgate.gateway.admin.partitions.messages import Reopened, ReopenRequest
from seqgate.gateway.admin.request import ControlError, in_words
from seqgate.log import IncompatibleFormat, LogError


async def reopen(gateway: LiveGateway, request: ReopenRequest) -> Reopened:
    """Reopen the log of an offline partition, once the operator has removed the cause. Raises ControlError."""
    services = gateway.services
    name = f"{request.topic}-{request.partition}"
    partition = services.partitions.registry.get(request.topic, request.partition)
    if partition is None:
        check_led_here(services, request.topic, request.partition)
        raise ControlError(f"there is no partition {name}")
    log = partition.log
    if not log.offline:
        raise ControlError(f"{name} is not offline")
    try:
        await services.partitions.recoveries.reopen(log, partition)
    except (IncompatibleFormat, LogError, OSError) as error:
        raise ControlError(f"{name} stays offline: {in_words(error)}") from error
    return Reopened(request.topic, request.partition, log.log_start_offset, log.log_end_offset)
