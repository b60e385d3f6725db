"""Access control entries and questions about them: an input is a sequence of steps.

Each step adds an entry, removes one, asks what a principal may do, or finds entries by a filter. Every answer
must be that of a second, plain implementation of Kafka's rules, which looks at each entry.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from seqgate.gateway.security.acls.access import (
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from seqgate.gateway.security.acls.authorizer import Authorizer
from tests.fuzzing.target import Breach, Run

MAX_INPUT_BYTES = 1024
PEAK_BYTES = 16 << 20
BASE_WORK = 300.0
STEP_BYTES: Final = 9
ADD, REMOVE, ASK, ASK_SOME, FIND = range(5)
SUPER_USER: Final = "User:root"
PRINCIPALS: Final = (SUPER_USER, "User:ann", "User:bob", "User:*", "User:", "User:CN=a,O=b", "Group:ann")
HOSTS: Final = ("*", "10.0.0.1", "0:0:0:0:0:0:0:1", "::1", "", "fe80:0:0:0:0:0:0:1%eth0")
ADDRESSES: Final = ("10.0.0.1", "::1", "::ffff:10.0.0.1", "fe80::1%eth0", "10.0.0.2", "unknown")
TEXTS_OF_ADDRESSES: Final = (
    {"*", "10.0.0.1"},
    {"*", "::1", "0:0:0:0:0:0:0:1"},
    {"*", "::ffff:10.0.0.1", "10.0.0.1"},
    {"*", "fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"},
    {"*", "10.0.0.2"},
    {"*", "unknown"},
)
"""The hosts of the entries that apply to each address."""
NAMES: Final = (
    "*",
    "a",
    "ab",
    "abc",
    "b",
    "",
    "hardcode",
    "hard",
    "ä",
    "\0",
    "a" * 300,
    "*a",
    "kafka-cluster",
)
_OPERATIONS: Final = tuple(Operation)[2:]
_TYPES: Final = tuple(ResourceType)[2:]
T = TypeVar("T")
_PATTERNS: Final = (PatternType.LITERAL, PatternType.PREFIXED)
_PERMISSIONS: Final = (Permission.ALLOW, Permission.DENY)
_IMPLIED: Final = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
"""The operations of entries that allow another operation, too."""


class _PlainRules:
    """Kafka's rules, without tables and without memory."""

    def __init__(self, *, allows_unnamed: bool) -> None:
        self.entries: list[AclEntry] = []
        self._allows_unnamed = allows_unnamed

    def allows(
        self, principal: str, address: int, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        if principal == SUPER_USER:
            return True
        here = [entry for entry in self.entries if entry.resource_type is kind and _applies(entry, name)]
        mine = [entry for entry in here if _concerns(entry, principal, address)]
        granting = {operation, Operation.ALL} | _IMPLIED.get(operation, set())
        if any(
            entry.permission is Permission.DENY and entry.operation in (operation, Operation.ALL)
            for entry in mine
        ):
            return False
        if any(entry.permission is Permission.ALLOW and entry.operation in granting for entry in mine):
            return True
        return self._allows_unnamed and not here

    def allows_some(self, principal: str, address: int, operation: Operation, kind: ResourceType) -> bool:
        if self.allows(principal, address, operation, kind, "hardcode"):
            return True
        mine = [
            entry
            for entry in self.entries
            if entry.resource_type is kind
            and _concerns(entry, principal, address)
            and entry.operation in (operation, Operation.ALL)
        ]
        denied = [entry for entry in mine if entry.permission is Permission.DENY]
        return any(
            entry.permission is Permission.ALLOW and not any(_dominates(other, entry) for other in denied)
            for entry in mine
        )


def _applies(entry: AclEntry, name: str) -> bool:
    if entry.pattern_type is PatternType.PREFIXED:
        return name.startswith(entry.name)
    return entry.name in (name, "*")


def _concerns(entry: AclEntry, principal: str, address: int) -> bool:
    return entry.principal in (principal, "User:*") and entry.host in TEXTS_OF_ADDRESSES[address]


def _dominates(denial: AclEntry, entry: AclEntry) -> bool:
    """Return whether a denial covers the whole pattern of an entry that allows."""
    if denial.pattern_type is PatternType.LITERAL:
        if denial.name == "*":
            return True
        return entry.pattern_type is PatternType.LITERAL and denial.name == entry.name
    is_wildcard = entry.pattern_type is PatternType.LITERAL and entry.name == "*"
    return not is_wildcard and bool(denial.name) and entry.name.startswith(denial.name)


def _found(wanted: AclFilter, entry: AclEntry) -> bool:
    """Return whether a filter finds an entry: the plain rule of Kafka's AclBindingFilter and
    ResourcePatternFilter.
    """
    for field in ("resource_type", "operation", "permission"):
        code = getattr(wanted, field)
        if code.name != "ANY" and code is not getattr(entry, field):
            return False
    for field in ("principal", "host"):
        if getattr(wanted, field) is not None and getattr(wanted, field) != getattr(entry, field):
            return False
    if wanted.pattern_type in _PATTERNS and wanted.pattern_type is not entry.pattern_type:
        return False
    if wanted.name is None:
        return True
    if wanted.pattern_type is PatternType.MATCH:
        return _applies(entry, wanted.name)
    return entry.name == wanted.name


def _entry(step: bytes) -> AclEntry:
    return AclEntry(
        _one(_TYPES, step[1]),
        _one(NAMES, step[2]),
        _one(_PATTERNS, step[3]),
        _one(PRINCIPALS, step[4]),
        _one(HOSTS, step[5]),
        _one(_OPERATIONS, step[6]),
        _one(_PERMISSIONS, step[7]),
    )


def _filter(step: bytes) -> AclFilter:
    entry = _entry(step)
    absent = step[8]
    return AclFilter(
        ResourceType.ANY if absent & 1 else entry.resource_type,
        None if absent & 2 else entry.name,
        (entry.pattern_type, PatternType.ANY, PatternType.MATCH, entry.pattern_type)[absent >> 6],
        None if absent & 4 else entry.principal,
        None if absent & 8 else entry.host,
        Operation.ANY if absent & 16 else entry.operation,
        Permission.ANY if absent & 32 else entry.permission,
    )


def _one(values: Sequence[T], number: int) -> T:
    return values[number % len(values)]


class _Run:
    def __init__(self, *, allows_unnamed: bool) -> None:
        self._plain = _PlainRules(allows_unnamed=allows_unnamed)
        self._fast = Authorizer({SUPER_USER}, allow_everyone_if_no_acl=allows_unnamed)

    def step(self, step: bytes) -> None:
        kind, entries = step[0] % 5, self._plain.entries
        if kind == ADD:
            entries.append(_entry(step))
            self._fast.add(entries[-1])
        elif kind == REMOVE and entries:
            self._fast.remove(entries.pop(step[8] % len(entries)))
        elif kind == FIND:
            wanted = _filter(step)
            self._same([*map(wanted.matches, entries)], [_found(wanted, one) for one in entries], wanted)
        elif kind in (ASK, ASK_SOME):
            self._ask(step, is_some=kind == ASK_SOME)

    def _ask(self, step: bytes, *, is_some: bool) -> None:
        entry, address = _entry(step), step[8] % len(ADDRESSES)
        host = ADDRESSES[address]
        asked = entry.operation, entry.resource_type
        for _ in range(2):  # the second answer may be a remembered one
            if is_some:
                found = self._fast.allows_some(entry.principal, host, *asked)
                right = self._plain.allows_some(entry.principal, address, *asked)
            else:
                found = self._fast.allows(entry.principal, host, *asked, entry.name)
                right = self._plain.allows(entry.principal, address, *asked, entry.name)
            self._same(found, right, (entry, host, "some" if is_some else "one"))

    def _same(self, found: object, right: object, asked: object) -> None:
        if found != right:
            raise Breach(f"{asked}: {found} instead of {right}, with {self._plain.entries}")


@contextmanager
def opened() -> Iterator[Run]:
    def feed(data: bytes) -> None:
        run = _Run(allows_unnamed=bool(data[:1] and data[0] & 1))
        for at in range(1, len(data) - STEP_BYTES + 1, STEP_BYTES):
            run.step(data[at : at + STEP_BYTES])

    yield feed


def step_of(
    kind: int,
    name: str = "a",
    *,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:ann",
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
    last: int = 0,
) -> bytes:
    """Return the bytes of a step about topics, from any host; `last` chooses an address, an entry or the
    fields of a filter.
    """
    return bytes(
        [
            kind,
            _TYPES.index(ResourceType.TOPIC),
            NAMES.index(name),
            _PATTERNS.index(pattern),
            PRINCIPALS.index(principal),
            0,
            _OPERATIONS.index(operation),
            _PERMISSIONS.index(permission),
            last,
        ]
    )


def seeds() -> Iterator[bytes]:
    deny = Permission.DENY
    prefixed = PatternType.PREFIXED
    yield (
        b"\0" + step_of(ADD) + step_of(ASK) + step_of(ADD, permission=deny) + step_of(ASK) + step_of(ASK_SOME)
    )
    yield b"\1" + step_of(ASK) + step_of(ADD, "a", pattern=prefixed) + step_of(ASK, "abc") + step_of(REMOVE)
    yield b"\0" + b"".join(
        step_of(kind, name, pattern=pattern, permission=permission)
        for kind, name, pattern, permission in (
            (ADD, "ab", prefixed, Permission.ALLOW),
            (ADD, "a", prefixed, deny),
            (ASK_SOME, "a", prefixed, deny),
            (ADD, "*", PatternType.LITERAL, Permission.ALLOW),
            (ASK_SOME, "a", prefixed, deny),
            (FIND, "abc", prefixed, deny),
        )
    )


def mutated(data: bytes, chance: random.Random) -> bytes:
    steps = [data[at : at + STEP_BYTES] for at in range(1, len(data) - STEP_BYTES + 1, STEP_BYTES)]
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(steps) + 1)
        if steps and chance.random() < 0.3:
            one = bytearray(chance.choice(steps))
            one[chance.randrange(STEP_BYTES)] = chance.randrange(256)
            steps.insert(place, bytes(one))
        elif steps and chance.random() < 0.2:
            del steps[place % len(steps)]
        else:
            steps.insert(
                place, bytes([chance.choice((ADD, ADD, *range(5))), *chance.randbytes(STEP_BYTES - 1)])
            )
    return (data[:1] or b"\0") + b"".join(steps)
