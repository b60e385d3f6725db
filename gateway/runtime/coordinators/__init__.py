"""Groups, share groups and transactions: state machines, the logs that hold them, and who waits for what.

Every operation is carried out in one order, judge → append → fold in → wait: begin reading with `operations`.
"""
