"""Settings of the authorizer. Source: Kafka's StandardAuthorizer.

Rules that make a principal's name from the subject of a certificate: `ssl.principal.mapping.rules`.

Source: Kafka's SslPrincipalMapper.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from seqgate.gateway.config.setting import Section, SettingValue, complaint_of

_AUTHORIZATION = Section("Authorization")
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _authorizer_complaint(value: SettingValue) -> str | None:
    if value in ("", STANDARD_AUTHORIZER):
        return None
    return (
        f"the only authorizer is {STANDARD_AUTHORIZER}; "
        "set this name, or nothing to let everybody do everything"
    )


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals of `super.users`, split at semicolons. Raises ValueError with the reason."""
    users = [user.strip() for user in text.split(";") if user.strip()]
    for user in users:
        if ":" not in user:
            raise ValueError(f"{user!r} must have the form User:NAME; a semicolon separates two users")
    return frozenset(users)


_PART: Final = r"(?:\\.|[^\\/])*"
_RULE = re.compile(rf"\s*(?:(DEFAULT)|RULE:({_PART})/({_PART})/([LU]?))\s*(?:,\s*|$)")
_REFERENCE = re.compile(r"\\(.)|\$(\d)|(\$)")
_SHOWN: Final = 200
"""The most characters of a subject in a message."""
LONGEST_SUBJECT: Final = 1_000
"""The most characters of a subject that is matched. A pattern's time grows with the square, or faster."""


class NoRuleMatches(Exception):
    """No rule matches the subject of a certificate. The message names the subject."""


class Rule(msgspec.Struct, frozen=True):
    """One rule. `pattern` None is DEFAULT, which takes the subject as it is. `case` is "L", "U" or empty."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """Return the name that the rule makes of a subject; None if its pattern does not match all of it."""
        if self.pattern is None:
            return subject
        if not self.pattern.fullmatch(subject):
            return None
        name = self.pattern.sub(self._filled, subject)
        if self.case:
            name = name.lower() if self.case == "L" else name.upper()
        return name

    def _filled(self, found: re.Match[str]) -> str:
        """Return the replacement with `$1` to `$9` filled in. A number without a group stays as it is."""

        def one(reference: re.Match[str]) -> str:
            escaped, number, dollar = reference.groups()
            if number is not None and int(number) <= found.re.groups:
                return found[int(number)] or ""
            return escaped or dollar or f"${number}"

        return _REFERENCE.sub(one, self.replacement)


@lru_cache(maxsize=16)
def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of a text, in order; DEFAULT for an empty text. Raises ValueError with the reason."""
    text = text.strip()
    rules: list[Rule] = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise ValueError(
                f"{text[position:]!r} must begin with DEFAULT or with a rule RULE:PATTERN/REPLACEMENT/[LU]"
            )
        default, pattern, replacement, case = found.groups()
        try:
            rules.append(Rule(None) if default else Rule(re.compile(pattern), replacement, case))
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"the pattern {pattern!r} is not a regular expression: {error}") from None
        position = found.end()
    return tuple(rules) or (Rule(None),)


def principal_name(subject: str, rules: tuple[Rule, ...]) -> str:
    """Return the name that the first matching rule makes of a certificate's subject. Raises NoRuleMatches."""
    if len(subject) > LONGEST_SUBJECT:
        raise NoRuleMatches(
            f"the subject {subject[:_SHOWN]!r} … has {len(subject)} characters, more than {LONGEST_SUBJECT}"
        )
    for rule in rules:
        name = rule.apply(subject)
        if name is not None:
            return name
    raise NoRuleMatches(f"no rule of ssl.principal.mapping.rules matches the subject {subject[:_SHOWN]!r}")


rules_complaint = complaint_of(parse_rules)


# Settings of SCRAM users.

_SCRAM = Section("SCRAM users")

USER_SETTINGS = (
    _SCRAM.number("seqgate.scram.users.max", 10_000, dynamic=True)(
        "Users that have SCRAM credentials. Beyond the limit AlterUserScramCredentials refuses a new user "
        "with POLICY_VIOLATION."
    ),
)


AUTHORIZATION_SETTINGS = (
    _AUTHORIZATION.text("authorizer.class.name", "", check=_authorizer_complaint)(
        f"`{STANDARD_AUTHORIZER}` checks every request against the access control entries. Empty, every "
        "client may do everything."
    ),
    _AUTHORIZATION.text("super.users", "", check=complaint_of(parse_super_users))(
        "Principals that may do everything, whatever the entries say, such as "
        "`User:admin;User:CN=ops,O=Example`. Semicolons separate them, because the subject of a certificate "
        "has commas."
    ),
    _AUTHORIZATION.switch("allow.everyone.if.no.acl.found", False)(
        "Whether every client may do everything with a resource to which no entry applies. As soon as one "
        "entry of anybody applies to a resource, only entries count for it."
    ),
    _AUTHORIZATION.switch("seqgate.audit.enable", True)(
        "Whether a gateway with an authorizer writes an audit log: a JSON object for each refused request, "
        "each failed login and each administrative change, with principal, address and listener. Repeats "
        "are counted each minute."
    ),
    _AUTHORIZATION.text("seqgate.audit.file", None)(
        "The file that lines of the audit log are appended to, whatever `seqgate.logging.level` is; without "
        "it they go where the gateway's other log lines go, under the logger `seqgate.audit`. A file that "
        "log rotation has renamed is opened again with the next line."
    ),
    _AUTHORIZATION.number("seqgate.acls.max", 20_000, dynamic=True)(
        "Access control entries that may exist. CreateAcls refuses further ones with POLICY_VIOLATION."
    ),
)
