"""The users of SCRAM: their credentials in a running gateway, a data directory or another cluster."""
