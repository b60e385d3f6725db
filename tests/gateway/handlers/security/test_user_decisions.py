from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.security.user_scram_credentials import (
    MAX_NAME_BYTES,
    MAX_SALT_BYTES,
    Deletion,
    Upsertion,
    alter_users,
    describe_users,
)
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from seqgate.gateway.metadata.users import StoredUsers
from seqgate.gateway.security.sasl.scram_credential import ScramHash, salt_password
from tests.support.scram import credential

SHA_256, SHA_512 = 1, 2


def setting(
    name: str = "ann", mechanism: int = SHA_256, iterations: int = 4096, **changed: bytes
) -> Upsertion:
    return Upsertion(
        name, mechanism, iterations, changed.get("salt", b"salt"), changed.get("salted_password", b"salted")
    )


def alter(
    stored: StoredUsers, *changes: Deletion | Upsertion, most: int = 100
) -> dict[str, ErrorCode | None]:
    """Alter and replay; return the error code of each user."""
    decision = alter_users(
        stored,
        [change for change in changes if isinstance(change, Deletion)],
        [change for change in changes if isinstance(change, Upsertion)],
        most=most,
    )
    for record in decision.records:
        assert isinstance(record, UserScramCredentialRecord | RemoveUserScramCredentialRecord)
        stored.replay(record)
    return {name: error.error_code if error else None for name, error in decision.answer.items()}


def test_a_credential_is_set_replaced_and_deleted() -> None:
    stored = StoredUsers()
    assert alter(stored, setting()) == {"ann": None}
    assert alter(stored, setting(mechanism=SHA_512)) == {"ann": None}
    assert alter(stored, setting(iterations=8192)) == {"ann": None}
    found = stored.find(ScramHash.SHA_256, "ann")
    assert found is not None
    assert found.iterations == 8192
    assert alter(stored, Deletion("ann", SHA_256)) == {"ann": None}
    assert stored.find(ScramHash.SHA_256, "ann") is None
    assert stored.find(ScramHash.SHA_512, "ann") is not None
    assert alter(stored, Deletion("ann", SHA_512)) == {"ann": None}
    assert stored.by_name == {}


def test_the_stored_credential_is_that_of_the_password() -> None:
    expected = credential(ScramHash.SHA_512, "pencil")
    salted = salt_password(ScramHash.SHA_512, b"pencil", expected.salt, 4096)
    stored = StoredUsers()
    alter(stored, Upsertion("ann", SHA_512, 4096, expected.salt, salted))
    assert stored.find(ScramHash.SHA_512, "ann") == expected


def test_bad_credentials_are_refused_one_by_one() -> None:
    unacceptable = ErrorCode.unacceptable_credential
    assert alter(
        StoredUsers(),
        setting("few", iterations=4095),
        setting("many", iterations=16385),
        setting("", mechanism=9),
        setting("unknown", mechanism=0),
        setting("other", mechanism=3, iterations=1),
        setting("x" * (MAX_NAME_BYTES + 1)),
        setting("salt", salt=b"x" * (MAX_SALT_BYTES + 1)),
        setting("password", salted_password=b"x" * (MAX_SALT_BYTES + 1)),
        setting("no password", salted_password=b""),
        setting("least", salt=b"", salted_password=b"x"),
        setting("most", iterations=16384),
        Deletion("nobody", SHA_256),
        Deletion("nothing", 7),
    ) == {
        "few": unacceptable,
        "many": unacceptable,
        "": unacceptable,
        "unknown": ErrorCode.unsupported_sasl_mechanism,
        "other": ErrorCode.unsupported_sasl_mechanism,
        "x" * (MAX_NAME_BYTES + 1): unacceptable,
        "salt": unacceptable,
        "password": unacceptable,
        "no password": unacceptable,
        "least": None,
        "most": None,
        "nobody": ErrorCode.resource_not_found,
        "nothing": ErrorCode.unsupported_sasl_mechanism,
    }


def test_a_user_may_be_named_once() -> None:
    stored = StoredUsers()
    alter(stored, setting("ann"), setting("bob"))
    twice = ErrorCode.duplicate_resource
    assert alter(stored, setting("ann"), setting("ann", SHA_512)) == {"ann": twice}
    assert alter(stored, Deletion("ann", SHA_256), setting("ann"), setting("cem")) == {
        "ann": twice,
        "cem": None,
    }
    assert alter(stored, Deletion("bob", SHA_256), Deletion("bob", SHA_256)) == {"bob": twice}
    assert alter(stored, Deletion("dan", SHA_256), setting("dan")) == {"dan": ErrorCode.resource_not_found}
    assert set(stored.by_name) == {"ann", "bob", "cem"}


def test_a_new_user_beyond_the_limit_is_refused() -> None:
    stored = StoredUsers()
    over = ErrorCode.policy_violation
    assert alter(stored, setting("ann"), setting("bob"), setting("cem"), most=2) == {
        "ann": None,
        "bob": None,
        "cem": over,
    }
    assert alter(stored, setting("ann", SHA_512), setting("dan"), most=2) == {"ann": None, "dan": over}
    assert alter(stored, setting("dan"), most=1) == {"dan": over}


def test_users_are_described() -> None:
    stored = StoredUsers()
    alter(stored, setting("ann"), setting("bob", SHA_512, 8192))
    assert dict(describe_users(stored, [])) == stored.by_name
    assert [name for name, _ in describe_users(stored, ["cat", "fay", "ann", "eve"])] == [
        "ann",
        "eve",
        "cat",
        "fay",
    ]
    found: dict[str, Any] = dict(describe_users(stored, ["bob", "nobody", "ann", "ann"]))
    assert list(found["bob"]) == [ScramHash.SHA_512]
    errors = {name: error.error_code for name, error in found.items() if isinstance(error, ApiError)}
    assert errors == {"nobody": ErrorCode.resource_not_found, "ann": ErrorCode.duplicate_resource}


NAMES = st.sampled_from(["ann", "bob", "", "ä"])
CHANGES = st.lists(
    st.one_of(
        st.builds(Deletion, NAMES, st.integers(-1, 3)),
        st.builds(
            Upsertion,
            NAMES,
            st.integers(-1, 3),
            st.integers(4095, 16385),
            st.binary(max_size=3),
            st.binary(max_size=3),
        ),
    ),
    max_size=5,
)


@given(st.lists(CHANGES, max_size=6))
def test_every_named_user_gets_one_answer_and_only_taken_changes_count(steps: list[Any]) -> None:
    stored = StoredUsers()
    for step in steps:
        before = {name: dict(known) for name, known in stored.by_name.items()}
        answers = alter(stored, *step, most=2)
        assert set(answers) == {change.name for change in step}
        for name, error in answers.items():
            if error is not None:
                assert stored.by_name.get(name) == before.get(name)
        assert len(stored.by_name) <= 2
        assert all(stored.by_name.values())
