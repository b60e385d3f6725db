"""`seqgate backup`: making, listing, verifying and restoring backups."""
