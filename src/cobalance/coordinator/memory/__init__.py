"""The coordinator in this process: the same Lua on a Redis of Lua tables."""
