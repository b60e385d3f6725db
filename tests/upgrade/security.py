"""Users, tokens, access control entries and client quotas of a gateway of any release: writes them, and reads
them again.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from seqgate.gateway.security.sasl.scram_credential import ScramHash, salt_password
from tests.support.scram import ScramClient
from tests.support.wire import Wire
from tests.upgrade.asking import Asking

PASSWORDS = {"ann": "open sesame", "bob": "pencil"}
HASHES = {"ann": (ScramHash.SHA_256, ScramHash.SHA_512), "bob": (ScramHash.SHA_512,)}
ITERATIONS = {"ann": 4_096, "bob": 5_000}
SALT = b"a kept grain"
LONGEST_MS = 100 * 365 * 86_400_000
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "delegation.token.secret.key": "the key of the fixtures",
    "delegation.token.max.lifetime.ms": str(LONGEST_MS),
    "delegation.token.expiry.time.ms": str(LONGEST_MS),
}
"""The settings under which a gateway has all of it, and no token expires."""
ANY = 1
ENTRIES: tuple[tuple[Any, ...], ...] = (
    # resource type, name, pattern, principal, host, operation, permission
    (2, "orders", 3, "User:ann", "*", 3, 3),
    (2, "orders", 3, "User:bob", "192.0.2.7", 4, 2),
    (2, "or", 4, "User:ann", "*", 8, 3),
    (2, "*", 3, "User:*", "*", 8, 3),
    (3, "gröup", 3, "User:ann", "*", 3, 3),
    (4, "kafka-cluster", 3, "User:bob", "*", 9, 3),
)
REMOVED_ENTRY = (2, "gone", 3, "User:ann", "*", 3, 3)
QUOTAS: tuple[tuple[dict[str, str | None], dict[str, float]], ...] = (
    ({"user": "ann"}, {"producer_byte_rate": 1024.0, "request_percentage": 12.5}),
    ({"user": "ann", "client-id": None}, {"consumer_byte_rate": 2048.0}),
    ({"client-id": "äpp"}, {"controller_mutation_rate": 0.5}),
    ({"user": None}, {"consumer_byte_rate": 1e12}),
    ({"ip": "192.0.2.7"}, {"connection_creation_rate": 7.0}),
)


def write_entries(asking: Asking) -> None:
    names = (
        *("resource_type", "resource_name", "resource_pattern_type"),
        *("principal", "host", "operation", "permission_type"),
    )
    rows = [dict(zip(names, entry, strict=True)) for entry in (*ENTRIES, REMOVED_ENTRY)]
    answer = asking.call("create_acls", 3, {"creations": rows})
    assert not any(result["error_code"] for result in answer["results"]), answer
    kind, name, pattern, principal, host, operation, permission = REMOVED_ENTRY
    removed = {
        **_filter(kind, name, pattern),
        "principal_filter": principal,
        "host_filter": host,
        "operation": operation,
        "permission_type": permission,
    }
    answer = asking.call("delete_acls", 3, {"filters": [removed]})
    assert len(answer["filter_results"][0]["matching_acls"]) == 1, answer


def _filter(kind: int, name: str | None, pattern: int) -> dict[str, Any]:
    return {"resource_type_filter": kind, "resource_name_filter": name, "pattern_type_filter": pattern}


def entries(asking: Asking) -> list[list[Any]]:
    """Return all access control entries, in the form of the manifest."""
    everything = {
        **_filter(ANY, None, ANY),
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    answer = asking.call("describe_acls", 3, everything)
    return sorted(
        [
            *(row["resource_type"], row["resource_name"], row["pattern_type"]),
            *(entry["principal"], entry["host"], entry["operation"], entry["permission_type"]),
        ]
        for row in answer["resources"]
        for entry in row["acls"]
    )


def write_quotas(asking: Asking) -> None:
    def change(entity: dict[str, str | None], quotas: dict[str, float], *, remove: bool) -> dict[str, Any]:
        return {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
            "ops": [{"key": key, "value": value, "remove": remove} for key, value in quotas.items()],
        }

    gone = {"user": "gone"}, {"producer_byte_rate": 1.0}
    for changes in ([change(*row, remove=False) for row in (*QUOTAS, gone)], [change(*gone, remove=True)]):
        answer = asking.call("alter_client_quotas", 1, {"entries": changes, "validate_only": False})
        assert not any(entry["error_code"] for entry in answer["entries"]), answer


def quotas(asking: Asking) -> list[list[Any]]:
    """Return all client quotas, in the form of the manifest."""
    answer = asking.call("describe_client_quotas", 1, {"components": [], "strict": False})
    return sorted(
        (
            [
                sorted([part["entity_type"], part["entity_name"]] for part in entry["entity"]),
                sorted([quota["key"], quota["value"]] for quota in entry["values"]),
            ]
            for entry in answer["entries"]
        ),
        key=str,
    )


def write_users(asking: Asking) -> None:
    def row(name: str, hashing: ScramHash) -> dict[str, Any]:
        iterations = ITERATIONS.get(name, 4_096)
        password = PASSWORDS.get(name, "gone").encode()
        return {
            "name": name,
            "mechanism": int(hashing),
            "iterations": iterations,
            "salt": SALT,
            "salted_password": salt_password(hashing, password, SALT, iterations),
        }

    rows = [row(name, hashing) for name, hashes in HASHES.items() for hashing in hashes]
    rows.append(row("gone", ScramHash.SHA_256))
    for each in rows:
        _alter_users(asking, [], [each])
    _alter_users(asking, [{"name": "gone", "mechanism": int(ScramHash.SHA_256)}], [])


def _alter_users(asking: Asking, deletions: Sequence[Any], upsertions: Sequence[Any]) -> None:
    answer = asking.call(
        "alter_user_scram_credentials", 0, {"deletions": deletions, "upsertions": upsertions}
    )
    assert not any(result["error_code"] for result in answer["results"]), answer


def users(asking: Asking) -> dict[str, list[list[int]]]:
    """Return the mechanism and iterations of each user's credentials."""
    answer = asking.call("describe_user_scram_credentials", 0, {"users": None})
    return {
        result["user"]: sorted([info["mechanism"], info["iterations"]] for info in result["credential_infos"])
        for result in answer["results"]
    }


