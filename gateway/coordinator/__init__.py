"""Coordinators: pure state machines that return the records to append and the answers to send."""
