"""The users that log in with SCRAM: their credentials in a running gateway, a data directory or another
cluster.
"""
