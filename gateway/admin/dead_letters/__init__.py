"""Lists, replays and drops the letters of a dead-letter topic (`seqgate dead-letters`)."""
