"""Groups, share groups and transactions: their state machines, the logs that hold the state, and the requests that
wait.

Every operation is carried out in one order, judge → append → fold in → wait: begin reading with `operations`.
"""
