"""The pages about users, access control entries and quotas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.guarded_gateway import PASSWORD, Guarded, guarded_gateway

NASTY = "<script>alert('1')</script>\"&\u202eevil"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_gateway(tmp_path_factory.mktemp("guarded")) as gateway:
        yield gateway


def log_in(console: ConsoleClient, user: str, password: str = PASSWORD, status: int = 200) -> str:
    return console.send("/login", {"username": user, "password": password, "to": "/topics"}, status=status)


@pytest.fixture
def console(guarded: Guarded) -> Iterator[ConsoleClient]:
    """A console with `ann` logged in, who may do everything."""
    with console_client(guarded.login) as client:
        log_in(client, "ann")
        yield client


@pytest.fixture
def as_bob(guarded: Guarded) -> Iterator[ConsoleClient]:
    """A console with `bob` logged in, who may do nothing."""
    with console_client(guarded.login) as client:
        log_in(client, "bob")
        yield client


USER_FIELDS = {"confirmed": "yes", "mechanism": ["SCRAM-SHA-256", "SCRAM-SHA-512"], "iterations": "4096"}


def test_a_user_is_added_gets_a_new_password_and_is_removed(console: ConsoleClient, guarded: Guarded) -> None:
    assert "New user carl" in text_of(console.page("/access/users/password?user=carl"))
    fields = {**USER_FIELDS, "user": "carl", "password": "first secret"}
    page = console.send("/access/users/password", fields)
    assert "User carl can log in with SCRAM-SHA-256 and SCRAM-SHA-512." in page
    assert "first secret" not in page
    assert "The user exists. The new password replaces" in console.page("/access/users/password?user=carl")
    console.send("/access/users/password", {**fields, "password": "second secret"})
    with console_client(guarded.login) as other:
        log_in(other, "carl", "first secret", status=403)
        log_in(other, "carl", "second secret")
    asked = console.send("/access/users/remove", {"user": "carl"})
    assert "connections stay until they close" in asked
    done = console.confirmed("/access/users/remove", {"user": "carl"}, typed="carl")
    assert "User carl can" in done
    assert "carl" not in text_of(console.page("/access/users"))
    assert any(row.get("principal") == "User:ann" for row in guarded.audited())


def test_a_refused_form_never_shows_the_password(console: ConsoleClient) -> None:
    for change, sentence in (
        ({"mechanism": []}, "no mechanism is chosen"),
        ({"iterations": "7"}, "iterations must be between 4096 and"),
        ({"user": " "}, "the name of the user is empty"),
        ({"user": "müller"}, "no user müller could log in"),
        ({"confirmed": "no"}, "New user dora"),
    ):
        fields = {**USER_FIELDS, "user": "dora", "password": "top secret", **change}
        answer = console.http.post("/access/users/password", data={"csrf": console.token(), **fields})
        assert sentence in text_of(answer.text)
        assert "top secret" not in answer.text
    assert "dora" not in text_of(console.page("/access/users"))


def test_names_of_users_are_text(console: ConsoleClient) -> None:
    name = NASTY.encode("ascii", errors="ignore").decode()
    fields = {**USER_FIELDS, "user": name, "password": "secret"}
    page = console.send("/access/users/password", fields).partition("<main")[2]
    assert "<script>" not in page
    assert "&lt;script&gt;alert(" in page
    asked = console.send("/access/users/remove", {"user": name})
    assert "<script>" not in asked.partition("<main")[2]
    console.confirmed("/access/users/remove", {"user": name}, typed=name)


def test_a_person_without_rights_is_refused_and_audited(as_bob: ConsoleClient, guarded: Guarded) -> None:
    for path in ("/access/users", "/access/acls", "/access/quotas"):
        assert "CLUSTER_AUTHORIZATION_FAILED" in text_of(as_bob.page(path)), path
    fields = {**USER_FIELDS, "user": "eve", "password": "secret"}
    answer = as_bob.http.post("/access/users/password", data={"csrf": as_bob.token(), **fields})
    assert answer.status_code == 400
    assert "CLUSTER_AUTHORIZATION_FAILED" in text_of(answer.text)
    entry = {"principal": "User:bob", "role": "produce", "topic": "secrets", "confirmed": "yes"}
    assert "CLUSTER_AUTHORIZATION_FAILED" in text_of(as_bob.send("/access/acls/add", entry, status=400))
    refused = [row for row in guarded.audited() if row.get("principal") == "User:bob"]
    assert {"AlterUserScramCredentials", "CreateAcls"} <= {str(row.get("request")) for row in refused}, (
        refused
    )


def test_entries_are_added_listed_and_removed(console: ConsoleClient) -> None:
    fields = {
        "principal": "User:bob",
        "role": "consume",
        "topic": "orders-",
        "group": "desk",
        "pattern": "PREFIXED",
    }
    asked = text_of(console.send("/access/acls/add", fields))
    assert "User:bob may READ topic orders-* from *" in asked
    done = text_of(console.confirmed("/access/acls/add", fields))
    assert "3 entries are added." in done
    assert "User:bob allow READ group desk* prefixed any" in done
    only = text_of(console.page("/access/acls?principal=bob&kind=TOPIC"))
    assert "group desk" not in only.partition("Clear")[2]
    entry = {
        "kind": "GROUP",
        "name": "desk",
        "pattern": "PREFIXED",
        "principal": "User:bob",
        "host": "*",
        "operation": "READ",
        "permission": "ALLOW",
    }
    assert "Removed: User:bob may READ group desk*" in text_of(
        console.confirmed("/access/acls/remove", entry)
    )
    assert "The entry was gone already." in text_of(
        console.send("/access/acls/remove", {**entry, "confirmed": "yes"})
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"principal": "ann", "role": "produce", "topic": "a"}, "must have the form User:NAME"),
        ({"principal": "User:a", "role": "produce"}, "the topic is empty"),
        ({"principal": "User:a", "role": "consume", "topic": "a"}, "the group is empty"),
        ({"principal": "User:a", "role": "single", "kind": "TOPIC", "name": "a"}, "no operation is chosen"),
        ({"principal": "User:a", "role": "single", "kind": "MOON"}, "there is no kind of resource"),
        ({"principal": "User:a", "role": "own"}, "there are no rights"),
        ({"principal": "User:a", "permission": "MAYBE"}, "must be ALLOW or DENY"),
    ],
)
def test_a_wrong_form_of_entries_is_told(
    console: ConsoleClient, fields: dict[str, str], sentence: str
) -> None:
    assert sentence in text_of(console.send("/access/acls/add", fields, status=400))


def test_operations_are_those_of_the_resource(console: ConsoleClient) -> None:
    fields = {
        "principal": NASTY + ":x",
        "role": "single",
        "kind": "CLUSTER",
        "operation": ["ALTER", "READ"],
        "permission": "DENY",
    }
    page = console.confirmed("/access/acls/add", fields)
    assert "1 entry is added." in page
    assert "<script>" not in page.partition("<main")[2]
    assert "deny ALTER cluster kafka-cluster" in text_of(page)


def test_quotas_are_set_changed_and_removed(console: ConsoleClient) -> None:
    ann = {"user-is": "named", "user": "ann"}
    fields = {**ann, "client-id-is": "default", "producer_byte_rate": "1048576", "request_percentage": "50"}
    asked = text_of(console.send("/access/quotas/edit", fields))
    assert "Change the quotas of user ann, every other client id?" in asked
    assert "producer_byte_rate no limit 1048576" in asked
    page = console.confirmed("/access/quotas/edit", fields)
    assert "producer_byte_rate 1048576 (1.0 MiB/s)" in text_of(page)
    emptied = {**fields, "producer_byte_rate": ""}
    refused = console.send("/access/quotas/edit", {**emptied, "request_percentage": "much"}, status=400)
    assert 'name="producer_byte_rate" value=""' in refused, "otherwise the next Set keeps the quota"
    assert 'name="request_percentage" value="much"' in refused
    changed = {**emptied, "request_percentage": "75.5"}
    asked = text_of(console.send("/access/quotas/edit", changed))
    assert "request_percentage 50 75.5" in asked
    assert "producer_byte_rate 1048576 no limit" in asked
    page = text_of(console.confirmed("/access/quotas/edit", changed))
    assert "request_percentage 75.5" in page
    assert "producer_byte_rate" not in page
    gone = {name: value for name, value in fields.items() if name.endswith(("is", "user"))}
    assert "There are no quotas yet" in text_of(console.confirmed("/access/quotas/remove", gone))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"producer_byte_rate": "1"}, "nothing is chosen that gets quotas"),
        ({"user-is": "named", "producer_byte_rate": "1"}, "the name of the user is empty"),
        ({"user-is": "default", "ip-is": "default"}, "an address has quotas of its own"),
        ({"ip-is": "default", "producer_byte_rate": "1"}, "is a quota of users and client ids"),
        ({"user-is": "default", "connection_creation_rate": "1"}, "is a quota of an address"),
        ({"user-is": "default", "producer_byte_rate": "much"}, "must be a number"),
        ({"user-is": "default", "producer_byte_rate": "1_000"}, "must be a number"),
        ({"user-is": "default", "producer_byte_rate": "-1"}, "INVALID_REQUEST"),
        ({"user-is": "default"}, "the form changes nothing"),
    ],
)
def test_a_wrong_form_of_quotas_is_told(
    console: ConsoleClient, fields: dict[str, str], sentence: str
) -> None:
    page = text_of(console.send("/access/quotas/edit", {**fields, "confirmed": "yes"}, status=400))
    assert sentence in page


@pytest.mark.parametrize("path", ["/access/users/remove", "/access/acls/remove", "/access/quotas/remove"])
def test_a_wrong_token_changes_nothing(console: ConsoleClient, path: str) -> None:
    console.send(path, {"user": "bob", "confirmed": "yes", "typed": "bob"}, token="0" * 64, status=403)


def test_a_cluster_without_authorizer_and_logins_says_how_to_get_them(shared_gateway: GatewayProcess) -> None:
    with console_client(shared_gateway.bootstrap) as open_console:
        assert "has no authorizer" in text_of(open_console.page("/access/acls"))
        assert "authorizer.class.name=" in open_console.page("/access/acls")
        assert "listener needs no login" in text_of(open_console.page("/access/users"))
