"""`seqgate groups delete`: deletes groups without members.

The request and rows, the command, and the answers: any cluster's over the Kafka protocol, and a running
gateway's on the control socket. Functions that answer raise ControlError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from seqgate.gateway.admin.commands import Output, argument, asks
from seqgate.gateway.admin.completion import group_names
from seqgate.gateway.admin.groups.describing import (
    ClusterGroups,
    Consented,
    FoundGroup,
    LiveGroups,
    refusal_if_it_has_members,
)
from seqgate.gateway.admin.groups.members import SHARE
from seqgate.gateway.admin.operation import LiveGateway, as_control_error
from seqgate.gateway.admin.options import Asker, Opened, gateway_or_cluster
from seqgate.gateway.admin.request import ClusterAnswers, ControlError, Request, from_source
from seqgate.gateway.admin.tables import Block, Column, count, shown, table

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode

# The request for deletions, and what `seqgate groups delete --json` prints.


class GroupDeletion(msgspec.Struct, frozen=True):
    """The outcome for one group; `refusal`: why it can't be deleted. `state` is None for an unknown group."""

    group: Annotated[str, Column("group")]
    state: Annotated[str | None, Column("state")]
    committed_partitions: Annotated[int, Column("partitions", count)]
    deleted: bool
    refusal: str | None

    @property
    def outcome(self) -> Annotated[str, Column("")]:
        """The result in words: `deleted`, `would be deleted` for a dry run, or `can't be deleted`."""
        if self.refusal is not None:
            return "can't be deleted"
        return "deleted" if self.deleted else "would be deleted"


class GroupDeletions(msgspec.Struct, frozen=True):
    """One entry for each group named."""

    groups: list[GroupDeletion]


class DeleteGroupsRequest(Request[GroupDeletions], tag="groups.delete"):
    """Delete groups without members, and their offsets; without `execute` only report which they would be."""

    groups: list[str]
    execute: bool = False


# The command.


@asks(gateway_or_cluster)
def delete(
    opened: Opened[Asker],
    *,
    groups: list[str] = argument("GROUP", "Names of groups to delete.", autocompletion=group_names),
    consent: Consented,
) -> Output:
    """Delete groups with their offsets, or with what a share group has acknowledged.

    Shows which groups it would delete, and asks. With --json the command never asks: without --yes it only
    reports. A group with members is never deleted. Consumers that return to a deleted group begin at
    auto.offset.reset. Exits with 1 when a group can't be deleted.
    """
    with opened as client:
        done = consent.plan_ask_and_do(
            lambda execute: client.ask(DeleteGroupsRequest(groups, execute)),
            _deletions_text,
            "Delete them?",
            is_needed=lambda planned: any(entry.refusal is None for entry in planned.groups),
        )
    refusals = [shown(entry.refusal) for entry in done.groups if entry.refusal is not None]
    return Output(done, _deletions_text(done), refusals=refusals)


def _deletions_text(done: GroupDeletions) -> Iterator[Block]:
    yield table(GroupDeletion, done.groups)


# The answer, from what any source knows of groups.


async def delete_groups(
    source: ClusterDeletion | LiveDeletion, request: DeleteGroupsRequest
) -> GroupDeletions:
    """Delete each group that has no members, or report which groups could be deleted."""
    names = list(dict.fromkeys(request.groups))
    known = await source.find(names)
    entries = {name: await _planned(source, name, known.get(name)) for name in names}
    wanted = {name: known[name] for name in names if entries[name].refusal is None}
    if request.execute and wanted:
        for name, error in (await source.delete(wanted)).items():
            refusal = None if error is None else f"{name} was not deleted: {error}"
            entries[name] = msgspec.structs.replace(entries[name], deleted=error is None, refusal=refusal)
    return GroupDeletions(list(entries.values()))


async def _planned(
    source: ClusterDeletion | LiveDeletion, name: str, found: FoundGroup | None
) -> GroupDeletion:
    if found is None:
        return GroupDeletion(name, None, 0, deleted=False, refusal=f"there is no group {name}")
    read = await source.progress(name, found.type)
    count = len(read.committed) + len(read.delivered)
    return GroupDeletion(
        name, found.state, count, deleted=False, refusal=refusal_if_it_has_members(name, found)
    )


# Over the Kafka protocol: any cluster's answer. Raises ControlError.


class ClusterDeletion(ClusterGroups):
    """The groups of a cluster. The coroutines wait for nothing but the network."""

    async def delete(self, groups: Mapping[str, FoundGroup]) -> Mapping[str, str | None]:
        """Delete groups in one request for each coordinator."""
        from seqgate.gateway.admin.remote.broker import GROUP  # noqa: PLC0415 - slow to import
        from seqgate.gateway.admin.remote.cluster import refusal  # noqa: PLC0415

        def question(some: Sequence[str]) -> Any:
            return self._cluster.request(42, 2, groups_names=tuple(some))

        rows = self._cluster.ask_coordinators(GROUP, groups, question, is_change=True)
        return {
            name: refusal(row.error_code, getattr(row, "error_message", None)) for name, row in rows.items()
        }


OPERATIONS: Final[ClusterAnswers] = {DeleteGroupsRequest: from_source(ClusterDeletion, delete_groups)}


# In the gateway: its answer on the control socket.

MAX_DELETED_GROUPS: Final = 1_000
"""Groups that one request deletes; a request with more is refused."""


async def delete_groups_live(gateway: LiveGateway, request: DeleteGroupsRequest) -> GroupDeletions:
    """Delete each group that has no members, or report which groups could be deleted. Raises ControlError."""
    if not 1 <= len(request.groups) <= MAX_DELETED_GROUPS:
        raise ControlError(f"name 1 to {MAX_DELETED_GROUPS} groups to delete, not {len(request.groups)}")
    return await delete_groups(LiveDeletion(gateway), request)


class LiveDeletion(LiveGroups):
    """The groups that this gateway coordinates."""

    async def delete(self, groups: Mapping[str, FoundGroup]) -> Mapping[str, str | None]:
        from kio.schema.errors import ErrorCode  # noqa: PLC0415 - slow to import

        found = {name: await self._delete(name, group) for name, group in groups.items()}
        return {name: None if error is ErrorCode.none else error.name for name, error in found.items()}

    async def _delete(self, group_id: str, group: FoundGroup) -> ErrorCode:
        from kio.schema.errors import ErrorCode  # noqa: PLC0415 - slow to import

        from seqgate.gateway.handlers.groups.groups import delete_group  # noqa: PLC0415
        from seqgate.gateway.metadata.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC  # noqa: PLC0415

        if group.type == SHARE:
            with as_control_error(f"group {group_id}", SHARE_STATE_TOPIC):
                error = await self.services.coordinators.shares.delete_without_members(group_id)
            return ErrorCode.group_id_not_found if error is None else error
        with as_control_error(f"group {group_id}", OFFSETS_TOPIC):
            return await self.groups.run(
                group_id, lambda shard, effects: delete_group(shard, group_id, effects)
            )
