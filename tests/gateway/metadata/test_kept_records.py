"""The records of security as a release stored them: a change of their format must read these bytes, too."""

from __future__ import annotations

import math
import uuid

import pytest

from seqgate.gateway.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)
from seqgate.gateway.security.acls.access import Operation, PatternType, Permission, ResourceType
from seqgate.gateway.security.sasl.scram_credential import ScramHash

ENTRY_ID = uuid.UUID("f19c7319-dc40-44ae-a1b6-b2b2b584141a")
KEPT: dict[bytes, MetadataRecord] = {
    b'{"type":"ACCESS_CONTROL_ENTRY_RECORD","version":0,"data":{"id":"8ZxzGdxARK6htrKytYQUGg","resourceType":2,'
    b'"resourceName":"orders","patternType":3,"principal":"User:ann","host":"*","operation":3,"permissionType":3}}': (
        AccessControlEntryRecord(
            ENTRY_ID,
            ResourceType.TOPIC,
            "orders",
            PatternType.LITERAL,
            "User:ann",
            "*",
            Operation.READ,
            Permission.ALLOW,
        )
    ),
    b'{"type":"REMOVE_ACCESS_CONTROL_ENTRY_RECORD","version":0,"data":{"id":"8ZxzGdxARK6htrKytYQUGg"}}': (
        RemoveAccessControlEntryRecord(ENTRY_ID)
    ),
    b'{"type":"CLIENT_QUOTA_RECORD","version":0,"data":{"entity":[{"entityType":"client-id",'
    b'"entityName":null},{"entityType":"user","entityName":"ann"}],'
    b'"key":"producer_byte_rate","value":1024.0,"remove":false}}': (
        ClientQuotaRecord((("client-id", None), ("user", "ann")), "producer_byte_rate", 1024.0)
    ),
    b'{"type":"CLIENT_QUOTA_RECORD","version":0,"data":{"entity":[{"entityType":"ip","entityName":"192.0.2.7"}],'
    b'"key":"connection_creation_rate","value":"inf","remove":true}}': (
        ClientQuotaRecord((("ip", "192.0.2.7"),), "connection_creation_rate", math.inf, True)
    ),
    b'{"type":"USER_SCRAM_CREDENTIAL_RECORD","version":0,"data":{"name":"ann","mechanism":1,"salt":"c2FsdA==",'
    b'"storedKey":"c3RvcmVk","serverKey":"c2VydmVy","iterations":4096}}': (
        UserScramCredentialRecord("ann", ScramHash.SHA_256, b"salt", b"stored", b"server", 4096)
    ),
    b'{"type":"REMOVE_USER_SCRAM_CREDENTIAL_RECORD","version":0,"data":{"name":"ann","mechanism":2}}': (
        RemoveUserScramCredentialRecord("ann", ScramHash.SHA_512)
    ),
    b'{"type":"DELEGATION_TOKEN_RECORD","version":0,"data":{"owner":"User:ann","requester":"User:bob",'
    b'"renewers":["User:carl"],"issueTimestamp":1700000000000,"maxTimestamp":1700000003000,'
    b'"expirationTimestamp":1700000002000,"tokenId":"FbQoR_TQ8m6f8EpAXRV_QQ"}}': DelegationTokenRecord(
        *("User:ann", "User:bob", ("User:carl",)),
        *(1_700_000_000_000, 1_700_000_003_000, 1_700_000_002_000, "FbQoR_TQ8m6f8EpAXRV_QQ"),
    ),
    b'{"type":"REMOVE_DELEGATION_TOKEN_RECORD","version":0,"data":{"tokenId":"FbQoR_TQ8m6f8EpAXRV_QQ"}}': (
        RemoveDelegationTokenRecord("FbQoR_TQ8m6f8EpAXRV_QQ")
    ),
}


@pytest.mark.parametrize("kept", KEPT)
def test_a_kept_record_is_read(kept: bytes) -> None:
    assert decode_record(kept) == KEPT[kept]


@pytest.mark.parametrize("kept", KEPT)
def test_a_record_is_written_as_it_was(kept: bytes) -> None:
    assert encode_record(KEPT[kept]) == kept
