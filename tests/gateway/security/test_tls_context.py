from __future__ import annotations

import os
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.gateway.security import tls_context
from seqgate.gateway.security.certificates import StoreError
from seqgate.gateway.security.key_stores import Store
from seqgate.gateway.security.tls_context import (
    TLS_1_3_SUITES,
    ClientTls,
    TlsSettings,
    build_context,
    client_context,
)
from tests.support.certificates import Authority

RSA_ONLY = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
EC = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


@pytest.fixture
def settings(tmp_path: Path) -> TlsSettings:
    authority = Authority()
    key_store = Store(str(authority.listener().write_pem(tmp_path / "own.pem")))
    return TlsSettings(key_store, Store(str(authority.write(tmp_path / "ca.pem"))))


def handshake(
    settings: TlsSettings, version: ssl.TLSVersion, client: ssl.SSLContext | None = None
) -> str | None:
    """Return the cipher suite that a client which speaks only this version agrees on; raises SSLError."""
    server, _ = build_context(settings)
    client = client or ssl.create_default_context(cafile=settings.trust_store.location)
    client.minimum_version = client.maximum_version = version
    client_in, client_out, server_in, server_out = (ssl.MemoryBIO() for _ in range(4))
    ends = [
        client.wrap_bio(client_in, client_out, server_hostname="localhost"),
        server.wrap_bio(server_in, server_out, server_side=True),
    ]
    done: set[int] = set()
    while len(done) < len(ends):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                pass
            client_in.write(server_out.read())
            server_in.write(client_out.read())
    cipher = ends[0].cipher()
    return cipher[0] if cipher else None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_spoken(settings: TlsSettings, version: ssl.TLSVersion) -> None:
    assert handshake(settings, version)


def test_a_key_is_read_where_python_knows_no_files_in_memory(
    settings: TlsSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tls_context, "_MEMORY", str(tmp_path))
    before = set(tmp_path.iterdir())
    assert handshake(settings, ssl.TLSVersion.TLSv1_3)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"versions": ("TLSv1.2",)}, ssl.TLSVersion.TLSv1_3),
        ({"versions": ("TLSv1.3",)}, ssl.TLSVersion.TLSv1_2),
        ({"cipher_suites": (EC,)}, ssl.TLSVersion.TLSv1_3),
        ({"cipher_suites": TLS_1_3_SUITES}, ssl.TLSVersion.TLSv1_2),
        ({"cipher_suites": (RSA_ONLY, *TLS_1_3_SUITES)}, ssl.TLSVersion.TLSv1_2),
    ],
)
def test_what_the_settings_leave_out_is_not_spoken(
    settings: TlsSettings, changes: dict[str, tuple[str, ...]], refused: ssl.TLSVersion
) -> None:
    with pytest.raises(ssl.SSLError):
        handshake(replace(settings, **changes), refused)  # type: ignore[arg-type]


def test_the_chosen_suite_is_used(settings: TlsSettings) -> None:
    chosen = replace(settings, cipher_suites=(EC,))
    assert handshake(chosen, ssl.TLSVersion.TLSv1_2) == "ECDHE-ECDSA-AES128-GCM-SHA256"


class TestTrustOfAnAuthorityThatIsNoRoot:
    """As in Java, each certificate of a trust store is trusted, also one that another authority has signed."""

    def test_a_listener_accepts_its_clients(self, tmp_path: Path) -> None:
        between = Authority("Between", root=Authority("Root"))
        settings = TlsSettings(
            Store(str(between.listener().write_pem(tmp_path / "own.pem"))),
            Store(str(between.write(tmp_path / "between.pem"))),
            client_auth="required",
        )
        shown = Store(str(between.client("ann").write_pem(tmp_path / "ann.pem")))
        client = client_context(ClientTls(shown, settings.trust_store))
        assert handshake(settings, ssl.TLSVersion.TLSv1_2, client)

    def test_a_listener_refuses_the_clients_of_others(self, tmp_path: Path) -> None:
        root = Authority("Root")
        between, beside = Authority("Between", root=root), Authority("Beside", root=root)
        settings = TlsSettings(
            Store(str(between.listener().write_pem(tmp_path / "own.pem"))),
            Store(str(between.write(tmp_path / "between.pem"))),
            client_auth="required",
        )
        shown = Store(str(beside.client("ann").write_pem(tmp_path / "ann.pem")))
        client = client_context(ClientTls(shown, settings.trust_store))
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(settings, ssl.TLSVersion.TLSv1_2, client)

    def test_a_trusted_certificate_of_a_client_signs_nothing(self, tmp_path: Path) -> None:
        authority = Authority()
        ann = authority.client("ann")
        settings = TlsSettings(
            Store(str(authority.listener().write_pem(tmp_path / "own.pem"))),
            Store(certificates=ann.certificate_pem),
            client_auth="required",
        )
        trust = Store(str(authority.write(tmp_path / "ca.pem")))
        shown = Store(str(ann.write_pem(tmp_path / "ann.pem")))
        assert handshake(settings, ssl.TLSVersion.TLSv1_2, client_context(ClientTls(shown, trust)))
        bob = Store(str(authority.client("bob").write_pem(tmp_path / "bob.pem")))
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(settings, ssl.TLSVersion.TLSv1_2, client_context(ClientTls(bob, trust)))


def test_settings_that_allow_nothing_are_refused(settings: TlsSettings) -> None:
    with pytest.raises(StoreError, match="together allow no version of TLS"):
        build_context(replace(settings, versions=("TLSv1.3",), cipher_suites=(EC,)))


def test_a_suite_that_openssl_lacks_is_refused(settings: TlsSettings) -> None:
    with pytest.raises(StoreError, match="OpenSSL here has no suite ECDHE-RSA-NONE"):
        build_context(replace(settings, cipher_suites=("TLS_ECDHE_RSA_WITH_NONE",)))
