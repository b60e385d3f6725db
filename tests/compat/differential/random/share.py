"""A share group of two members: records that are acquired, accepted, released, rejected, and epochs that are
wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.random.sequence import World, drawn, one_of
from tests.compat.differential.share_member import (
    ACCEPT,
    FINAL,
    GAP,
    REJECT,
    RELEASE,
    another_member,
    fill,
    member_of_its_own,
    said,
)
from tests.support.wire import Plain

BEGUN_AFTER_MS = 2_000
READ_AFTER_MS = 100
member = one_of(0, 0, 1)
kind = one_of(ACCEPT, ACCEPT, RELEASE, REJECT, GAP)


class Share(World):
    family = "share"
    table: ClassVar = {
        "put": (4, drawn(one_of(1, 2, 5))),
        "fetch": (7, drawn(member, one_of(1, 2, 500))),
        "acknowledge": (7, drawn(member, kind, one_of(0, 1), one_of(1, 2, 9))),
        "fetch_and_acknowledge": (3, drawn(member, one_of(ACCEPT, REJECT), one_of(0, 1), one_of(1, 9))),
        "anywhere": (2, drawn(member, one_of((0, 0), (2, 2), (4, 4), (40, 44)), kind)),
        "at": (2, drawn(member, one_of(-2, 0, 7))),
        "missing_partition": (1, drawn(member)),
        "end_session": (1, drawn(member)),
    }
    length = 14

    def __init__(self, peer: Peer, name: str, topics: Sequence[Topic]) -> None:
        super().__init__(peer, name, topics)
        first = member_of_its_own(peer)
        self.members = [first, another_member(first)]
        self.held: list[list[tuple[int, int]]] = [[], []]
        """The runs of offsets that each member has acquired and not acknowledged."""
        for one in self.members:
            one.hear()
        self.has_begun = False
        self.put(1)

    def put(self, count: int) -> None:
        fill(self.members[0], count)

    def fetch(self, number: int, max_records: int, acks: Sequence[Plain] | None = None) -> None:
        one = self.members[number]
        limits = {"max_records": max_records}
        if one.session_epoch == 0:
            wait = READ_AFTER_MS if self.has_begun else BEGUN_AFTER_MS
            answer = one.open(max_wait=wait, **limits)  # type: ignore[arg-type]
            self.has_begun = True
        else:
            answer = one.fetch(acks=acks, max_wait=READ_AFTER_MS, **limits)
        self._take(number, answer)

    def _take(self, number: int, answer: Plain) -> None:
        for topic in answer.get("responses", ()):
            for partition in topic["partitions"]:
                self.held[number] += [
                    (run["first_offset"], run["last_offset"]) for run in partition["acquired_records"]
                ]

    def _said(self, number: int, kind: int, skipped: int, count: int) -> list[Plain]:
        """Return the acknowledgement of `count` offsets of the first run, after `skipped` ones; the others
        stay acquired.
        """
        if not self.held[number]:
            return []
        first, last = self.held[number].pop(0)
        begin = min(first + skipped, last)
        end = min(begin + count - 1, last)
        rest = [run for run in ((first, begin - 1), (end + 1, last)) if run[0] <= run[1]]
        self.held[number][:0] = rest
        return [said(begin, end, kind)]

    def acknowledge(self, number: int, kind: int, skipped: int, count: int) -> None:
        batches = self._said(number, kind, skipped, count)
        if batches:
            self.members[number].acknowledge(*batches)

    def fetch_and_acknowledge(self, number: int, kind: int, skipped: int, count: int) -> None:
        if self.members[number].session_epoch:
            self.fetch(number, 500, self._said(number, kind, skipped, count) or None)

    def anywhere(self, number: int, run: tuple[int, int], kind: int) -> None:
        """Acknowledge offsets that the member may have or not.

        No run lies on both sides of the start offset: Kafka answers UNKNOWN_SERVER_ERROR if nothing is in
        flight then.
        """
        self.members[number].acknowledge(said(*run, kind))

    def at(self, number: int, epoch: int) -> None:
        """Send an acknowledgement at a wrong session epoch."""
        if epoch != self.members[number].session_epoch:
            self.members[number].acknowledge(said(0, 0, ACCEPT), share_session_epoch=epoch)

    def missing_partition(self, number: int) -> None:
        one = self.members[number]
        if one.session_epoch:
            self._take(number, one.fetch(9, max_wait=0))

    def end_session(self, number: int) -> None:
        """End the session of a member that has nothing left to release: Kafka releases in the background."""
        one = self.members[number]
        if one.session_epoch and not self.held[number]:
            one.acknowledge(share_session_epoch=FINAL)
            one.session_epoch = 0

    def finish(self) -> None:
        for number in (0, 1):
            self.fetch(number, 500)
