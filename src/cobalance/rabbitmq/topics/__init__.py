"""Topics and queues on a broker: made, checked, found, grown and deleted."""
