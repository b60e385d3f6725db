"""Kafka's principals of certificates: Java writes the subject, and Kafka's SslPrincipalMapper applies the
rules.
"""

from __future__ import annotations

import base64
from itertools import product
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from seqgate.gateway.config.authorization import NoRuleMatches, parse_rules, principal_name
from seqgate.gateway.security.key_stores import subject_text
from tests.support.certificates import Authority
from tests.support.kafka_tools import run_tool
from tests.support.subjects import SUBJECTS

PROGRAM = str(Path(__file__).with_name("Subjects.java"))
RULES = (
    "DEFAULT",
    "RULE:^CN=(.*?)$/$1/",
    "RULE:^CN=(.*?),.*$/$1/U",
    "RULE:^CN=([^,]*),O=(.*)$/$2.$1/L, RULE:^(.*)DC=(.*?),DC=.*$/$2/,DEFAULT",
    "RULE:CN/never/",
    r"RULE:^CN=(.*?)(,.*)?$/a\/b-$1$3/",
    r"RULE:^.*$/\\x/",
)


def name_of(subject: str, rules: str) -> str:
    try:
        return principal_name(subject, parse_rules(rules))
    except NoRuleMatches:
        return "no rule"


def test_subjects_and_names_are_those_of_java_and_kafka(tmp_path: Path) -> None:
    authority = Authority()
    certificates = [
        authority.client(subject).certificate.public_bytes(Encoding.DER) for subject in SUBJECTS.values()
    ]
    cases = list(product(certificates, RULES))
    lines = [f"{base64.b64encode(certificate).decode()}\t{rules}\n" for certificate, rules in cases]
    asked = tmp_path / "asked"
    asked.write_text("".join(lines))
    answers = run_tool(PROGRAM, asked).expect_success().stdout.splitlines()
    expected = [(subject_text(certificate), rules) for certificate, rules in cases]
    assert list(zip(answers[::2], answers[1::2], strict=True)) == [
        (subject, name_of(subject, rules)) for subject, rules in expected
    ]
