from __future__ import annotations

import pytest

from seqgate.gateway.config.authorization import (
    LONGEST_SUBJECT,
    NoRuleMatches,
    parse_rules,
    principal_name,
    rules_complaint,
)

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
        NoRuleMatches, match=r"no rule of ssl\.principal\.mapping\.rules matches the subject 'CN=x'"
    ):
        principal_name("CN=x", parse_rules("RULE:^CN=y$/y/"))


def test_a_long_subject_has_no_name_and_is_cut_in_the_message() -> None:
    longest = "CN=" + "x" * (LONGEST_SUBJECT - 3)
    assert principal_name(longest, parse_rules("")) == longest
    with pytest.raises(NoRuleMatches) as refused:
        principal_name(longest + "x", parse_rules("DEFAULT"))
    assert "has 1001 characters, more than 1000" in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_line_break_in_a_subject_is_escaped_in_the_message() -> None:
    with pytest.raises(NoRuleMatches, match=r"'CN=a\\nb'"):
        principal_name("CN=a\nb", parse_rules("RULE:^CN=y$/y/"))


def test_rules_that_are_only_blanks_are_the_default() -> None:
    assert rules_complaint("  ") is None
    assert principal_name(SUBJECT, parse_rules("  ")) == SUBJECT


@pytest.mark.parametrize(
    "rules",
    [
        "RULE:a",
        "RULE:a/b",
        "OTHER",
        "DEFAULT DEFAULT",
        "RULE:(/b/",
        "RULE:a/b/X",
        "RULE:a{99999999999999}/x/",
        f"RULE:{'(' * 5000}{')' * 5000}/x/",
    ],
)
def test_a_malformed_rule_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"must begin with DEFAULT|is not a regular expression"):
        parse_rules(rules)
    assert rules_complaint(rules) is not None
