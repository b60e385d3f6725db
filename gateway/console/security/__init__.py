"""Keeps strangers out: logins, sessions, the tokens of forms, and the host names that the console serves."""
