"""`seqgate restart`: the command with the gateway's answers, and what one process leaves to the next."""
