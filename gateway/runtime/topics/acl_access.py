"""The authorizer of this node: it decides by the access control entries of the metadata log. A change counts
before its request is answered: the metadata log calls its listeners first.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence

from seqgate.gateway.config import Config
from seqgate.gateway.config.authorization import parse_super_users
from seqgate.gateway.metadata.acls import entry_of
from seqgate.gateway.metadata.records import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.gateway.security.acls.access import Access, AclEntry, EverythingAllowed
from seqgate.gateway.security.acls.authorizer import Authorizer

logger = logging.getLogger(__name__)


def open_access(config: Config, metadata_log: MetadataLog) -> Access:
    """Return the authorizer of the settings, with the metadata's entries; without one all is allowed."""
    if not config.str("authorizer.class.name"):
        return EverythingAllowed()
    super_users = parse_super_users(config.str("super.users"))
    everyone = config.bool("allow.everyone.if.no.acl.found")
    authorizer = Authorizer(super_users, allow_everyone_if_no_acl=everyone)
    entries = _stored_entries(metadata_log)
    metadata_log.add_listener(_Following(authorizer, entries).metadata_changed)
    logger.info("the authorizer is on: entries %d, super users %d", len(entries), len(super_users))
    if not super_users and not entries and not everyone:
        logger.warning(
            "nobody may do anything: there is no access control entry, and super.users names nobody who "
            "could add the first"
        )
    return authorizer


def _stored_entries(metadata_log: MetadataLog) -> dict[uuid.UUID, AclEntry]:
    return dict(metadata_log.image.acls.by_id)


class _Following:
    """Keeps the entries of an authorizer equal to those of the metadata log."""

    def __init__(self, authorizer: Authorizer, entries: dict[uuid.UUID, AclEntry]) -> None:
        self._authorizer = authorizer
        self._entries = entries
        for entry in entries.values():
            authorizer.add(entry)

    async def metadata_changed(self, records: Sequence[MetadataRecord]) -> None:
        """Apply all records of a change before the authorizer decides again."""
        for record in records:
            if not isinstance(record, AccessControlEntryRecord | RemoveAccessControlEntryRecord):
                continue
            former = self._entries.pop(record.id, None)
            if former is not None:
                self._authorizer.remove(former)
            if isinstance(record, AccessControlEntryRecord):
                entry = self._entries[record.id] = entry_of(record)
                self._authorizer.add(entry)
