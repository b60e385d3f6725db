"""The access control entries that the metadata log stores, and the decisions that change them.

Source: Kafka's AclControlManager.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.metadata.decision import ApiError, Decision
from seqgate.gateway.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from seqgate.gateway.security.acls.access import WILDCARD, AclEntry, AclFilter, PatternType

MOST_COMPARED: Final = 1_000_000
"""Entries that the filters of one deletion may be compared with; further filters are refused."""
TOO_MANY: Final = ApiError(
    ErrorCode.invalid_request,
    "The earlier filters of the request were compared with too many entries; send this filter in another "
    "request.",
)


def entry_of(record: AccessControlEntryRecord) -> AclEntry:
    return AclEntry(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def record_of(entry_id: uuid.UUID, entry: AclEntry) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        entry_id,
        entry.resource_type,
        entry.name,
        entry.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )


class StoredAcls:
    """The entries of the metadata image, by id and by resource name."""

    def __init__(self) -> None:
        self.by_id: dict[uuid.UUID, AclEntry] = {}
        self._times: Counter[AclEntry] = Counter()
        """How many ids each entry has. Decisions give an entry one id; another release may give it two."""
        self._by_name: dict[str, dict[uuid.UUID, AclEntry]] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, entry: AclEntry) -> bool:
        return entry in self._times

    def replay(self, record: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> None:
        """Replay one record. The removal of an unknown id changes nothing."""
        removed = self.by_id.pop(record.id, None)
        if removed is not None:
            self._times[removed] -= 1
            if not self._times[removed]:
                del self._times[removed]
            of_name = self._by_name[removed.name]
            del of_name[record.id]
            if not of_name:
                del self._by_name[removed.name]
        if isinstance(record, AccessControlEntryRecord):
            entry = entry_of(record)
            self.by_id[record.id] = entry
            self._times[entry] += 1
            self._by_name.setdefault(entry.name, {})[record.id] = entry

    def candidates(self, wanted: AclFilter) -> list[tuple[uuid.UUID, AclEntry]]:
        """Return the entries that must be compared with a filter."""
        return [each for entries in self._candidates(wanted) for each in entries.items()]

    def _candidates(self, wanted: AclFilter) -> Iterator[dict[uuid.UUID, AclEntry]]:
        name = wanted.name
        if name is None:
            yield self.by_id
            return
        names = [name]
        if wanted.pattern_type is PatternType.MATCH:
            names = list(dict.fromkeys([name, WILDCARD, *(name[:length] for length in range(1, len(name)))]))
        for each in names:
            entries = self._by_name.get(each)
            if entries:
                yield entries


def create_acls(
    stored: StoredAcls, wanted: Sequence[AclEntry | ApiError], new_id: Callable[[], uuid.UUID], *, most: int
) -> Decision[list[ApiError | None]]:
    """Create entries up to `most` in all; an error stands for an entry that was refused already."""
    new: dict[AclEntry, None] = {}
    answers: list[ApiError | None] = []
    for entry in wanted:
        if isinstance(entry, ApiError):
            answers.append(entry)
        elif entry in stored or entry in new:
            answers.append(None)
        elif len(stored) + len(new) >= most:
            text = (
                f"There are {most} access control entries already, as many as seqgate.acls.max allows; "
                "delete some or raise it."
            )
            answers.append(ApiError(ErrorCode.policy_violation, text))
        else:
            new[entry] = None
            answers.append(None)
    return Decision([record_of(new_id(), entry) for entry in new], answers)


FoundEntries = Mapping[uuid.UUID, AclEntry] | ApiError
"""The entries that a filter has found, or why it found none."""


def delete_acls(
    stored: StoredAcls, found: Iterable[FoundEntries]
) -> Decision[list[Collection[AclEntry] | ApiError]]:
    """Delete all entries that the filters have found and that are still there. The answer to each filter has
    all its entries, also those that another filter has found.
    """
    gone: dict[uuid.UUID, None] = {}
    answers: list[Collection[AclEntry] | ApiError] = []
    for entries in found:
        if isinstance(entries, ApiError):
            answers.append(entries)
            continue
        present = {entry_id: entry for entry_id, entry in entries.items() if entry_id in stored.by_id}
        gone.update(dict.fromkeys(present))
        answers.append(present.values())
    return Decision([RemoveAccessControlEntryRecord(entry_id) for entry_id in gone], answers)
