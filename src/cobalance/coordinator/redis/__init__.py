"""The coordinator in a Redis: one server, several, behind Sentinels, or a cluster."""
