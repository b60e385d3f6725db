"""The answers about logins in which Seqgate deliberately differs from Apache Kafka, and why."""

from __future__ import annotations

from tests.compat.differential.known_differences import DURABLE, ELR, KnownDifference

NO_USERS = (
    "Kafka fails while it makes the error answer and closes the connection; here the answer has no rows"
)
NO_USE_ANY_MORE = (
    "a connection that can't be used any more is closed at once; Kafka waits for the next message"
)
MUST_NOT_BE_IGNORED = "RFC 5802: an extension m is not understood, so the login must fail; Kafka takes it in front of the user's name"
PROOF_OF_EVERYTHING = (
    "RFC 5802: the proof covers extensions of the last message; Kafka leaves them out of what it compares"
)
SAYS_WHY = "Kafka fails on it and closes the connection without an answer; here the client learns that the login failed"
NOT_YET = "RFC 7519: a token must not be accepted before its time (nbf); Kafka does not look at it in tokens without a signature"
ENDS_AFTER_REFUSAL = "after a token was refused only the end of the login may come; Kafka takes another token, without the delay against guessing"
EXPIRED = (
    "an expired token logs nobody in; Kafka takes it until it is removed, for a session that is over at once"
)

KNOWN_DIFFERENCES: tuple[KnownDifference, ...] = (
    KnownDifference(("illegal_states.odd_request_after_handshake[all users]",), "*", NO_USERS),
    KnownDifference(
        (
            "reauthentication.with_another_mechanism[SCRAM-SHA-256]",
            "reauthentication.with_another_mechanism[OAUTHBEARER]",
        ),
        "4.*",
        NO_USE_ANY_MORE,
    ),
    KnownDifference(("scram.first[mandatory extension]",), "[23].*", MUST_NOT_BE_IGNORED),
    KnownDifference(("scram.first[extension m]",), "[23].*", MUST_NOT_BE_IGNORED),
    KnownDifference(("scram.signed_otherwise[extension]",), "[34].*", PROOF_OF_EVERYTHING),
    KnownDifference(
        ("scram.last[empty proof]", "scram.last[short proof]", "scram.last[long proof]"), "[34].*", SAYS_WHY
    ),
    KnownDifference(("bearer_tokens.token[not valid yet]",), "*", NOT_YET),
    KnownDifference(("bearer_tokens.token[no algorithm]",), "*", SAYS_WHY),
    KnownDifference(("bearer_tokens.message[basic]",), "[23].*", SAYS_WHY),
    KnownDifference(("bearer_tokens.end_of_a_refused_login[a good token]",), "[45].*", ENDS_AFTER_REFUSAL),
    KnownDifference(("tokens.login_with_expired_token",), "*", EXPIRED),
    KnownDifference(
        ("over_quota.mutations[create_topics]", "over_quota.several_mutations_in_a_request"),
        "*.configs.flush.messages.value",
        DURABLE,
    ),
    KnownDifference(
        ("over_quota.mutations[create_topics]", "over_quota.several_mutations_in_a_request"),
        "*.configs.min.insync.replicas.config_source",
        ELR,
    ),
)
