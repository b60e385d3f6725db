"""Regular expressions match topics that the member which resolves them may describe."""

from __future__ import annotations

from collections.abc import Collection

from seqgate.gateway.coordinator.group.consumer_assignors import (
    EVERYTHING,
    REFRESH_INTERVAL_MS,
    RegexTopics,
    Sight,
)

NOW_MS = 1_000_000
TOPICS = ["mine", "hidden"]


class Resolver:
    """The expressions of a group; counts how often each is matched against the topics."""

    def __init__(self) -> None:
        self.topics = RegexTopics()
        self.matched: list[str] = []

    def resolve(
        self, *regexes: str, sight: Sight, now_ms: int = NOW_MS, afresh: bool = False
    ) -> dict[str, list[str]]:
        found = self.topics.resolve(regexes, self.match, sight, now_ms, afresh=afresh)
        return {regex: sorted(names) for regex, names in found.items()}

    def match(self, regex: str) -> Collection[str]:
        self.matched.append(regex)
        return TOPICS


def sight(*names: str, generation: int = 1) -> Sight:
    return Sight(generation, set(names).__contains__)


def test_without_an_authorizer_every_topic_matches() -> None:
    resolver = Resolver()
    assert resolver.resolve(".*", sight=EVERYTHING) == {".*": ["hidden", "mine"]}
    assert not resolver.topics.is_outdated(EVERYTHING, NOW_MS + REFRESH_INTERVAL_MS)


def test_a_resolved_expression_is_not_resolved_by_every_member() -> None:
    resolver = Resolver()
    assert resolver.resolve("a", sight=sight("mine")) == {"a": ["mine"]}
    assert resolver.resolve("a", sight=sight("mine", "hidden")) == {"a": ["mine"]}
    assert resolver.matched == ["a"]


def test_a_new_expression_is_resolved_by_the_rights_of_its_sender_and_the_others_stay() -> None:
    """A member that changes its expression with every heartbeat must not cause all expressions to be matched
    each time.
    """
    resolver = Resolver()
    resolver.resolve("a", sight=sight("mine"))
    assert resolver.resolve("a", "b", sight=sight("hidden")) == {"a": ["mine"], "b": ["hidden"]}
    assert resolver.matched == ["a", "b"]


def test_new_topics_resolve_all_by_the_rights_of_the_sender() -> None:
    resolver = Resolver()
    resolver.resolve("a", "b", sight=sight("mine"))
    assert resolver.resolve("a", "b", sight=sight("hidden"), afresh=True) == {
        "a": ["hidden"],
        "b": ["hidden"],
    }


def test_an_expression_that_nobody_has_any_more_is_forgotten() -> None:
    resolver = Resolver()
    resolver.resolve("a", sight=sight("mine"))
    assert resolver.resolve("b", sight=sight("mine")) == {"b": ["mine"]}
    assert resolver.resolve("a", "b", sight=sight("hidden")) == {"a": ["hidden"], "b": ["mine"]}


def test_rights_that_changed_before_a_new_expression_came_still_count_for_the_others() -> None:
    resolver = Resolver()
    resolver.resolve("a", sight=sight("mine", generation=1))
    after = sight(generation=2)
    assert resolver.resolve("a", "b", sight=after) == {"a": ["mine"], "b": []}
    assert resolver.topics.is_outdated(after, NOW_MS + REFRESH_INTERVAL_MS)


def test_changed_rights_count_after_the_interval() -> None:
    resolver = Resolver()
    before, after = sight("mine", generation=1), sight(generation=2)
    assert not resolver.topics.is_outdated(before, NOW_MS)
    resolver.resolve("a", sight=before)
    late = NOW_MS + REFRESH_INTERVAL_MS
    assert not resolver.topics.is_outdated(before, late)
    assert not resolver.topics.is_outdated(after, late - 1)
    assert resolver.topics.is_outdated(after, late)
    assert resolver.topics.is_outdated(after, NOW_MS - 1)
    assert resolver.resolve("a", sight=after, now_ms=late, afresh=True) == {"a": []}
    assert not resolver.topics.is_outdated(after, late + REFRESH_INTERVAL_MS)
