"""The authorizer decides as the naive model does, whatever entries are added and removed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.security.acls import authorizer as authorizer_module
from seqgate.gateway.security.acls.access import AclEntry, Operation, PatternType, Permission, ResourceType
from seqgate.gateway.security.acls.authorizer import Authorizer
from tests.models import acls

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
HOST = "192.0.2.7"

NAMES = ["*", "a", "ab", "abc", "b", "hardcode", "hard", "äb", "*x"]
ENTRIES = st.builds(
    AclEntry,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:*", "User:a", "User:b", "Group:a"]),
    st.sampled_from(["*", HOST, "192.0.2.8", ""]),
    st.sampled_from([operation for operation in Operation if operation >= Operation.ALL]),
    st.sampled_from([ALLOW, DENY]),
)
ASKED = st.tuples(
    st.sampled_from(["User:a", "User:b", "User:root", "User:*"]),
    st.sampled_from([HOST, "192.0.2.8"]),
    st.sampled_from([operation for operation in Operation if operation > Operation.ALL]),
    st.sampled_from([TOPIC, GROUP]),
)


@given(
    st.lists(st.tuples(st.booleans(), ENTRIES), max_size=12),
    st.lists(ASKED, min_size=1, max_size=6),
    st.booleans(),
)
def test_it_decides_as_the_model(
    changes: list[tuple[bool, AclEntry]],
    asked: list[tuple[str, str, Operation, ResourceType]],
    everyone: bool,
) -> None:
    authorizer = Authorizer({"User:root"}, allow_everyone_if_no_acl=everyone)
    present: list[AclEntry] = []
    for is_new, entry in changes:
        generation = authorizer.generation
        if is_new or entry not in present:
            authorizer.add(entry)
            present.append(entry)
        else:
            authorizer.remove(entry)
            present.remove(entry)
        assert authorizer.generation > generation
        for principal, host, operation, resource_type in asked:
            who = (principal, host, operation, resource_type)
            for name in [*NAMES, "", "abcd"]:
                expected = acls.allows(present, {"User:root"}, everyone, *who, name)
                assert authorizer.allows(*who, name) == expected
            assert authorizer.allows_some(*who) == acls.allows_some(present, {"User:root"}, everyone, *who)


@given(st.lists(ENTRIES, max_size=8))
def test_nothing_is_left_of_entries_that_were_removed(entries: list[AclEntry]) -> None:
    authorizer = Authorizer()
    for entry in entries:
        authorizer.add(entry)
    for entry in entries:
        authorizer.remove(entry)
    assert not authorizer._rules
    assert not any(authorizer._patterns.values())


def allow(name: str, operation: Operation = Operation.WRITE, **changed: object) -> AclEntry:
    entry = AclEntry(TOPIC, name, LITERAL, "User:a", "*", operation, ALLOW)
    return entry._replace(**changed)  # type: ignore[arg-type]


class TestHosts:
    @pytest.mark.parametrize("of_entry", ["::1", "0:0:0:0:0:0:0:1"])
    def test_an_ipv6_address_may_be_written_as_kafka_writes_it(self, of_entry: str) -> None:
        authorizer = Authorizer()
        authorizer.add(allow("t", host=of_entry))
        assert authorizer.allows("User:a", "::1", Operation.WRITE, TOPIC, "t")
        assert not authorizer.allows("User:a", "::2", Operation.WRITE, TOPIC, "t")

    def test_a_scope_stays(self) -> None:
        authorizer = Authorizer()
        authorizer.add(allow("t", host="fe80:0:0:0:0:0:0:7%eth0"))
        assert authorizer.allows("User:a", "fe80::7%eth0", Operation.WRITE, TOPIC, "t")
        assert not authorizer.allows("User:a", "fe80::7%eth1", Operation.WRITE, TOPIC, "t")

    def test_an_address_of_ipv4_within_ipv6_is_that_of_ipv4(self) -> None:
        authorizer = Authorizer()
        authorizer.add(allow("t", host=HOST))
        assert authorizer.allows("User:a", f"::ffff:{HOST}", Operation.WRITE, TOPIC, "t")

    @pytest.mark.parametrize(
        ("of_entry", "inside", "outside"),
        [
            ("10.0.0.0/8", "10.255.0.255", "11.0.0.0"),
            ("10.1.2.3/8", "::ffff:10.0.0.0", "::ffff:11.0.0.0"),
            ("192.168.7.7/32", "192.168.7.7", "192.168.7.8"),
            ("2001:db8::/32", "2001:db8:7::1%eth0", "2001:db9::1"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
        ],
    )
    def test_an_entry_may_name_a_range(self, of_entry: str, inside: str, outside: str) -> None:
        authorizer = Authorizer()
        authorizer.add(allow("t", host=of_entry))
        assert authorizer.allows("User:a", inside, Operation.WRITE, TOPIC, "t")
        assert not authorizer.allows("User:a", outside, Operation.WRITE, TOPIC, "t")
        authorizer.add(allow("t", host=of_entry, permission=Permission.DENY))
        assert not authorizer.allows("User:a", inside, Operation.WRITE, TOPIC, "t")

    def test_what_is_no_range_is_text(self) -> None:
        authorizer = Authorizer()
        for host in ("10.0.0.0/33", "10.0.0.0/255.0.0.0", "a/b", "/"):
            authorizer.add(allow("t", host=host))
        assert not authorizer.allows("User:a", "10.0.0.0", Operation.WRITE, TOPIC, "t")


class TestRememberedDecisions:
    def test_their_number_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(authorizer_module, "DECISIONS", 10)
        authorizer = Authorizer()
        authorizer.add(allow("t5"))
        for number in range(100):
            assert authorizer.allows("User:a", HOST, Operation.WRITE, TOPIC, f"t{number}") == (number == 5)
            assert len(authorizer._decisions) <= 10

    def test_a_long_name_is_not_remembered(self) -> None:
        authorizer = Authorizer()
        assert not authorizer.allows("User:a", HOST, Operation.READ, GROUP, "g" * 30_000)
        assert not authorizer._decisions


def test_a_decision_looks_only_at_the_entries_of_the_name() -> None:
    authorizer = Authorizer()
    for number in range(2_000):
        authorizer.add(allow(f"topic-{number}"))
        authorizer.add(allow(f"topic-{number}-", pattern_type=PREFIXED))
    looked_up: list[str] = []
    holding = authorizer._rules[TOPIC, "User:a"]

    class Counted(dict[str, object]):
        def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
            looked_up.append(name)
            return super().get(name, default)

    holding.literal = Counted(holding.literal)  # type: ignore[assignment]
    holding.prefixed = Counted(holding.prefixed)  # type: ignore[assignment]
    assert authorizer.allows("User:a", HOST, Operation.WRITE, TOPIC, "topic-77-x")
    assert len(looked_up) <= 10
