"""`python -m seqgate` is the command line."""

from seqgate.gateway.entry import main

if __name__ == "__main__":
    main()
