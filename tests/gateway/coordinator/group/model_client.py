"""A simulated client of a classic group: it joins, syncs and sends heartbeats."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.events import JoinReply
from tests.gateway.coordinator.group.scene import Scene, Who


class Phase(enum.Enum):
    IDLE = "has nothing to do with the group"
    JOINING = "waits for the answer to its JoinGroup"
    JOINED = "knows the generation, has not synced"
    SYNCING = "waits for the answer to its SyncGroup"
    MEMBER = "has its assignment"


AT_AN_END = {
    ErrorCode.group_max_size_reached,
    ErrorCode.inconsistent_group_protocol,
    ErrorCode.fenced_instance_id,
}


@dataclass(eq=False)
class Client:
    """A client that reacts to errors as Kafka's consumer does, but leaves the group where the consumer would
    fail.
    """

    scene: Scene
    who: Who
    phase: Phase = Phase.IDLE
    waiter: int = 0
    reply: JoinReply | None = None
    """The coordinator's answer to JoinGroup, once the member has joined."""

    @property
    def place(self) -> str:
        """The name of the client in assignments: a static member's assignment outlives its member id."""
        return self.who.group_instance_id or self.who.member_id

    def join(self) -> None:
        self.phase = Phase.JOINING
        self.waiter = self.scene.join(self.who)

    def forget(self) -> None:
        """Lose the process or the connection without a LeaveGroup."""
        self.phase = Phase.IDLE
        self.who = self.who.named("")

    def sync(self, token: int) -> None:
        """Assign, as the leader, each member a text that contains the token and the member's name."""
        assert self.reply is not None
        assignments = {}
        if self.reply.leader == self.who.member_id and not self.reply.skip_assignment:
            assignments = {
                member_id: f"{token}/{instance_id or member_id}".encode()
                for member_id, instance_id, _ in self.reply.members
            }
        self.phase = Phase.SYNCING
        self.waiter = self.scene.sync(
            self.who.member_id,
            assignments,
            generation_id=self.reply.generation_id,
            group_instance_id=self.who.group_instance_id,
        )

    def heartbeat(self) -> ErrorCode:
        assert self.reply is not None
        return self.scene.heartbeat(self.who.member_id, self.reply.generation_id, self.who.group_instance_id)

    def step(self, token: int) -> bool:
        """Take the next step that the answers so far allow. Return False if the client can only wait."""
        if self.phase is Phase.MEMBER:
            error = self.heartbeat()
            if error is not ErrorCode.none:
                self._react(error)
            return error is not ErrorCode.none
        if self.phase is Phase.JOINED:
            self.sync(token)
            return True
        if self.phase is Phase.IDLE or self.scene.waits(self.waiter):
            return False
        error = self.scene.error(self.waiter)
        if error is not ErrorCode.none:
            self._react(error)
        elif self.phase is Phase.JOINING:
            self.reply = self.scene.joined(self.waiter)
            self.who = self.who.named(self.reply.member_id)
            self.phase = Phase.JOINED
        else:
            self.phase = Phase.MEMBER
        return True

    def _react(self, error: ErrorCode) -> None:
        if error in AT_AN_END:
            self.forget()
            return
        if error is ErrorCode.member_id_required:
            self.who = self.who.named(self.scene.joined(self.waiter).member_id)
        elif error is not ErrorCode.rebalance_in_progress:
            assert error in {ErrorCode.unknown_member_id, ErrorCode.illegal_generation}
            self.who = self.who.named("")
        self.join()
