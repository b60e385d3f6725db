"""Which certificates may replace the one of a running listener."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.security.key_stores import (
    AllowedChanges,
    CertificateIdentity,
    Store,
    change_complaint,
    identity_of,
    read_key_pair,
)
from tests.support.certificates import Authority


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def identity(authority: Authority, folder: Path, common_name: str = "a", *names: str) -> CertificateIdentity:
    certified = authority.listener(common_name, names=names or ("localhost",))
    return identity_of(read_key_pair(Store(str(certified.write_pem(folder / "own.pem")))))


def test_another_key_with_the_same_names_is_fine(authority: Authority, tmp_path: Path) -> None:
    present, new = identity(authority, tmp_path), identity(authority, tmp_path)
    assert change_complaint(present, new, AllowedChanges()) is None


def test_capitals_and_spaces_make_no_other_subject(authority: Authority, tmp_path: Path) -> None:
    present, new = identity(authority, tmp_path, "my host"), identity(authority, tmp_path, "My  Host")
    assert change_complaint(present, new, AllowedChanges()) is None


def test_another_subject_must_be_allowed(authority: Authority, tmp_path: Path) -> None:
    present, new = identity(authority, tmp_path), identity(authority, tmp_path, "b")
    complaint = change_complaint(present, new, AllowedChanges(alternative_names=True))
    assert complaint is not None
    assert "ssl.allow.dn.changes=true" in complaint
    assert change_complaint(present, new, AllowedChanges(subject=True)) is None


def test_names_may_be_added_but_not_left_out(authority: Authority, tmp_path: Path) -> None:
    few, more = identity(authority, tmp_path), identity(authority, tmp_path, "a", "localhost", "kafka.test")
    assert change_complaint(few, more, AllowedChanges()) is None
    complaint = change_complaint(more, few, AllowedChanges(subject=True))
    assert complaint is not None
    assert "(kafka.test)" in complaint
    assert change_complaint(more, few, AllowedChanges(alternative_names=True)) is None
