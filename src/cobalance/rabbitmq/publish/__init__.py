"""Publishing: routed, encoded, confirmed."""
