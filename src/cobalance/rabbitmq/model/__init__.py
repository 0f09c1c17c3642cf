"""Topics, queues and messages as values; nothing here talks to a broker."""
