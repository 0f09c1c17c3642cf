"""One member's protocol, without I/O: what it holds, what it asks, and until when it may work."""
