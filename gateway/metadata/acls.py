"""The access control entries that the metadata log stores."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator

import msgspec

from seqgate.gateway.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from seqgate.gateway.security.acls.access import WILDCARD, AclEntry, AclFilter, PatternType


def entry_of(record: AccessControlEntryRecord) -> AclEntry:
    return AclEntry(*msgspec.structs.astuple(record)[1:])


def record_of(entry_id: uuid.UUID, entry: AclEntry) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(entry_id, *entry)


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
