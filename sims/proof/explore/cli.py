"""``make explore``: explores scopes or a tier of them, and replays what they executed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import attrs

from proof.explore.reached import REQUIRED, missing
from proof.explore.replay import InMemoryRedis, RealRedis, Replayed, ScriptEngine, digest_of, replay
from proof.explore.scope import SCOPES
from proof.explore.search import Search, SearchResult
from proof.explore.story import PathStory
from proof.explore.world import Transitions
from proof.partitions.exploring import REQUIRED_OF_HANDOVERS, HandoverSearch, HandoverTransitions
from proof.partitions.scope import HANDOVER_SCOPES, can_happen
from proof.partitions.telling import HandoverStory

TIERS: dict[str, tuple[str, ...]] = {
    "ci": ("2x2-seen", "2x4", "3x3", "3x3-start", "2x4-start"),
    "large": ("2x2-pairs", "2x4-all"),
    "handovers": (
        *("2q", "2q-keys", "1q-unlocked", "1q-stream", "1q-force", "1q-keys"),
        *("1q-kept-keys", "1q-kept", "1q-kept-stream", "1q-given-up"),
        *("1q-quorum", "1q-refused", "1q", "1q-fail", "1q-abort"),
    ),
    "handovers-large": ("2q-keys-moved", "2q-moved"),
}
"""The longest first: two processes take them in this order."""

ALL_SCOPES = (*SCOPES, *HANDOVER_SCOPES)

LUAS = ("luajit21", "lua51", "lua54")


@attrs.frozen(kw_only=True)
class Exploration:
    """What one process does: explore a scope, and replay what that executed."""

    scope: str
    seconds: float | None = None
    liveness: bool = True
    lua: str | None = None
    redis_url: str | None = None
    """Replay on this Redis and on every Lua; the Redis is emptied."""
    sample: int = 1
    """Replay every n-th execution."""


@attrs.frozen
class ExplorationReport:
    """Result of an :class:`Exploration`."""

    result: SearchResult
    story: str
    replays: tuple[Replayed, ...]

    @property
    def is_well(self) -> bool:
        """No promise broken, and no engine disagrees."""
        return self.result.found is None and not any(it.mismatches for it in self.replays)


def main(args: Sequence[str] | None = None) -> int:
    """Explores the named scopes or a tier, several processes at a time; returns 0, 1 if not all is well, 2 for bad
    usage.
    """
    options = _parser().parse_args(args)
    unknown = [name for name in options.scopes if name not in ALL_SCOPES]
    if unknown:
        sys.stderr.write(f"no such scope: {', '.join(unknown)}; there are {', '.join(ALL_SCOPES)}\n")
        return 2
    is_tier = not options.scopes
    options.scopes = options.scopes or TIERS[options.tier]
    began = time.monotonic()
    reports: list[ExplorationReport] = []
    for report in _with_redis(options) if options.replay else _run_all(options, None):
        reports.append(report)
        sys.stdout.write(text(report) + "\n")
        sys.stdout.flush()
        if options.json:
            Path(options.json).write_text(json.dumps([attrs.asdict(it) for it in reports], indent=1), "utf-8")
    wrong = complaints([report.result for report in reports]) if is_tier and not options.safety_only else []
    if is_tier:
        verdict = f"tier {options.tier}: {'NOT ' if wrong else ''}proven, {time.monotonic() - began:.0f} s"
        sys.stdout.write("\n".join([*wrong, verdict]) + "\n")
    return 0 if all(report.is_well for report in reports) and not wrong else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make explore", description="Visits every interleaving of small groups.")
    parser.add_argument("scopes", nargs="*", help=f"instead of a tier; there are {', '.join(ALL_SCOPES)}")
    tiers = "; ".join(f"{name}: {', '.join(scopes)}" for name, scopes in TIERS.items())
    parser.add_argument(
        "--tier", choices=sorted(TIERS), default="ci", help=f"which scopes together (default ci). {tiers}"
    )
    parser.add_argument(
        "--seconds", type=float, help="stop each scope after this time; the result then says incomplete"
    )
    parser.add_argument("--safety-only", action="store_true", help="without the fair closure of every state")
    parser.add_argument(
        "--replay", action="store_true", help="then replay all executions on a real Redis and on all Luas"
    )
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="replay every Nth execution only")
    parser.add_argument("--lua", choices=LUAS, help="which Lua explores")
    parser.add_argument("--processes", type=int, default=2, help="default 2")
    parser.add_argument("--json", help="write the figures to this file")
    return parser


def _with_redis(options: argparse.Namespace) -> Iterator[ExplorationReport]:
    """Each scope has a Redis of its own; otherwise they would overwrite each other's data."""
    from cobalance import servers

    running: list[servers.OwnRedis] = []
    try:
        for _ in options.scopes:
            # One by one: servers already started are stopped even if the next one fails.
            running.append(servers.private_redis())  # noqa: PERF401
        yield from _run_all(options, [server.url for server in running])
    finally:
        for server in running:
            server.close()


