"""A missing right becomes a sentence with the command that gives it; other errors stay as they are."""

from __future__ import annotations

import pytest

from seqgate.gateway.console.rights import missing_right, operation_of


@pytest.mark.parametrize(
    ("error", "names", "sentence", "option"),
    [
        ("not authorized (CLUSTER_AUTHORIZATION_FAILED)", {}, "describe the cluster", "--cluster"),
        ("no (TOPIC_AUTHORIZATION_FAILED)", {"TOPIC": "a b"}, "describe topic a b", "--topic 'a b'"),
        ("topic orders: no (TOPIC_AUTHORIZATION_FAILED)", {}, "describe topic orders", "--topic orders"),
        ("no (GROUP_AUTHORIZATION_FAILED)", {}, "describe the group", "--group NAME"),
        (
            "no (TRANSACTIONAL_ID_AUTHORIZATION_FAILED)",
            {"TRANSACTIONAL_ID": "pay"},
            "describe transactional id pay",
            "--transactional-id pay",
        ),
    ],
)
def test_a_missing_right_names_its_command(
    error: str, names: dict[str, str], sentence: str, option: str
) -> None:
    found = missing_right(error, "bob", "describe", names)
    assert found is not None
    assert found.sentence.startswith(f"user bob lacks the right to {sentence} (")
    assert found.command == f"seqgate acls add --allow-principal User:bob --operation describe {option}"


def test_a_client_without_a_login_is_anonymous() -> None:
    found = missing_right("(CLUSTER_AUTHORIZATION_FAILED)", "", "alter")
    assert found is not None
    assert found.sentence.startswith("a client without a login lacks the right to alter the cluster")
    assert "User:ANONYMOUS" in found.command


def test_another_error_is_no_missing_right() -> None:
    assert missing_right("the broker did not answer (REQUEST_TIMED_OUT)", "bob", "describe") is None


@pytest.mark.parametrize(
    ("path", "changes", "operation"),
    [
        ("/", False, "describe"),
        ("/records/{topic}", False, "read"),
        ("/records/{topic}/produce", True, "write"),
        ("/cluster/settings", False, "describe-configs"),
        ("/topics/{topic}/settings", True, "alter-configs"),
        ("/access/quotas/edit", True, "alter-configs"),
        ("/groups/reset", True, "read"),
        ("/topics/{topic}/delete", True, "delete"),
        ("/create-topic", True, "create"),
        ("/transactions/abort-hanging", True, "write"),
        ("/cluster/move", True, "alter"),
    ],
)
def test_the_operation_of_a_page(path: str, changes: bool, operation: str) -> None:
    assert operation_of(path, changes=changes) == operation
