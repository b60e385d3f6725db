"""Lists offline partitions, and reopens them (`seqgate reopen`)."""
