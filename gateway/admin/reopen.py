"""`seqgate reopen`: brings an offline partition back."""

from __future__ import annotations

import msgspec

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.commands import Output, argument, asks
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.operation import LiveGateway, check_led_here
from seqgate.gateway.admin.options import Opened, gateway
from seqgate.gateway.admin.request import ControlError, Request, in_words

# The request to reopen a partition, and what `seqgate reopen --json` prints.


class Reopened(msgspec.Struct, frozen=True):
    """A partition back in service; its log goes from `log_start_offset` to `log_end_offset` (exclusive)."""

    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int


class ReopenRequest(Request[Reopened], tag="reopen"):
    """The request to bring an offline partition back into service."""

    topic: str
    partition: int


# The command.


@asks(gateway)
def reopen(
    opened: Opened[Client],
    topic: str = argument("TOPIC", autocompletion=topic_names, show_default=False),
    partition: int = argument("PARTITION", min=0, show_default=False),
) -> Output:
    """Bring an offline partition back.

    A failed write or flush takes a partition offline; the others stay in service. Once the disk has room and
    works again, reopening reads the partition's files as after a crash: acknowledged records are there, a
    torn end is truncated. `seqgate status` lists the offline partitions.
    """
    with opened as client:
        answer = client.ask(ReopenRequest(topic, partition))
    offsets = f"{answer.log_start_offset} up to {answer.log_end_offset}"
    return Output(answer, [f"{topic}-{partition} is back: offsets {offsets}."])


# In the gateway: its answer on the control socket.


async def reopen_partition(gateway: LiveGateway, request: ReopenRequest) -> Reopened:
    """Reopen an offline partition's log, once the operator has removed the cause. A partition whose files
    could not be opened is recovered first. Raises ControlError.
    """
    from seqgate.log import IncompatibleFormat, LogError  # noqa: PLC0415 - slow to import

    services, topic, index = gateway.services, request.topic, request.partition
    registry, recoveries = services.partitions.registry, services.partitions.recoveries
    name = f"{topic}-{index}"
    if not registry.has(topic, index):
        raise ControlError(f"there is no partition {name}")
    check_led_here(services, topic, index)
    was_offline = registry.by_name[topic].is_unusable(index)
    partition = registry.get(topic, index)
    if partition is None:
        await recoveries.open(services.partitions.log_directory, (topic, index))
        partition = registry.get(topic, index)
    if partition is None:
        raise ControlError(f"{name} stays offline: it can't be opened, and the gateway's log says why")
    log = partition.log
    if not was_offline:
        raise ControlError(f"{name} is not offline")
    try:
        if log.offline:
            await recoveries.reopen(log, partition)
    except (IncompatibleFormat, LogError, OSError) as error:
        raise ControlError(f"{name} stays offline: {in_words(error)}") from error
    return Reopened(topic, index, log.log_start_offset, log.log_end_offset)
