"""From a group's tenures to the user's handlers, and what happens to failed messages."""
