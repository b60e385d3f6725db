"""Coordinators: pure state machines that yield records to append and answers to give."""
