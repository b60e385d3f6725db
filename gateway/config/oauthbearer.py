"""Settings of OAUTHBEARER logins. Each may be set for one listener only, and for its mechanism `oauthbearer`.

Source: Kafka's SaslConfigs.

Settings of delegation tokens. Source: Kafka's DelegationTokenManagerConfigs.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from seqgate.gateway.config.setting import INT_MAX, Section, SettingValue

KEYS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
INSECURE_TOKENS: Final = "seqgate.allow.insecure.oauthbearer.tokens"
_SCHEMES: Final = ("file", "http", "https")


def _keys_url_complaint(value: SettingValue) -> str | None:
    try:
        parts = urlsplit(str(value))
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "it is not a URL"
    if parts.scheme not in _SCHEMES:
        return "the URL must begin with file:, http: or https:"
    if "@" in parts.netloc:
        return "the URL must have neither user nor password"
    if parts.scheme == "file":
        return None if parts.path.startswith("/") and host in {None, "localhost"} else "write file:///PATH"
    return None if host else "the URL names no host"


def _name_complaint(value: SettingValue) -> str | None:
    return None if str(value).strip() else "the name of a claim must not be empty"


_OAUTHBEARER = Section("OAUTHBEARER logins", per_listener=True, per_mechanism=True)


OAUTHBEARER_SETTINGS = (
    _OAUTHBEARER.text(KEYS_URL, None, check=_keys_url_complaint)(
        "Where the gateway reads the public keys that verify signed tokens, a JWK set: `file:///PATH`, "
        "`https://…` or `http://…`. A redirect is not followed. The certificate of the endpoint must be "
        "signed by an authority of the system, or of the file in the environment variable `SSL_CERT_FILE`."
    ),
    _OAUTHBEARER.long("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, minimum=1)(
        "Time after which the gateway reads the keys again. A token with an unknown `kid` makes it read "
        "them at once, but not more often than every 10 s. Keys that were read stay valid while they can't "
        "be read again."
    ),
    _OAUTHBEARER.long("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100, minimum=1)(
        "Time after which the gateway tries again when the keys could not be read. It doubles with every "
        "failure."
    ),
    _OAUTHBEARER.long("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000, minimum=1)(
        "Longest time between two attempts to read the keys."
    ),
    _OAUTHBEARER.items("sasl.oauthbearer.expected.audience", None)(
        "Audiences of which a token must name one in its claim `aud`; unset, any."
    ),
    _OAUTHBEARER.text("sasl.oauthbearer.expected.issuer", None)(
        "Issuer that a token must name in its claim `iss`; unset, any."
    ),
    _OAUTHBEARER.whole("sasl.oauthbearer.clock.skew.seconds", 30, minimum=0, maximum=INT_MAX)(
        "Difference between the clocks of the issuer and the gateway that a signed token may have in its "
        "claims `exp` and `nbf`."
    ),
    _OAUTHBEARER.text("sasl.oauthbearer.scope.claim.name", "scope", check=_name_complaint)(
        "Claim of a token with its scope, which may be missing."
    ),
    _OAUTHBEARER.text("sasl.oauthbearer.sub.claim.name", "sub", check=_name_complaint)(
        "Claim of a token that names the user; the principal is `User:` and its value."
    ),
    _OAUTHBEARER.switch(INSECURE_TOKENS, False)(
        "Whether tokens without a signature are accepted, so that **everybody can log in as anybody**; only "
        f"for tests. It excludes `{KEYS_URL}`."
    ),
)


def token_settings_complaint(has_keys_url: bool, allows_insecure: bool) -> str | None:
    """Return why a listener with these settings can't verify tokens; None when it can."""
    if has_keys_url and allows_insecure:
        return f"{KEYS_URL} and {INSECURE_TOKENS} exclude each other; remove one of them"
    if not has_keys_url and not allows_insecure:
        return (
            f"OAUTHBEARER needs the keys that verify tokens; set {KEYS_URL} to the URL of a JWK set, or, "
            f"only for tests, {INSECURE_TOKENS}=true"
        )
    return None


_TOKENS = Section("Delegation tokens")
KEY_SETTING: Final = "delegation.token.secret.key"
OLD_KEY_SETTING: Final = "delegation.token.master.key"
_HUNDRED_YEARS_MS: Final = 100 * 366 * 86_400_000


def _secret_key_complaint(value: SettingValue) -> str | None:
    return None if str(value) else "the key must not be empty; leave it unset to serve no tokens"


DELEGATION_TOKEN_SETTINGS = (
    _TOKENS.secret(KEY_SETTING, None, check=_secret_key_complaint)(
        "The secret with which the gateway makes the passwords of delegation tokens. Unset, the gateway "
        "serves no tokens (DELEGATION_TOKEN_AUTH_DISABLED). With another key all tokens get other passwords."
    ),
    _TOKENS.secret(OLD_KEY_SETTING, None, check=_secret_key_complaint)(
        f"The older name of `{KEY_SETTING}`, which wins over this one."
    ),
    _TOKENS.long("delegation.token.max.lifetime.ms", 7 * 86_400_000, minimum=1, maximum=_HUNDRED_YEARS_MS)(
        "The longest life of a delegation token; it can't be renewed beyond it."
    ),
    _TOKENS.long("delegation.token.expiry.time.ms", 86_400_000, minimum=1, maximum=_HUNDRED_YEARS_MS)(
        "Time after which a delegation token expires unless somebody renews it."
    ),
    _TOKENS.long(
        "delegation.token.expiry.check.interval.ms", 3_600_000, minimum=1, maximum=_HUNDRED_YEARS_MS
    )(
        "Time between two removals of expired delegation tokens. An expired token logs nobody in even "
        "before it is removed."
    ),
    _TOKENS.number("seqgate.delegation.tokens.max", 10_000, dynamic=True)(
        "Delegation tokens that may exist. CreateDelegationToken refuses further ones with POLICY_VIOLATION."
    ),
)
