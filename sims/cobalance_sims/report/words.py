"""Numbers for people."""

from __future__ import annotations

from datetime import UTC, datetime


def duration(ms: float | None) -> str:
    """``850 ms``, ``1.2 s``, ``3.4 min``, ``2.1 h`` or ``5 d``."""
    if ms is None:
        return "unknown"
    for limit, factor, unit in (
        (1_000, 1, "ms"),
        (120_000, 1e3, "s"),
        (7_200_000, 6e4, "min"),
        (172_800_000, 3.6e6, "h"),
    ):
        if abs(ms) < limit:
            return f"{number(ms / factor)} {unit}"
    return f"{number(ms / 8.64e7)} days"


def number(value: float) -> str:
    """Three significant digits, with commas from a thousand on."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def share(part: float, whole: float) -> str:
    """A percentage; ``none`` for nothing of something."""
    if not whole:
        return "none"
    percent = 100 * part / whole
    return f"{number(percent)} %" if percent >= 0.01 or not part else "less than 0.01 %"


def moment(at_ms: int) -> str:
    """A time of day with its date, in UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def shortened(names: list[str], most: int = 14) -> dict[str, str]:
    """Short labels for names: without their common prefix, at most ``most`` characters long, and still distinct."""
    cut = _common_start(names) if len(names) > 1 else 0
    labels: dict[str, str] = {}
    for name in names:
        label = name[cut:] or name
        label = label if len(label) <= most else f"{label[: most // 2]}…{label[-(most - most // 2 - 1) :]}"
        while label in labels.values():
            label += "'"
        labels[name] = label
    return labels


def _common_start(names: list[str]) -> int:
    """Length of the common prefix up to a separator, so that no word is cut; 0 where little would be gained."""
    first, last = min(names), max(names)
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    end = max((at + 1 for at in range(same) if first[at] in "-_./:"), default=0)
    return end if end >= 8 else 0
