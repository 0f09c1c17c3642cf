"""What changes cost groups of different sizes; README.md has the figures."""
