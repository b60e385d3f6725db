"""`seqgate certify`: runs an application's producer through fault scripts, and judges what it stored."""
