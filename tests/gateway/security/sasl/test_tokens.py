"""Which tokens are accepted: signatures, keys and claims."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.gateway.security.sasl import oauthbearer
from seqgate.gateway.security.sasl.oauthbearer import (
    KeySet,
    KeysUnusable,
    SignedTokens,
    UnsecuredTokens,
    parse_key_set,
)
from seqgate.gateway.security.sasl.tokens import LONGEST_TOKEN, ClaimRules, Token, TokenRefused
from tests.support.tokens import Issuer, encoded, key_set, part, unsecured_token

NOW_S = 1_800_000_000
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": NOW_S - 60, "exp": NOW_S + 600}
ALICE = Token("alice", (NOW_S + 600) * 1000)
RULES = ClaimRules(skew_s=30)


class KnownKeys:
    """A source whose keys are all read."""

    def __init__(self, document: bytes) -> None:
        self._keys: KeySet = parse_key_set(document)

    async def find(self, key_id: str | None, algorithm: str) -> Any:
        return self._keys.find(key_id, algorithm)

    def why_not_found(self, key_id: str | None) -> str:
        return "no such key"


@lru_cache
def issuer(algorithm: str = "ES256", key_id: str | None = "first") -> Issuer:
    return Issuer(key_id, algorithm)


def signed(*rows: dict[str, Any], rules: ClaimRules = RULES) -> SignedTokens:
    keys = KnownKeys(key_set(*(rows or (issuer().jwk(),))))
    return SignedTokens(keys, rules, lambda: NOW_S * 1000)  # type: ignore[arg-type]


def unsecured() -> UnsecuredTokens:
    rules = ClaimRules(needs_issue_time=False, refuses_future_issue_time=True)
    return UnsecuredTokens(rules, lambda: NOW_S * 1000)


def examined(tokens: SignedTokens | UnsecuredTokens, token: str) -> Token:
    return asyncio.run(tokens.examine(token))


def refusal(tokens: SignedTokens | UnsecuredTokens, token: str) -> str:
    with pytest.raises(TokenRefused) as refused:
        examined(tokens, token)
    return str(refused.value)


class TestSignatures:
    @pytest.mark.parametrize(
        "algorithm",
        ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"],
    )
    def test_each_algorithm_is_verified(self, algorithm: str) -> None:
        tokens = signed(issuer(algorithm).jwk())
        assert examined(tokens, issuer(algorithm).token(**CLAIMS)) == ALICE
        other = Issuer("first", algorithm)
        assert refusal(tokens, other.token(**CLAIMS)) == "the token's signature is wrong"

    @pytest.mark.parametrize("changed", [0, 1, 2])
    def test_a_changed_part_is_refused(self, changed: int) -> None:
        parts = issuer().token(**CLAIMS).split(".")
        parts[changed] = issuer().token({"typ": "at+jwt"}, **CLAIMS | {"sub": "mallory"}).split(".")[changed]
        assert "signature is wrong" in refusal(signed(), ".".join(parts))

    @pytest.mark.parametrize(("algorithm", "threads"), [("ES256", 0), ("ES384", 2), ("ES512", 2)])
    def test_few_threads_verify_the_signatures_that_take_long(
        self, monkeypatch: pytest.MonkeyPatch, algorithm: str, threads: int
    ) -> None:
        """A stranger with a made-up signature must not keep the event loop busy, nor all threads."""
        running, most = 0, 0

        async def to_thread(work: Callable[..., bytes], *arguments: Any) -> bytes:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return work(*arguments)

        async def examine_many() -> None:
            monkeypatch.setattr(oauthbearer.asyncio, "to_thread", to_thread)
            tokens, token = signed(issuer(algorithm).jwk()), issuer(algorithm).token(**CLAIMS)
            assert await asyncio.gather(*(tokens.examine(token) for _ in range(5))) == [ALICE] * 5
            with pytest.raises(TokenRefused, match="signature is wrong"):
                await tokens.examine(token[:-4] + "AAAA")

        asyncio.run(examine_many())
        assert most == threads

    def test_an_empty_signature_is_refused(self) -> None:
        head, claims, _ = issuer().token(**CLAIMS).split(".")
        assert "signature is wrong" in refusal(signed(), f"{head}.{claims}.")

    @pytest.mark.parametrize(
        "algorithm", ["none", "None", "NONE", "nOnE", "HS256", "HS512", "ES256K", "", 7, None]
    )
    def test_an_algorithm_that_is_not_on_the_list_is_refused(self, algorithm: object) -> None:
        token = issuer().token({"alg": algorithm}, **CLAIMS)
        assert refusal(signed(), token).startswith(("the token's algorithm", "the token has no signature"))
        assert refusal(signed(), token.rpartition(".")[0] + ".").startswith(
            ("the token's algorithm", "the token has no signature")
        )

    def test_the_public_key_is_no_shared_secret(self) -> None:
        secret = (
            issuer("RS256").key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
        text = f"{part({'alg': 'HS256', 'kid': 'first'})}.{part(CLAIMS)}"
        mac = hmac.new(secret, text.encode(), hashlib.sha256).digest()
        assert "algorithm" in refusal(signed(issuer("RS256").jwk()), f"{text}.{encoded(mac)}")

    def test_a_key_verifies_only_its_own_algorithms(self) -> None:
        assert refusal(signed(), issuer("RS256").token(**CLAIMS)) == "no such key"
        row = issuer("RS256").jwk(alg="RS512")
        assert refusal(signed(row), issuer("RS256").token(**CLAIMS)) == "no such key"

    @pytest.mark.parametrize("extra", [{"crit": ["exp"], "exp": 1}, {"crit": []}, {"b64": False}])
    def test_a_header_that_asks_for_more_is_refused(self, extra: dict[str, object]) -> None:
        assert "header" in refusal(signed(), issuer().token(extra, **CLAIMS))
        assert "kid" in refusal(signed(), issuer().token({"kid": 7}, **CLAIMS))

    def test_a_key_in_the_header_is_not_used(self) -> None:
        mallory = Issuer("first")
        token = mallory.token({"jwk": mallory.jwk(), "jku": "https://mallory.example/keys"}, **CLAIMS)
        assert refusal(signed(), token) == "the token's signature is wrong"

    @pytest.mark.parametrize(
        "token", ["", "a", "a.b", "a.b.c.d", "a.b.c", "..", "!.b.c", "x" * (LONGEST_TOKEN + 1), "e30.e30.e30"]
    )
    def test_a_malformed_token_is_refused(self, token: str) -> None:
        assert refusal(signed(), token)
        assert refusal(unsecured(), token)

    def test_deep_json_is_refused(self) -> None:
        deep = base64.urlsafe_b64encode(b"[" * 5000).decode()
        assert "header" in refusal(signed(), f"{deep}.{deep}.")
        assert "header" in refusal(unsecured(), f"{deep}.{deep}.")


class TestKeyNames:
    def test_a_token_names_one_of_several_keys(self) -> None:
        tokens = signed(issuer().jwk(), issuer(key_id="second").jwk())
        assert examined(tokens, issuer(key_id="second").token(**CLAIMS)) == ALICE
        assert (
            refusal(tokens, issuer(key_id="second").token({"kid": "first"}, **CLAIMS))
            == "the token's signature is wrong"
        )
        assert refusal(tokens, issuer().token({"kid": "third"}, **CLAIMS)) == "no such key"

    def test_without_a_name_exactly_one_key_must_fit(self) -> None:
        nameless = issuer(key_id=None)
        assert examined(signed(nameless.jwk()), nameless.token(**CLAIMS)) == ALICE
        assert (
            examined(signed(nameless.jwk(kid="x"), issuer("RS256").jwk()), nameless.token(**CLAIMS)) == ALICE
        )
        assert refusal(signed(nameless.jwk(), issuer().jwk()), nameless.token(**CLAIMS)) == "no such key"

    def test_a_name_that_is_not_in_the_set_is_refused_even_with_one_key(self) -> None:
        assert refusal(signed(issuer(key_id=None).jwk()), issuer().token(**CLAIMS)) == "no such key"


class TestKeySets:
    @pytest.mark.parametrize(
        "document",
        [
            b"",
            b"{}",
            b"[]",
            b'{"keys": {}}',
            b'{"keys": []}',
            b'{"keys": [1]}',
            b"\xff",
            b"[" * 100_000,
            b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}',
            b'{"keys": [{"kty": "RSA"}]}',
            b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}',
            b'{"keys": [{"kty": "EC", "crv": ["P-256"]}]}',
        ],
    )
    def test_a_set_without_a_usable_key_is_refused(self, document: bytes) -> None:
        with pytest.raises(KeysUnusable):
            parse_key_set(document)

    def test_keys_that_must_not_verify_are_left_out(self) -> None:
        rows = [
            issuer().jwk(use="enc"),
            issuer().jwk(key_ops=["sign"]),
            issuer().jwk(alg="HS256"),
            {"kty": "oct", "k": "c2VjcmV0", "kid": "shared", "alg": "HS256"},
            Issuer("short", "RS256", rsa_bits=1024).jwk(),
            issuer(key_id="good").jwk(use="sig", key_ops=["verify"], alg="ES256"),
        ]
        assert [key.key_id for key in parse_key_set(key_set(*rows)).keys] == ["good"]

    def test_the_private_half_of_a_key_is_ignored(self) -> None:
        keys = parse_key_set(key_set(issuer().jwk(d=encoded(b"1" * 32))))
        assert not hasattr(keys.keys[0].key, "private_numbers")


class TestClaims:
    def test_an_expired_token_is_accepted_within_the_skew_only(self) -> None:
        assert examined(signed(), issuer().token(**CLAIMS | {"exp": NOW_S - 29})) == Token(
            "alice", (NOW_S - 29) * 1000
        )
        assert refusal(signed(), issuer().token(**CLAIMS | {"exp": NOW_S - 30})) == "the token has expired"

    def test_a_token_is_not_valid_before_nbf(self) -> None:
        assert examined(signed(), issuer().token(**CLAIMS, nbf=NOW_S + 30)) == ALICE
        assert "not valid yet" in refusal(signed(), issuer().token(**CLAIMS, nbf=NOW_S + 31))

    @pytest.mark.parametrize("claim", ["exp", "iat", "sub"])
    def test_a_missing_claim_is_refused(self, claim: str) -> None:
        assert claim in refusal(
            signed(), issuer().token(**{key: CLAIMS[key] for key in CLAIMS if key != claim})
        )

    @pytest.mark.parametrize(
        "wrong",
        [
            {"exp": "1800000600"},
            {"exp": True},
            {"exp": -1},
            {"exp": [NOW_S]},
            {"iat": "now"},
            {"nbf": {}},
            {"sub": ""},
            {"sub": "  "},
            {"sub": 7},
            {"sub": ["alice"]},
            {"scope": 7},
            {"scope": ["a", 7]},
            {"scope": {"a": 1}},
        ],
    )
    def test_a_claim_of_another_type_is_refused(self, wrong: dict[str, object]) -> None:
        assert next(iter(wrong)) in refusal(signed(), issuer().token(**CLAIMS | wrong))

    @pytest.mark.parametrize("scope", ["a b", ["a", "b"], [], ""])
    def test_a_scope_is_optional(self, scope: object) -> None:
        assert examined(signed(), issuer().token(**CLAIMS, scope=scope)) == ALICE

    def test_a_time_far_away_stays_a_number(self) -> None:
        assert examined(signed(), issuer().token(**CLAIMS | {"exp": 10**300})).expires_at_ms == 10**16

    def test_issuer_and_audience_are_compared_where_they_are_expected(self) -> None:
        rules = ClaimRules(audiences=("seqgate", "spare"), issuer="https://idp.example")
        tokens = signed(rules=rules)
        good = {**CLAIMS, "iss": "https://idp.example"}
        assert examined(tokens, issuer().token(**good, aud="seqgate")) == ALICE
        assert examined(tokens, issuer().token(**good, aud=["x", "spare"])) == ALICE
        for audience in (None, "x", "seqgat", ["x"], [], {"seqgate": 1}):
            assert "audience" in refusal(tokens, issuer().token(**good, aud=audience))
        for name in (None, "https://idp.example/", ["https://idp.example"]):
            assert "issuer" in refusal(tokens, issuer().token(**good | {"iss": name}, aud="seqgate"))

    def test_another_claim_may_name_the_user(self) -> None:
        tokens = signed(rules=ClaimRules(subject_claim="client_id"))
        assert examined(tokens, issuer().token(**CLAIMS, client_id="service")).subject == "service"
        assert "client_id" in refusal(tokens, issuer().token(**CLAIMS))

    def test_claims_must_be_an_object(self) -> None:
        text = f"{part({'alg': 'ES256', 'kid': 'first'})}.{part([1])}"
        token = f"{text}.{encoded(issuer()._signature(text.encode()))}"
        assert "claims" in refusal(signed(), token)


class TestUnsecured:
    def test_a_token_without_a_signature_is_accepted(self) -> None:
        assert examined(unsecured(), unsecured_token(sub="alice", exp=NOW_S + 600)) == ALICE

    def test_a_signature_or_another_algorithm_is_refused(self) -> None:
        assert "signature" in refusal(unsecured(), unsecured_token(**CLAIMS) + "AA")
        assert "algorithm" in refusal(unsecured(), issuer().token(**CLAIMS))

    @pytest.mark.parametrize(
        "wrong",
        [{"exp": NOW_S}, {"iat": NOW_S + 1}, {"nbf": NOW_S + 1}, {"sub": ""}, {"sub": None}, {"exp": None}],
    )
    def test_times_have_no_skew(self, wrong: dict[str, object]) -> None:
        assert refusal(unsecured(), unsecured_token(**CLAIMS | wrong))


@settings(max_examples=300)
@given(
    header=st.dictionaries(
        st.sampled_from(["alg", "kid", "crit", "b64", "typ"]),
        st.none() | st.text() | st.integers() | st.lists(st.text()),
    ),
    claims=st.dictionaries(
        st.sampled_from(["sub", "exp", "iat", "nbf", "aud", "iss"]),
        st.none() | st.text() | st.floats() | st.lists(st.text()),
    ),
    signature=st.binary(max_size=100),
)
def test_nobody_without_the_key_gets_in(
    header: dict[str, object], claims: dict[str, object], signature: bytes
) -> None:
    texts = [
        json.dumps(value).encode() for value in ({"alg": "ES256", "kid": "first"} | header, CLAIMS | claims)
    ]
    token = ".".join(encoded(content) for content in (*texts, signature))
    assert refusal(signed(), token)


@given(st.text(alphabet=st.sampled_from("ab.e30=-_{"), max_size=60) | st.text(max_size=40))
def test_any_text_is_examined_or_refused(token: str) -> None:
    with contextlib.suppress(TokenRefused):
        examined(unsecured(), token)
    assert refusal(signed(), token)
