"""DescribeUserScramCredentials, AlterUserScramCredentials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.wire import Plain

SHA_256, SHA_512 = 1, 2


def _setting(
    name: str,
    mechanism: int = SHA_256,
    iterations: int = 4096,
    *,
    salt: bytes = b"salt",
    salted_password: bytes = b"salted",
) -> dict[str, Any]:
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": salt,
        "salted_password": salted_password,
    }


def _deletion(name: str, mechanism: int = SHA_256) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


def _alter(
    peer: Peer, upsertions: Sequence[dict[str, Any]] = (), deletions: Sequence[dict[str, Any]] = ()
) -> Plain:
    return peer.call(
        "alter_user_scram_credentials", 0, upsertions=list(upsertions), deletions=list(deletions)
    )


def _users(names: Sequence[str]) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def _settled(peer: Peer, name: str, count: int) -> None:
    """Wait until a user has so many credentials; brokers learn of a change after its answer."""
    peer.eventually(
        "describe_user_scram_credentials",
        0,
        lambda answer: len(answer["results"][0]["credential_infos"]) == count,
        users=_users([name]),
    )


@scenario
def set_replace_and_delete(peer: Peer) -> None:
    ann = peer.name("ann")
    _alter(peer, [_setting(ann)])
    _settled(peer, ann, 1)
    _alter(peer, [_setting(ann, SHA_512, 16384)])
    _settled(peer, ann, 2)
    _alter(peer, [_setting(ann, SHA_256, 8192)])
    peer.eventually(
        "describe_user_scram_credentials",
        0,
        lambda answer: any(info["iterations"] == 8192 for info in answer["results"][0]["credential_infos"]),
        users=_users([ann]),
    )
    _alter(peer, deletions=[_deletion(ann)])
    _settled(peer, ann, 1)
    _alter(peer, deletions=[_deletion(ann)])
    _alter(peer, deletions=[_deletion(ann, SHA_512)])
    _settled(peer, ann, 0)


REFUSED: dict[str, dict[str, Any]] = {
    "too few iterations": _setting("x", iterations=4095),
    "no iterations": _setting("x", iterations=0),
    "negative iterations": _setting("x", iterations=-1),
    "too many iterations": _setting("x", iterations=16385),
    "unknown mechanism": _setting("x", mechanism=0),
    "mechanism beyond": _setting("x", mechanism=3),
    "negative mechanism": _setting("x", mechanism=-1),
    "no name": _setting(""),
    "no name, no mechanism": _setting("", mechanism=7),
    "no mechanism, few iterations": _setting("x", mechanism=7, iterations=1),
}


@scenario_for_each(REFUSED)
def set_badly(peer: Peer, upsertion: dict[str, Any]) -> None:
    """Refuse one user; the user beside it goes through."""
    ann = peer.name("ann")
    _alter(peer, [upsertion])
    _alter(peer, [upsertion, _setting(ann)])
    _settled(peer, ann, 1)
    _alter(peer, deletions=[_deletion(ann)])


ODD: dict[str, tuple[bytes, bytes]] = {
    "no salt": (b"", b"salted"),
    "long password": (b"salt", b"x" * 500),
    "binary": (bytes(range(256)), bytes(range(256))),
}


@scenario_for_each(ODD)
def set_odd_secrets(peer: Peer, secrets: tuple[bytes, bytes]) -> None:
    ann = peer.name("ann")
    _alter(peer, [_setting(ann, salt=secrets[0], salted_password=secrets[1])])
    _settled(peer, ann, 1)
    _alter(peer, deletions=[_deletion(ann)])


@scenario
def set_no_password(peer: Peer) -> None:
    _alter(peer, [_setting(peer.name("ann"), salted_password=b"")])
    _alter(peer, deletions=[_deletion(peer.name("ann"))])


@scenario
def delete_badly(peer: Peer) -> None:
    _alter(peer, deletions=[_deletion(peer.name("nobody"))])
    _alter(peer, deletions=[_deletion("")])
    _alter(peer, deletions=[_deletion(peer.name("nobody"), 7)])
    _alter(peer, deletions=[_deletion("", 7)])
    _alter(peer)


@scenario
def name_a_user_twice(peer: Peer) -> None:
    ann, bob = peer.name("ann"), peer.name("bob")
    _alter(peer, [_setting(ann), _setting(ann, SHA_512)])
    _alter(peer, [_setting(ann), _setting(ann), _setting(ann)])
    _alter(peer, [_setting(ann), _setting(bob)])
    _settled(peer, bob, 1)
    _alter(peer, [_setting(ann)], [_deletion(ann)])
    _alter(peer, [_setting(ann, iterations=1)], [_deletion(ann)])
    _alter(peer, [_setting(peer.name("nobody"))], [_deletion(peer.name("nobody"))])
    _alter(peer, deletions=[_deletion(ann), _deletion(ann)])
    _alter(peer, deletions=[_deletion(ann), _deletion(ann, SHA_512)])
    _alter(peer, [_setting(ann, iterations=1), _setting(ann)])
    _settled(peer, ann, 1)
    _alter(peer, deletions=[_deletion(ann), _deletion(bob)])


@scenario
def describe_some(peer: Peer) -> None:
    ann, bob = peer.name("ann"), peer.name("bob")
    _alter(peer, [_setting(ann), _setting(bob, SHA_512, 5000)])
    _settled(peer, bob, 1)
    many = [*(peer.name(f"user {number}") for number in range(14)), ann]
    for names in ([ann, bob], [ann, ann], [ann, bob, ann], [peer.name("nobody"), ann], [""], many, many[1:]):
        peer.call("describe_user_scram_credentials", 0, users=_users(names))
    _alter(peer, deletions=[_deletion(ann), _deletion(bob, SHA_512)])
