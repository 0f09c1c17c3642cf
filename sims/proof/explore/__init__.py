"""Explores every interleaving of small groups, with the production Lua and the production session."""
