"""Planted bugs, and whether the checkers notice them."""
