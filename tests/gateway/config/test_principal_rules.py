from __future__ import annotations

import pytest

from gateway.config.principal_rules import NoRuleMatches, parse_rules, principal_name

SUBJECT = "CN=writer,OU=ingest,O=Example,C=DE"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("", SUBJECT),
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=(.*?),.*$/$1/", "writer"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$2-$1/U", "INGEST-WRITER"),
        ("RULE:^CN=(.*?),.*$/$1/L,DEFAULT", "writer"),
        ("RULE:^CN=reader.*$/reader/, DEFAULT", SUBJECT),
        ("RULE:CN=writer/never/,RULE:.*O=Example.*/all/", "all"),
        ("RULE:^CN=(.*?),.*$/$1$2/", "writer$2"),
        (r"RULE:^CN=(.*?),.*$/a\/b/", "a/b"),
        ("RULE:^(.*)$/<$1>/", f"<{SUBJECT}>"),
    ],
)
def test_the_first_rule_that_matches_all_of_the_subject_makes_the_name(rules: str, name: str) -> None:
    assert principal_name(SUBJECT, parse_rules(rules)) == name


def test_a_subject_that_no_rule_matches_has_no_name() -> None:
    with pytest.raises(
        NoRuleMatches, match=r"no rule of ssl\.principal\.mapping\.rules matches the subject CN=x"
    ):
        principal_name("CN=x", parse_rules("RULE:^CN=y$/y/"))


@pytest.mark.parametrize(
    "rules", ["RULE:a", "RULE:a/b", "OTHER", "DEFAULT DEFAULT", "RULE:(/b/", "RULE:a/b/X"]
)
def test_a_malformed_rule_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"must begin with DEFAULT|is not a regular expression"):
        parse_rules(rules)
