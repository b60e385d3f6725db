"""`seqgate restart`: the command, and what the running gateway does."""
