"""`python -m seqgate.gateway` is `seqgate`."""

from seqgate.gateway.entry import main

main()
