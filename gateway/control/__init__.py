"""The control socket: how `seqgate` commands ask a running gateway, on its own machine.

A Unix domain socket in the data directory, open to the owner of the gateway's process only. One connection carries one
request and one answer, each a line of JSON.
"""
