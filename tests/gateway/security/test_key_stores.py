from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from seqgate.gateway.security.certificates import StoreError
from seqgate.gateway.security.key_stores import Store, read_authorities, read_key_pair
from seqgate.gateway.security.tls_context import TlsSettings, build_context
from tests.fuzzing.stored_keys import CERTIFICATE, KEY
from tests.support.certificates import Authority, Certified

PASSWORD = "key store's own"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def listener(authority: Authority) -> Certified:
    return authority.listener()


def one_line(pem: str) -> str:
    """Return a PEM text as it stands in a properties file: its lines joined by spaces."""
    return " ".join(pem.split("\n"))


def stores(folder: Path, listener: Certified) -> dict[str, Store]:
    key, chain = listener.key_pem(), listener.certificate_pem
    return {
        "PEM file": Store(str(listener.write_pem(folder / "plain.pem"))),
        "PEM file, encrypted": Store(
            str(listener.write_pem(folder / "hidden.pem", PASSWORD)), key_password=PASSWORD
        ),
        "PKCS12": Store(str(listener.write_pkcs12(folder / "store.p12", PASSWORD)), password=PASSWORD),
        "PKCS12, named": Store(str(folder / "store.p12"), "PKCS12", PASSWORD),
        "texts": Store(key=key, certificates=chain, type="PEM"),
        "texts of one line": Store(key=one_line(key), certificates=one_line(chain)),
        "texts with escapes": Store(key=key.replace("\n", "\\n"), certificates=chain.replace("\n", "\\n")),
        "text, encrypted": Store(key=listener.key_pem(PASSWORD), certificates=chain, key_password=PASSWORD),
    }


def test_every_form_of_a_key_store_gives_the_same_pair(tmp_path: Path, listener: Certified) -> None:
    for form, store in stores(tmp_path, listener).items():
        pair = read_key_pair(store)
        assert pair.certificate == listener.certificate, form
        assert pair.key.decode() == listener.key_pem(), form
        assert pair.chain.decode() == listener.certificate_pem, form


def test_every_form_of_a_trust_store_gives_the_same_authorities(tmp_path: Path, authority: Authority) -> None:
    path = authority.write(tmp_path / "ca.pem")
    assert read_authorities(Store(str(path))) == authority.pem
    assert read_authorities(Store(certificates=one_line(authority.pem + authority.pem))) == 2 * authority.pem


def wrong(folder: Path, authority: Authority, listener: Certified) -> dict[str, Store]:
    other = authority.listener()
    jks = folder / "store.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    garbage = folder / "garbage"
    garbage.write_bytes(b"\x30\x82garbage")
    p12 = str(listener.write_pkcs12(folder / "store.p12", PASSWORD))
    hidden = str(listener.write_pem(folder / "hidden.pem", PASSWORD))
    damaged = listener.key_pem().replace("M", "N", 5)
    return {
        "no store": Store(),
        "missing can't be read: No such file": Store(str(folder / "missing")),
        "keytool -importkeystore": Store(str(jks)),
        "it is not PKCS12, or its password": Store(str(garbage)),
        "it is not PKCS12, or its password is not": Store(p12, password="wrong"),
        "encrypted; set ssl.key.password": Store(hidden),
        "ssl.key.password does not fit": Store(hidden, key_password="wrong"),
        "holds no private key": Store(str(authority.write(folder / "ca.pem"))),
        "does not belong to the first certificate": Store(
            key=other.key_pem(), certificates=listener.certificate_pem
        ),
        "the key is damaged": Store(key=damaged, certificates=listener.certificate_pem),
        "holds no certificate in PEM": Store(key=listener.key_pem(), certificates="none"),
    }


def test_a_key_store_that_is_of_no_use_says_why_without_its_secrets(
    tmp_path: Path, authority: Authority, listener: Certified
) -> None:
    for reason, store in wrong(tmp_path, authority, listener).items():
        with pytest.raises(StoreError) as error:
            read_key_pair(store)
        expected = "needs ssl.keystore.location" if reason == "no store" else reason
        assert expected in str(error.value)
        assert PASSWORD not in str(error.value)
        assert "BEGIN" not in str(error.value)


def test_a_chain_keeps_its_order(tmp_path: Path, authority: Authority, listener: Certified) -> None:
    path = tmp_path / "chain.pem"
    path.write_text(listener.certificate_pem + authority.pem + listener.key_pem())
    assert read_key_pair(Store(str(path))).chain.decode() == listener.certificate_pem + authority.pem


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("folder", "it is no regular file"),
        ("pipe", "it is no regular file"),
        ("endless", "it is no regular file"),
        ("huge", "a store has at most 16777216 bytes"),
        ("no name", "is no path of a file"),
    ],
)
def test_what_is_no_file_of_a_store_is_not_read(tmp_path: Path, kind: str, why: str) -> None:
    path = tmp_path / "store"
    location = str(path)
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "endless":
            location = "/dev/zero"
        case "huge":
            with path.open("wb") as file:
                file.truncate(1 << 40)
        case "no name":
            location += "\0"
    with pytest.raises(StoreError, match=why):
        read_key_pair(Store(location))


UNSUPPORTED_KEY = b"\x2a\x86\x48\xce\x3d\x02\x01", b"\x2a\x86\x48\xce\x3d\x02\x09"
"""The object identifier of keys on elliptic curves, and one that names nothing."""


def test_a_certificate_with_a_key_of_an_unknown_kind_is_refused() -> None:
    changed = der_of_the_certificate().replace(*UNSUPPORTED_KEY)
    with pytest.raises(
        StoreError, match=r"^ssl.keystore.key holds a certificate whose public key can't be read$"
    ):
        read_key_pair(Store(key=KEY, certificates=ssl.DER_cert_to_PEM_cert(changed)))


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_each_flipped_bit_of_a_certificate_is_refused_in_a_sentence_or_harmless() -> None:
    content = der_of_the_certificate()
    refusals: list[str] = []
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        pem = ssl.DER_cert_to_PEM_cert(bytes(changed))
        for settings in (
            TlsSettings(Store(key=KEY, certificates=pem), Store()),
            TlsSettings(Store(key=KEY, certificates=CERTIFICATE), Store(certificates=pem), "required"),
        ):
            try:
                build_context(settings)
            except StoreError as error:
                refusals.append(str(error))
    assert len(refusals) > len(content) / 2
    assert not [refusal for refusal in refusals if "\n" in refusal]


def der_of_the_certificate() -> bytes:
    return ssl.PEM_cert_to_DER_cert(CERTIFICATE)