def _run_all(options: argparse.Namespace, urls: list[str] | None) -> Iterator[ExplorationReport]:
    work = [
        Exploration(
            scope=name,
            seconds=options.seconds,
            liveness=not options.safety_only,
            lua=options.lua,
            redis_url=urls[number] if urls else None,
            sample=options.sample,
        )
        for number, name in enumerate(options.scopes)
    ]
    if len(work) == 1:
        yield run(work[0])
        return
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(run, work)


def run(work: Exploration) -> ExplorationReport:
    """Explores and replays one scope. Handovers of partitions execute no scripts, so there is nothing to replay."""
    if work.scope in HANDOVER_SCOPES:
        handovers = HandoverTransitions(HANDOVER_SCOPES[work.scope])
        found = HandoverSearch(handovers, liveness=work.liveness, seconds=work.seconds).run(_progress(work.scope))
        return ExplorationReport(found, HandoverStory(handovers).tell(found.found) if found.found else "", ())
    world = Transitions(SCOPES[work.scope], lua=work.lua, digest=digest_of if work.redis_url else None)
    result = Search(world, liveness=work.liveness, seconds=work.seconds).run(_progress(work.scope))
    story = PathStory(world).tell(result.found) if result.found else ""
    return ExplorationReport(result, story, _replays(world, work.redis_url, work.sample) if work.redis_url else ())


def _replays(world: Transitions, url: str, every: int) -> tuple[Replayed, ...]:
    server = RealRedis(url)
    engines: list[ScriptEngine] = [server, *(InMemoryRedis(lua) for lua in LUAS)]
    try:
        return tuple(replay(world.coordinator, engine, every=every) for engine in engines)
    finally:
        server.close()


def _progress(name: str) -> Callable[[int, int, int], None]:
    def tell(depth: int, states: int, waiting: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{name}: depth {depth}, {states:,} states, {waiting:,} waiting ")

    return tell


def text(report: ExplorationReport) -> str:
    """The figures in lines, then the counterexample."""
    it = report.result
    verdict = "BROKEN" if it.found else ("complete" if it.is_complete else "incomplete: time is up")
    figures = (
        f"{it.scope}: {verdict}, {it.states:,} states, {it.transitions:,} transitions, depth {it.depth}, "
        f"{it.executions:,} distinct executions, {it.seconds:.1f} s ({it.cpu_seconds:.1f} s of CPU)"
    )
    lines = [figures, *_followed(it), _kinds(it)]
    for replayed in report.replays:
        bad = replayed.mismatches
        lines.append(
            f"  {replayed.engine}: {replayed.executions:,} replayed, {len(bad)} mismatches, {replayed.seconds:.1f} s"
        )
        lines += [f"    {bad[0].script} {bad[0].args}\n    {bad[0].expected}\n    {bad[0].got}"] if bad else []
    return "\n".join([*lines, report.story] if report.story else lines)


def _followed(it: SearchResult) -> Iterator[str]:
    if it.closures:
        wedged = ", ".join(f"{count:,} with {slot} never draining" for slot, count in it.closures.items() if slot)
        yield f"  fair continuations: from {it.closures['']:,} states, and again where its drains were needed: {wedged}"


def _kinds(it: SearchResult) -> str:
    return "  reached: " + ", ".join(f"{kind} {count:,}" for kind, count in it.reached.items())


def complaints(results: Sequence[SearchResult]) -> list[str]:
    """Says why the explorations of a tier prove less than they should; broken promises are reported separately."""
    unfinished = [it.scope for it in results if not it.is_complete and it.found is None]
    unfollowed = [it.scope for it in results if it.is_complete and it.closures.get("") != it.states]
    handovers = [HANDOVER_SCOPES[it.scope] for it in results if it.scope in HANDOVER_SCOPES]
    possible = [it for it in REQUIRED_OF_HANDOVERS if can_happen(it, handovers)]
    never = missing([it.reached for it in results], possible if handovers else REQUIRED)
    return [
        *([f"not complete: {', '.join(unfinished)}"] if unfinished else []),
        *([f"not followed from every state: {', '.join(unfollowed)}"] if unfollowed else []),
        *([f"never reached: {', '.join(never)}"] if never else []),
    ]
