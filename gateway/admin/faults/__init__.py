"""`seqgate faults`: orders faults from a gateway that runs with --test-control."""
