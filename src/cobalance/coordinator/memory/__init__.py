"""The coordinator inside this process: the same Lua, on a Redis made of Lua tables."""
