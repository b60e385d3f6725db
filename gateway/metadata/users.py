"""The SCRAM credentials that the metadata log stores. Source: Kafka's ScramImage."""

from __future__ import annotations

from seqgate.gateway.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from seqgate.gateway.security.sasl.scram_credential import ScramCredential, ScramHash


class StoredUsers:
    """The credentials of the metadata image, by user."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[ScramHash, ScramCredential]] = {}
        """The credentials of each user who has any."""

    def find(self, hashing: ScramHash, name: str) -> ScramCredential | None:
        """Return the credential of a user; None when the user has none for this mechanism."""
        return self.by_name.get(name, {}).get(hashing)

    def replay(self, record: UserScramCredentialRecord | RemoveUserScramCredentialRecord) -> None:
        """Replay one record. The removal of an unknown credential changes nothing."""
        if isinstance(record, UserScramCredentialRecord):
            self.by_name.setdefault(record.name, {})[record.mechanism] = ScramCredential(
                record.salt, record.stored_key, record.server_key, record.iterations
            )
            return
        credentials = self.by_name.get(record.name)
        if credentials is not None:
            credentials.pop(record.mechanism, None)
            if not credentials:
                del self.by_name[record.name]


def record_of_credential(
    name: str, hashing: ScramHash, credential: ScramCredential
) -> UserScramCredentialRecord:
    keys = (credential.salt, credential.stored_key, credential.server_key)
    return UserScramCredentialRecord(name, hashing, *keys, credential.iterations)
