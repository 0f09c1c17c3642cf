"""Every interleaving of small groups, over the production Lua and the production session."""
