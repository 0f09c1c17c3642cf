"""Names that no other test uses: tests share their servers."""

import uuid


def unique(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:10]}"