def log_in(bootstrap: str, hashing: ScramHash, name: str, password: str, *, is_token: bool = False) -> Wire:
    """Return a connection on which a user, or a delegation token, has logged in."""
    wire = Wire(bootstrap)
    client = ScramClient(hashing, name, password, extensions=b",tokenauth=true" if is_token else b"")
    assert wire.call("sasl_handshake", 1, mechanism=hashing.mechanism).fields["error_code"] == 0
    first = wire.call("sasl_authenticate", 2, auth_bytes=client.first()).fields
    assert first["error_code"] == 0, (name, first)
    last = wire.call("sasl_authenticate", 2, auth_bytes=client.final(first["auth_bytes"])).fields
    assert last["error_code"] == 0, (name, last)
    assert last["auth_bytes"] == b"v=" + base64.b64encode(client.server_signature)
    return wire


def log_in_as_everybody(bootstrap: str, tokens: Sequence[Sequence[Any]]) -> None:
    """Log in as each user with each hash, and with each token."""
    for name, password in PASSWORDS.items():
        for hashing in HASHES[name]:
            log_in(bootstrap, hashing, name, password).close()
    for token_id, password, *_ in tokens:
        for hashing in ScramHash:
            log_in(bootstrap, hashing, token_id, password, is_token=True).close()


def write_tokens(bootstrap: str) -> None:
    """Create a token of `ann` that `bob` may renew, one that was renewed, and one that is gone."""
    with log_in(bootstrap, ScramHash.SHA_256, "ann", PASSWORDS["ann"]) as wire:
        made = [
            wire.call("create_delegation_token", 3, renewers=renewers, max_lifetime=-1).fields
            for renewers in ([{"principal_type": "User", "principal_name": "bob"}], [], [])
        ]
        assert not any(token["error_code"] for token in made), made
        renewed = wire.call("renew_delegation_token", 2, hmac=made[1]["hmac"], renew_period=LONGEST_MS // 2)
        removed = wire.call("expire_delegation_token", 2, hmac=made[2]["hmac"], expiry_time_period=-1)
        assert (renewed.fields["error_code"], removed.fields["error_code"]) == (0, 0)


def tokens(bootstrap: str) -> list[list[Any]]:
    """Return id, password, owner, requester, renewers and times of the tokens of `ann`."""
    with log_in(bootstrap, ScramHash.SHA_512, "ann", PASSWORDS["ann"]) as wire:
        answer = wire.call("describe_delegation_token", 3, owners=None).fields
    return sorted(
        [
            *(token["token_id"], base64.b64encode(token["hmac"]).decode()),
            *(token["principal_name"], token["token_requester_principal_name"]),
            [renewer["principal_name"] for renewer in token["renewers"]],
            *(token["issue_timestamp"], token["expiry_timestamp"], token["max_timestamp"]),
        ]
        for token in answer["tokens"]
    )
