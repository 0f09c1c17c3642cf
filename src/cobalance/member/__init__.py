"""One member's side of the protocol, without I/O: what it holds, what it requests, and until when it may work."""
