"""Client libraries meet the faults that a test orders."""
