"""Names that no other test uses: tests share their servers."""

import uuid


def unique(what: str) -> str:
    """A name of its own."""
    return f"{what}-{uuid.uuid4().hex[:10]}"
