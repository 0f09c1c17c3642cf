"""Topics and queues on a broker: creating, checking, finding, growing and deleting them."""
