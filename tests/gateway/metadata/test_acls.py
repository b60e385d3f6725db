from __future__ import annotations

import itertools
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.security.acls import create_acls, delete_acls
from seqgate.gateway.metadata.acls import StoredAcls, record_of
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import MetadataRecord, decode_record, encode_record
from seqgate.gateway.security.acls.access import (
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH


def entry(name: str = "orders", **changed: object) -> AclEntry:
    made = AclEntry(TOPIC, name, LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW)
    return made._replace(**changed)  # type: ignore[arg-type]


def ids() -> itertools.count[int]:
    return itertools.count(1)


class Image:
    """A metadata image. Each decision takes effect at once: its records are encoded, decoded and replayed."""

    def __init__(self, *entries: AclEntry, most: int = 100) -> None:
        self.image = MetadataImage()
        self._ids = ids()
        self._most = most
        if entries:
            self.create(*entries)

    @property
    def acls(self) -> StoredAcls:
        return self.image.acls

    def create(self, *entries: AclEntry | ApiError) -> list[ApiError | None]:
        decision = create_acls(self.acls, entries, lambda: uuid.UUID(int=next(self._ids)), most=self._most)
        self._carry_out(*decision.records)
        return decision.answer

    def delete(self, *filters: AclFilter | ApiError) -> list[list[AclEntry] | ApiError]:
        decision = delete_acls(self.acls, [self._matching(wanted) for wanted in filters])
        self._carry_out(*decision.records)
        return [found if isinstance(found, ApiError) else list(found) for found in decision.answer]

    def _carry_out(self, *records: MetadataRecord) -> None:
        for record in records:
            self.image.replay(decode_record(encode_record(record)))

    def _matching(self, wanted: AclFilter | ApiError) -> dict[uuid.UUID, AclEntry] | ApiError:
        if isinstance(wanted, ApiError):
            return wanted
        candidates = self.acls.candidates(wanted)
        return {entry_id: entry for entry_id, entry in candidates if wanted.matches(entry)}

    def found(self, wanted: AclFilter) -> set[AclEntry]:
        matching = self._matching(wanted)
        assert not isinstance(matching, ApiError)
        return set(matching.values())


class TestCreation:
    def test_an_entry_is_stored(self) -> None:
        image = Image()
        assert image.create(entry()) == [None]
        assert image.found(AclFilter()) == {entry()}

    def test_an_entry_that_exists_is_not_stored_again(self) -> None:
        image = Image(entry())
        assert image.create(entry(), entry("new"), entry("new")) == [None, None, None]
        assert len(image.acls) == 2

    def test_a_refused_entry_hinders_no_other(self) -> None:
        refused = ApiError(ErrorCode.invalid_request, "no")
        image = Image()
        assert image.create(refused, entry()) == [refused, None]
        assert len(image.acls) == 1

    def test_there_is_a_limit(self) -> None:
        image = Image(entry("a"), most=2)
        answers = image.create(entry("a"), entry("b"), entry("c"))
        assert answers[:2] == [None, None]
        assert answers[2] is not None
        assert answers[2].error_code is ErrorCode.policy_violation
        assert "seqgate.acls.max" in str(answers[2].message)
        assert len(image.acls) == 2


class TestDeletion:
    def test_each_filter_is_answered_with_all_that_it_finds(self) -> None:
        image = Image(entry("a"), entry("b"), entry("c"))
        answers = image.delete(AclFilter(name="a"), AclFilter(TOPIC, "a"), AclFilter(name="b"))
        assert answers == [[entry("a")], [entry("a")], [entry("b")]]
        assert image.found(AclFilter()) == {entry("c")}

    def test_an_entry_that_is_gone_meanwhile_is_neither_deleted_nor_answered(self) -> None:
        image = Image(entry("a"), entry("b"))
        found = image._matching(AclFilter())
        image.delete(AclFilter(name="a"))
        decision = delete_acls(image.acls, [found])
        assert [list(entries) for entries in decision.answer] == [[entry("b")]]  # type: ignore[arg-type]
        assert len(decision.records) == 1

    def test_a_deleted_entry_can_be_created_again(self) -> None:
        image = Image(entry())
        image.delete(AclFilter())
        image.create(entry())
        assert image.found(AclFilter(name="orders")) == {entry()}

    def test_a_refused_filter_hinders_no_other(self) -> None:
        refused = ApiError(ErrorCode.invalid_request, "no")
        assert Image(entry()).delete(refused, AclFilter()) == [refused, [entry()]]

    def test_the_removal_of_an_unknown_id_changes_nothing(self) -> None:
        image = Image(entry())
        other = Image(entry("x"), entry("y"))
        image._carry_out(*delete_acls(other.acls, [other._matching(AclFilter(name="y"))]).records)
        assert len(image.acls) == 1


class TestFilters:
    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            (AclFilter(name="orders"), {"orders", "orders+"}),
            (AclFilter(name="orders", pattern_type=LITERAL), {"orders"}),
            (AclFilter(name="orders", pattern_type=PREFIXED), {"orders+"}),
            (AclFilter(name="orders", pattern_type=MATCH), {"orders", "orders+", "o+", "*"}),
            (AclFilter(name="other", pattern_type=MATCH), {"o+", "*"}),
            (AclFilter(name="*", pattern_type=MATCH), {"*"}),
            (AclFilter(name="*"), {"*"}),
            (AclFilter(pattern_type=PREFIXED), {"orders+", "o+"}),
            (AclFilter(name="order"), set()),
        ],
    )
    def test_patterns(self, wanted: AclFilter, found: set[str]) -> None:
        image = Image(
            entry("orders"),
            entry("orders", pattern_type=PREFIXED),
            entry("o", pattern_type=PREFIXED),
            entry("*"),
        )
        shown = {each.name + "+" * (each.pattern_type is PREFIXED) for each in image.found(wanted)}
        assert shown == found

    @given(
        st.lists(
            st.builds(
                AclEntry,
                st.sampled_from([TOPIC, GROUP]),
                st.sampled_from(["a", "ab", "*", "b"]),
                st.sampled_from([LITERAL, PREFIXED]),
                st.sampled_from(["User:a", "User:*"]),
                st.sampled_from(["*", "h"]),
                st.sampled_from([Operation.READ, Operation.ALL]),
                st.sampled_from([Permission.ALLOW, Permission.DENY]),
            ),
            max_size=8,
        ),
        st.builds(
            AclFilter,
            st.sampled_from([ResourceType.ANY, TOPIC, GROUP]),
            st.sampled_from([None, "a", "ab", "abc", "*", ""]),
            st.sampled_from([PatternType.ANY, MATCH, LITERAL, PREFIXED]),
            st.sampled_from([None, "User:a", "User:*", "nobody"]),
            st.sampled_from([None, "*", "h"]),
            st.sampled_from([Operation.ANY, Operation.READ, Operation.ALL]),
            st.sampled_from([Permission.ANY, Permission.ALLOW, Permission.DENY]),
        ),
    )
    def test_the_index_hides_nothing(self, entries: list[AclEntry], wanted: AclFilter) -> None:
        image = Image(*entries)
        assert image.found(wanted) == {each for each in entries if wanted.matches(each)}
        image.delete(wanted)
        assert image.found(AclFilter()) == {each for each in entries if not wanted.matches(each)}
        image.delete(AclFilter())
        assert not image.acls._by_name
        assert not image.acls._times


def test_the_stored_form_is_that_of_kafkas_tools() -> None:
    record = record_of(uuid.UUID("f19c7319-dc40-44ae-a1b6-b2b2b584141a"), entry())
    assert encode_record(record) == (
        b'{"type":"ACCESS_CONTROL_ENTRY_RECORD","version":0,"data":{"id":"8ZxzGdxARK6htrKytYQUGg","resourceType":2,'
        b'"resourceName":"orders","patternType":3,"principal":"User:a","host":"*","operation":3,"permissionType":3}}'
    )
