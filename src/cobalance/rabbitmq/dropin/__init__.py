"""Programs written for pika's BlockingConnection, as members of a group."""
