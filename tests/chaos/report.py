"""How a verdict is presented: lines for people, a row for the README's table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.chaos.checker import MEANINGS, Name, Verdict
from tests.chaos.options import Options

SHOWN = 5
ORDER: tuple[Name, ...] = ("int-nonmonotonic-poll", "nonmonotonic-poll", "int-poll-skip", "poll-skip", "side-by-side")
JOURNALLED = ("granted", "released", "forced", "expired", "abandoned", "cancelled", "claimed", "recovered")


def lines(options: Options, verdict: Verdict, missing: Sequence[str]) -> Iterator[str]:
    """The verdict, with the command that replays it."""
    yield f"{options.kind}, {options.servers}, by {options.order}: {verdict.published:,} messages confirmed, {verdict.processed:,} processed, {verdict.tenures} tenures"
    yield f"  duplicates that faults explain: {verdict.duplicates_excused}"
    yield "  faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(verdict.troubles.items()))
    yield "  journal: " + ", ".join(f"{kind} {verdict.journal[kind]}" for kind in JOURNALLED)
    yield f"  fenced commits: {verdict.events['fenced']}"
    for name, meaning in MEANINGS.items():
        found = [it.text for it in verdict.anomalies if it.name == name]
        if found:
            yield f"  {name}: {len(found)}: {meaning}"
            yield from (f"    {text}" for text in found[:SHOWN])
    yield from (f"  not reached: {what}" for what in missing)
    yield "  " + ("valid" if is_valid(verdict, missing) else f"INVALID; again: {command(options)}")


def is_valid(verdict: Verdict, missing: Sequence[str]) -> bool:
    """No anomaly, and everything was reached."""
    return not verdict.anomalies and not missing


def command(options: Options) -> str:
    """The command that replays the run. The seed determines only the plan, not the timing."""
    chosen = f"--servers {options.servers} --kind {options.kind} --order {options.order} --seed {options.seed}"
    return f'make chaos ARGS="{chosen} --seconds {options.seconds:g}"'


HEADER = (
    "| queues | servers | faults go on for | faults | messages confirmed | lost | out of order | repeated without a cause | repeated after a fault "
    "| worked twice at a time | forced moves | fenced commits | cancelled revocations |"
)


def row(options: Options, verdict: Verdict) -> str:
    """A row of the README's table."""
    cells = (
        options.kind + (" by key" if options.order == "key" else ""),
        options.servers,
        f"{options.seconds / 60:.0f} min",
        str(sum(verdict.troubles.values())),
        f"{verdict.published:,}",
        str(verdict.count("lost-write") + verdict.count("unseen")),
        str(sum(verdict.count(name) for name in ORDER)),
        str(verdict.count("duplicate")),
        f"{verdict.duplicates_excused:,}",
        str(verdict.count("overlap")),
        str(verdict.journal["forced"]),
        str(verdict.events["fenced"]),
        str(verdict.journal["cancelled"]),
    )
    return "| " + " | ".join(cells) + " |"
