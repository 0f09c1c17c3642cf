"""The coordinator: its Lua scripts, and the transports that run them."""
