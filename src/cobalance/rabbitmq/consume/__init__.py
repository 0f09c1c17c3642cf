"""From a group's tenures to the user's handlers, and what becomes of messages that failed."""
