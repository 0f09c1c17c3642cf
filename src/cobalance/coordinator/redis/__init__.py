"""The coordinator on Redis: a single server, several behind Sentinels, or a cluster."""
