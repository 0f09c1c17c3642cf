"""Names that no other test uses: tests share their servers."""

import uuid


def unique(what: str) -> str:
    return f"{what}-x{uuid.uuid4().hex[:9]}"  # ten digits would be the number of a partition
