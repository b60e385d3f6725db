"""Decides by access control lists. Source: Kafka's StandardAuthorizer, Authorizer.authorizeByResourceType.

An entry that denies beats every entry that allows, whatever pattern each has. A super user may do everything.
Where no entry applies, the operation is denied. With `allow.everyone.if.no.acl.found` it is allowed on a
resource to which no entry of anybody applies.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Final, Generic, TypeAlias, TypeVar

from seqgate.gateway.security.acls.access import (
    EVERYBODY,
    WILDCARD,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

DECISIONS: Final = 10_000
"""Cached decisions. Beyond this number all are dropped; a dropped decision is computed again when it
is needed.
"""
_LONGEST_NAME: Final = 255
"""A decision about a longer name, which a client may make up, is not cached."""
_ANY_NAME: Final = "hardcode"
"""The name for which Kafka asks first whether a client may act on some resource of a type."""

_DESCRIBING: Final = frozenset(
    {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
)
_DESCRIBING_CONFIGS: Final = frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS})
_GRANTED_BY: Final = {
    operation: frozenset({operation, Operation.ALL})
    | (_DESCRIBING if operation is Operation.DESCRIBE else frozenset())
    | (_DESCRIBING_CONFIGS if operation is Operation.DESCRIBE_CONFIGS else frozenset())
    for operation in Operation
}
"""The operations of entries that allow an operation. An entry that denies implies no other operation."""

_Verdicts: TypeAlias = dict[tuple[Operation, Permission], int]
"""The number of entries for each operation and permission."""
_Rules: TypeAlias = dict[str, _Verdicts]
"""The verdicts of one principal on one pattern, by host."""
_Decision: TypeAlias = tuple[str, str, Operation, ResourceType, str | None]


class Authorizer:
    """The `Access` that decides by access control entries."""

    is_on = True

    def __init__(self, super_users: Collection[str] = (), *, allow_everyone_if_no_acl: bool = False) -> None:
        self.generation = 0
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone_if_no_acl
        self._rules: dict[tuple[ResourceType, str], NamePatterns[_Rules]] = {}
        """The rules of each principal on the resources of each type."""
        self._patterns: dict[ResourceType, NamePatterns[list[int]]] = {}
        """The number of entries of each pattern, of all principals."""
        self._decisions: dict[_Decision, bool] = {}

    def add(self, entry: AclEntry) -> None:
        """Let the entry count from now on. An entry that is added twice must be removed twice."""
        holding = self._rules.setdefault((entry.resource_type, entry.principal), NamePatterns())
        rules: _Rules = holding.get_or_add(entry.pattern_type, entry.name, dict)
        verdicts = rules.setdefault(entry.host, {})
        verdict = (entry.operation, entry.permission)
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
        patterns = self._patterns.setdefault(entry.resource_type, NamePatterns())
        patterns.get_or_add(entry.pattern_type, entry.name, lambda: [0])[0] += 1
        self._changed()

    def remove(self, entry: AclEntry) -> None:
        """Let an entry, which was added, no longer count."""
        holder = (entry.resource_type, entry.principal)
        holding = self._rules[holder]
        rules: _Rules = holding.get_or_add(entry.pattern_type, entry.name, dict)
        verdicts, verdict = rules[entry.host], (entry.operation, entry.permission)
        verdicts[verdict] -= 1
        if not verdicts[verdict]:
            del verdicts[verdict]
        if not verdicts:
            del rules[entry.host]
        if not rules:
            holding.remove(entry.pattern_type, entry.name)
        if not holding:
            del self._rules[holder]
        patterns = self._patterns[entry.resource_type]
        entries = patterns.get_or_add(entry.pattern_type, entry.name, lambda: [0])
        entries[0] -= 1
        if not entries[0]:
            patterns.remove(entry.pattern_type, entry.name)
        self._changed()

    def _changed(self) -> None:
        self.generation += 1
        self._decisions.clear()

    def allows(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return whether the principal at this address may carry out the operation on the resource."""
        key = (principal, host, operation, resource_type, name)
        decided = self._decisions.get(key)
        if decided is None:
            decided = self._decide(principal, host, operation, resource_type, name)
            self._remember(key, decided)
        return decided

    def allows_some(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether there may be a resource of the type on which the principal may do the operation. As
        in Kafka, entries for another operation do not count, even if that operation implies this one.
        """
        key = (principal, host, operation, resource_type, None)
        decided = self._decisions.get(key)
        if decided is None:
            decided = self.allows(principal, host, operation, resource_type, _ANY_NAME) or self._finds_some(
                principal, host, operation, resource_type
            )
            self._remember(key, decided)
        return decided

    def _remember(self, key: _Decision, decided: bool) -> None:
        if len(self._decisions) >= DECISIONS:
            self._decisions.clear()
        if len(key[4] or "") <= _LONGEST_NAME:
            self._decisions[key] = decided

    def _decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        hosts, granting, is_allowed = host_texts(host), _GRANTED_BY[operation], False
        for holder in (principal, EVERYBODY):
            holding = self._rules.get((resource_type, holder))
            for rules in holding.matching(name) if holding is not None else ():
                for of_entry, permission in _verdicts(rules, hosts):
                    if permission is Permission.ALLOW:
                        is_allowed = is_allowed or of_entry in granting
                    elif of_entry in (operation, Operation.ALL):
                        return False
        return is_allowed or (self._allow_everyone and not self._has_entries(resource_type, name))

    def _has_entries(self, resource_type: ResourceType, name: str) -> bool:
        patterns = self._patterns.get(resource_type)
        return patterns is not None and any(True for _ in patterns.matching(name))

    def _finds_some(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether an entry allows the operation that no entry dominates: one that denies all names,
        the same name, or the same or a shorter prefix.
        """
        hosts = host_texts(host)
        denied: set[str] = set()
        denied_prefixes: set[str] = set()
        allowed: set[tuple[PatternType, str]] = set()
        for holder in (principal, EVERYBODY):
            for pattern_type, name, permission in self._verdicts_on_type(
                resource_type, holder, hosts, operation
            ):
                if permission is Permission.ALLOW:
                    allowed.add((pattern_type, name))
                elif pattern_type is PatternType.PREFIXED:
                    denied_prefixes.add(name)
                else:
                    denied.add(name)
        if WILDCARD in denied:
            return False
        if (PatternType.LITERAL, WILDCARD) in allowed:
            return True
        return any(
            not (pattern_type is PatternType.LITERAL and name in denied)
            and not any(name[:length] in denied_prefixes for length in range(1, len(name) + 1))
            for pattern_type, name in allowed
        )

    def _verdicts_on_type(
        self, resource_type: ResourceType, holder: str, hosts: tuple[str, ...], operation: Operation
    ) -> Iterator[tuple[PatternType, str, Permission]]:
        """Yield patterns with an entry of the holder for exactly this operation, or for all operations."""
        holding = self._rules.get((resource_type, holder))
        if holding is None:
            return
        for pattern_type, table in (
            (PatternType.LITERAL, holding.literal),
            (PatternType.PREFIXED, holding.prefixed),
        ):
            for name, rules in table.items():
                for of_entry, permission in _verdicts(rules, hosts):
                    if of_entry in (operation, Operation.ALL):
                        yield pattern_type, name, permission


def _verdicts(rules: _Rules, hosts: tuple[str, ...]) -> Iterator[tuple[Operation, Permission]]:
    """Yield the verdicts of the entries that apply to a client with these host texts."""
    for host in hosts:
        yield from rules.get(host, ())
    for of_entry, verdicts in rules.items():
        if "/" in of_entry and _is_within(hosts, of_entry):
            yield from verdicts


# The texts by which entries name the address of a client: the address, a range of addresses, or all.


@lru_cache(maxsize=1024)
def address_range(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the range of a host such as 10.0.0.0/8, from Kafka 4.4 on; None for a host that is no range."""
    try:
        return ipaddress.ip_network(text, strict=False) if text.rpartition("/")[2].isdecimal() else None
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _is_within(hosts: tuple[str, ...], text: str) -> bool:
    """Return whether a client with these host texts is in the range of an entry."""
    found = address_range(text)
    if found is None:
        return False
    for host in hosts:
        try:
            if ipaddress.ip_address(host.partition("%")[0]) in found:
                return True
        except ValueError:
            continue
    return False


@lru_cache(maxsize=1024)
def host_texts(host: str) -> tuple[str, ...]:
    """Return the hosts of the entries that apply to a client at this address. Kafka writes an IPv6 address in
    full, such as 0:0:0:0:0:0:0:1, and entries of Kafka have that text.
    """
    bare, percent, scope = host.partition("%")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return tuple(dict.fromkeys((WILDCARD, host)))
    if isinstance(address, ipaddress.IPv4Address):
        return (WILDCARD, host)
    mapped = address.ipv4_mapped
    if mapped is not None:
        return (WILDCARD, host, str(mapped))
    in_full = ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":")) + percent + scope
    return tuple(dict.fromkeys((WILDCARD, host, in_full)))


# A table of values by patterns of resource names. A look-up by a name does not compare every pattern.

V = TypeVar("V")


class NamePatterns(Generic[V]):
    """A table of values by literal names and by prefixes. A look-up tries each length that some prefix has:
    its cost depends on the number of lengths, not of patterns.
    """

    __slots__ = ("_lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, V] = {}
        self.prefixed: dict[str, V] = {}
        self._lengths: dict[int, int] = {}
        """The number of prefixes of each length."""

    def __bool__(self) -> bool:
        return bool(self.literal or self.prefixed)

    def matching(self, name: str) -> Iterator[V]:
        """Yield the values of all patterns that apply to a resource of this name."""
        found = self.literal.get(name)
        if found is not None:
            yield found
        found = self.literal.get(WILDCARD)
        if found is not None and name != WILDCARD:
            yield found
        for length in self._lengths:
            if length <= len(name):
                found = self.prefixed.get(name[:length])
                if found is not None:
                    yield found

    def get_or_add(self, pattern_type: PatternType, name: str, make: Callable[[], V]) -> V:
        """Return the value of a pattern, which gets a new value when it has none."""
        table = self._table(pattern_type)
        found = table.get(name)
        if found is None:
            found = table[name] = make()
            if table is self.prefixed:
                self._lengths[len(name)] = self._lengths.get(len(name), 0) + 1
        return found

    def remove(self, pattern_type: PatternType, name: str) -> None:
        """Remove a pattern, which must be in the table."""
        table = self._table(pattern_type)
        del table[name]
        if table is self.prefixed:
            self._lengths[len(name)] -= 1
            if not self._lengths[len(name)]:
                del self._lengths[len(name)]

    def _table(self, pattern_type: PatternType) -> dict[str, V]:
        return self.prefixed if pattern_type is PatternType.PREFIXED else self.literal
