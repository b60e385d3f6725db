"""The members of consumer groups for `tests.performance.groups`: each has a connection and sends what a
consumer sends.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from tests.support.wire import Plain, decode, encode

HEARTBEAT_INTERVAL_S = 0.25
"""The interval of the heartbeats by which a member learns that others have joined. Consumers take 3 s by
default.
"""
SESSION_TIMEOUT_MS = 45_000
NO_GENERATION = -1
RETRY_S = 0.05
RETRIED_ERRORS = {14, 15, 16}
"""The coordinator is loading, not available, or elsewhere."""
REJOIN_ERRORS = {22, 27}
"""The group has another generation, or is about to get one."""
MEMBER_ID_REQUIRED = 79


@dataclass
class Group:
    """One group and the number of members that it gets."""

    name: str
    size: int
    full_generation: int = NO_GENERATION
    """The generation that has all members."""


class Member:
    """One group member with its own connection. It commits offsets of partition 0 of `topic`."""

    def __init__(self, host: str, port: int, group: Group, topic: str) -> None:
        self._address = host, port
        self._group = group
        self._topic = topic
        self._member_id = ""
        self.generation_id = NO_GENERATION
        self._correlation_id = 0
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    async def leave(self) -> None:
        """Leave the group and hang up."""
        if self._member_id:
            leaving = [{"member_id": self._member_id, "group_instance_id": None, "reason": None}]
            await self.call("leave_group", 5, {"group_id": self._group.name, "members": leaving})
        self._writer.close()
        await self._writer.wait_closed()

    async def call(self, api: str, version: int, request: Plain) -> dict[str, Any]:
        self._correlation_id += 1
        frame = encode(api, version, request, correlation_id=self._correlation_id)
        answer = await self.exchange(frame)
        return decode(api, version, answer, correlation_id=self._correlation_id).fields

    async def exchange(self, frame: bytes) -> bytes:
        """Send one request and return its answer, both as bytes."""
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(size)

    async def settle(self) -> None:
        """Join the group, and wait until all its members have joined and are assigned."""
        await self.join()
        await self.await_others()

    async def await_others(self) -> None:
        """Stay a member by heartbeats, and join again when others join, until the group has all its members."""
        while self.generation_id != self._group.full_generation:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            error = (await self.call("heartbeat", 4, self._member_fields()))["error_code"]
            assert not error or error in REJOIN_ERRORS, error
            if error:
                await self.join()

    async def join(self) -> None:
        """Join until this member has an assignment."""
        group = self._group
        while True:
            joined = await self.call("join_group", 9, self._join_request())
            error = joined["error_code"]
            if error == MEMBER_ID_REQUIRED:
                self._member_id = joined["member_id"]
                continue
            if error in RETRIED_ERRORS:
                await asyncio.sleep(RETRY_S)
                continue
            assert not error, joined
            self._member_id = joined["member_id"]
            self.generation_id = joined["generation_id"]
            # the leader learns of all members, before any of them can have its assignment
            if len(joined["members"]) == group.size:
                group.full_generation = self.generation_id
            synced = await self.call("sync_group", 5, self._sync_request(joined["members"]))
            if not synced["error_code"]:
                return
            assert synced["error_code"] in REJOIN_ERRORS, synced

    def _member_fields(self) -> Plain:
        return {
            "group_id": self._group.name,
            "generation_id": self.generation_id,
            "member_id": self._member_id,
            "group_instance_id": None,
        }

    def _join_request(self) -> Plain:
        return {
            "group_id": self._group.name,
            "session_timeout": SESSION_TIMEOUT_MS,
            "rebalance_timeout": SESSION_TIMEOUT_MS,
            "member_id": self._member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}],
            "reason": None,
        }

    def _sync_request(self, members: list[dict[str, Any]]) -> Plain:
        assignments = [
            {"member_id": member["member_id"], "assignment": b"\0\0\0\0\0\0"} for member in members
        ]
        return {
            **self._member_fields(),
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": assignments,
        }

    def heartbeat_frame(self) -> bytes:
        return encode("heartbeat", 4, self._member_fields())

    def commit_frame(self) -> bytes:
        row = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        request = {
            "group_id": self._group.name,
            "generation_id_or_member_epoch": self.generation_id,
            "member_id": self._member_id,
            "group_instance_id": None,
            "topics": [{"name": self._topic, "partitions": [row]}],
        }
        return encode("offset_commit", 9, request)
