"""The coordinator: its Lua scripts, and the ways to run them."""
