"""The one way to carry out an operation on state that a log makes durable: begin reading with `operations`."""
