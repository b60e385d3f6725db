from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.quota.client_quotas import DEFAULT, Entity, Limits

MOST_SPECIFIC_FIRST: tuple[Entity, ...] = (
    ("ann", "app"),
    ("ann", DEFAULT),
    ("ann", None),
    (DEFAULT, "app"),
    (DEFAULT, DEFAULT),
    (DEFAULT, None),
    (None, "app"),
    (None, DEFAULT),
)


def limits(*entities: Entity) -> Limits:
    """Return the limits of these entities: 1 for the first, 2 for the second, and so on."""
    made = Limits()
    for number, entity in enumerate(entities, 1):
        made.change(entity, float(number))
    return made


@pytest.mark.parametrize(("first", "second"), [*combinations(MOST_SPECIFIC_FIRST, 2)])
def test_the_most_specific_quota_applies(first: Entity, second: Entity) -> None:
    for chosen in (limits(first, second), limits(second, first)):
        quota = chosen.quota_of("ann", "app")
        assert quota is not None
        assert quota.entity == first


@pytest.mark.parametrize(
    ("entity", "client"),
    [
        (("ann", "app"), ("ann", "app")),
        (("ann", DEFAULT), ("ann", "app")),
        (("ann", None), ("ann", "")),
        ((DEFAULT, "app"), ("ann", "app")),
        ((DEFAULT, DEFAULT), ("ann", "app")),
        ((DEFAULT, None), ("ann", "")),
        ((None, "app"), ("", "app")),
        ((None, DEFAULT), ("", "app")),
    ],
)
def test_whose_use_counts(entity: Entity, client: tuple[str, str]) -> None:
    quota = limits(entity).quota_of("ann", "app")
    assert quota is not None
    assert quota.client == client


def test_others_have_no_quota() -> None:
    named = limits(("ann", "app"), ("ann", None), (None, "app"))
    assert named.quota_of("bob", "other") is None
    assert limits().quota_of("ann", "app") is None


def test_an_empty_client_id_has_only_the_quota_of_its_user() -> None:
    quota = limits(*MOST_SPECIFIC_FIRST).quota_of("ann", "")
    assert quota is not None
    assert quota.entity == ("ann", None)
    assert limits((None, DEFAULT)).quota_of("ann", "") is None


NAMES = st.sampled_from([None, DEFAULT, "ann", "app"])
ENTITIES = st.tuples(NAMES, NAMES).filter(lambda entity: entity != (None, None))


@given(st.lists(st.tuples(ENTITIES, st.one_of(st.none(), st.floats(0.1, 9)))))
def test_any_history_of_changes_leaves_the_last_values(changes: list[tuple[Entity, float | None]]) -> None:
    changed = Limits()
    model: dict[Entity, float] = {}
    for entity, value in changes:
        changed.change(entity, value)
        model.pop(entity, None)
        if value is not None:
            model[entity] = value
    assert changed.is_set == bool(model)
    for user in ("ann", "bob"):
        for client_id in ("app", "other"):
            candidates: list[Entity] = [
                (user, client_id),
                (user, DEFAULT),
                (user, None),
                (DEFAULT, client_id),
                (DEFAULT, DEFAULT),
                (DEFAULT, None),
                (None, client_id),
                (None, DEFAULT),
            ]
            expected = next((model[entity] for entity in candidates if entity in model), None)
            quota = changed.quota_of(user, client_id)
            assert (quota and quota.per_second) == expected
