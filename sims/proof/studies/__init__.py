"""Questions that were answered once, by sweeps: what they were asked with, what came of it, and what judges it."""
