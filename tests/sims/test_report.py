"""The report: what it says of a run, what it refuses, and how it looks in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.chromium import Window, browser, window

from cobalance.cli.app import run
from cobalance.settings import GroupSettings
from cobalance_sims.outcomes import Event, fold
from cobalance_sims.records import EVENT, JOURNAL, OUTCOME, SIM
from cobalance_sims.report.before_after import before_after
from cobalance_sims.report.build import headline, sections
from cobalance_sims.report.choices import Tuned
from cobalance_sims.report.sensitivity import sensitivity
from cobalance_sims.report.sources import Material, NothingToReport, SourceUnreadable, read
from cobalance_sims.report.story import tell
from cobalance_sims.report.tradeoff import front
from cobalance_sims.report.words import duration, shortened
from cobalance_sims.spark.schemas import struct_array

EVIL = '<script>alert("$x^2$")</script>'
"""A resource of this name must neither run nor be read as a formula."""

START_MS = 1_790_000_000_000


def events(run: str = "orders", *, cut_short: bool = True) -> list[Event]:
    """Two members share four resources; a third joins and gets two, one by force; one is revoked and kept after all."""
    rows: list[dict[str, Any]] = [{"kind": "joined", "member": f"host/{at}.1", "reason": "-"} for at in (1, 2)]
    names = ["orders-1", "orders-2", "orders-3", EVIL]
    rows += [
        {"kind": "granted", "resource": name, "member": f"host/{1 + at % 2}.1", "token": at + 1}
        for at, name in enumerate(names)
    ]
    late: list[dict[str, Any]] = [
        {"kind": "joined", "member": "host/3.1", "reason": "-", "at_ms": 20_000},
        *({"kind": "revoking", "resource": name, "member": f"host/{1 + at % 2}.1", "token": at + 1, "handover_id": at + 1} for at, name in enumerate(names) if at),
        {"kind": "released", "resource": "orders-2", "member": "host/2.1", "token": 2, "handover_id": 2, "drain_ms": 900, "at_ms": 20_900},
        {"kind": "granted", "resource": "orders-2", "member": "host/3.1", "token": 12, "handover_id": 2},
        {"kind": "cancelled", "resource": "orders-3", "member": "host/1.1", "token": 3, "handover_id": 3, "drain_ms": 1_200, "at_ms": 21_200},
        {"kind": "forced" if cut_short else "released", "resource": EVIL, "member": "host/2.1", "token": 4, "handover_id": 4, "drain_ms": 10_000, "reason": "deadline", "at_ms": 30_000},
        {"kind": "granted", "resource": EVIL, "member": "host/3.1", "token": 14, "handover_id": 4, "at_ms": 30_250},
        {"kind": "leaving", "member": "host/1.1", "at_ms": 41_000},
    ]  # fmt: skip
    found, at_ms = [], 0
    for seq, row in enumerate([*rows, *late], 1):
        at_ms = row.pop("at_ms", at_ms)
        found.append(Event(run=run, source=SIM, id=None, seq=seq, at_ms=START_MS + at_ms, **row))
    return found


def write(folder: Path, record: Any, rows: list[Any]) -> None:
    """Writes rows as a wave of Parquet."""
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_struct_array(struct_array(record, rows)), folder / "part-0.parquet")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs under each of two revocation timeouts, the second of which leaves time to finish."""
    folder = tmp_path_factory.mktemp("sweep")
    told, outcomes = list[Event](), []
    for timeout_ms in (10_000, 30_000):
        for seed in (1, 2):
            run = f"lively-{timeout_ms}-{seed}"
            told += events(run, cut_short=timeout_ms == 10_000)
            done = fold(events(run, cut_short=timeout_ms == 10_000), run, SIM).outcome_dict()
            known = {
                "churn": "lively",
                "seed": seed,
                "resources": 4,
                "status": "ok",
                "revocation_timeout_ms": timeout_ms,
            }
            outcomes.append(OUTCOME.row({**done, **known}))
    write(folder / "events" / "wave=1", EVENT, told)
    write(folder / "outcomes" / "wave=1", OUTCOME, outcomes)
    return folder


def judged(factor: float, **changes: int) -> dict[str, Any]:
    """Settings and costs, as tune writes them."""
    settings = attrs.asdict(attrs.evolve(GroupSettings(), **changes))  # type: ignore[arg-type]  # mode is not among them
    amounts = {"unavailable": 100 * factor, "duplicates": 50 / factor, "heal": 9.0 if factor > 1 else None}
    costs = {name: {"value": it, "low": it and it * 0.9, "high": it and it * 1.1} for name, it in amounts.items()}
    return {"settings": settings, "costs": costs, "total": {"value": 1.0, "low": 0.9, "high": 1.1}}


@pytest.fixture(scope="module")
def tuned() -> dict[str, Any]:
    """What tune has written."""
    varied = [{"value": value, **judged(value / 10_000)} for value in (5_000, 10_000, 20_000)]
    return {
        "decision": "change",
        "reasons": [f"It is better than {EVIL}."],
        "collect": [],
        "command": "cobalance group configure orders --session-timeout 6000ms",
        "recommended": judged(1.5, session_timeout_ms=12_000),
        "today": judged(2.0),
        "peers": [
            {"name": name, "translation": "", **judged(factor)} for name, factor in (("Kafka", 4.0), ("Iggy", 3.0))
        ],
        "front": [judged(1.2)],
        "candidates": [judged(5.0), judged(0.5)],
        "sensitivity": [{"setting": "session_timeout_ms", "chosen": 10_000, "points": varied}],
        "limits": {"duplicates": 40.0},
        "units": {"unavailable": "resource-s/day", "duplicates": "messages/day", "heal": "s"},
    }


@pytest.fixture(scope="module")
def html(sweep: Path, tuned: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of both, with its pictures beside it."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "tune.json").write_text(json.dumps(tuned))
    words = [str(folder / "tune.json"), str(sweep), "--out", str(folder / "report.html"), "--png", str(folder / "png")]
    assert run(["sims", "report", *words, "--title", EVIL]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def shown(html: Path, chromium: str) -> Iterator[Window]:
    """The report in a browser."""
    with browser(chromium) as program, window(program) as found:
        found.page.goto(html.as_uri())
        yield found


FIGURES = ["before-after", "front", "sensitivity", "timeline-1", "drains-2", "gaps-2", "effects-3"]

MEASURED = """[...document.querySelectorAll('figure[id]')].map(figure => {
  const svg = figure.querySelector('svg'), box = svg.getBoundingClientRect();
  const ink = [...svg.querySelectorAll('path, rect, use')].filter(it => { const b = it.getBoundingClientRect(); return b.width * b.height > 4; });
  return {id: figure.id, wide: box.width, high: box.height, drawn: ink.length, alt: svg.getAttribute('role') === 'img' && svg.querySelector('desc').textContent,
          caption: figure.querySelector('figcaption').textContent};
})"""


def test_a_browser_shows_every_figure(shown: Window) -> None:
    """Each figure has a size, marks, a description and a caption; nothing was fetched, and the console is empty."""
    found = shown.page.evaluate(MEASURED)
    assert [it["id"] for it in found] == FIGURES
    for it in found:
        assert it["wide"] > 500, it
        assert it["high"] > 120, it
        assert it["drawn"] > 3, it
        assert len(it["alt"]) > 40, it
        assert len(it["caption"]) > 40, it
    assert shown.complaints == []
    assert [url for url in shown.requests if not url.startswith("file://")] == []
    assert len(shown.requests) == 1


def test_names_are_text(shown: Window, html: Path) -> None:
    """A title and a resource that look like a script stay words on the page."""
    page = shown.page
    assert page.evaluate("document.scripts.length") == 0
    assert page.evaluate("document.querySelector('h1').textContent") == EVIL
    lanes = page.evaluate("[...document.querySelectorAll('#timeline-1 text')].map(it => it.textContent)")
    assert any("script" in it for it in lanes)
    assert "<script" not in html.read_text()


def test_light_and_dark_are_one_drawing(shown: Window) -> None:
    """The same page follows what the reader's system prefers, figures included."""
    colours, page = [], shown.page
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        paint = "getComputedStyle(document.querySelector('#drains-2 text')).fill"
        colours.append(page.evaluate(f"[getComputedStyle(document.body).backgroundColor, {paint}]"))
    assert colours[0][0] != colours[1][0]
    assert colours[0][1] != colours[1][1]


def test_pictures_are_there_as_files(html: Path) -> None:
    """One PNG for each figure."""
    files = sorted((html.parent / "png").iterdir())
    assert [file.stem for file in files] == sorted(FIGURES)
    assert all(file.read_bytes().startswith(b"\x89PNG") and file.stat().st_size > 5_000 for file in files)


def test_a_story_is_what_happened() -> None:
    """Held, draining and free time add up to all lanes; cancelled revocations stay, forced ones show."""
    story = tell("orders", events())
    assert story is not None
    assert story.time_ms("held") + story.time_ms("draining") + story.time_ms("free") == 4 * story.length_ms
    assert story.time_ms("draining") == 900 + 1_200 + 10_000
    assert story.time_ms("free") == 250
    assert (story.count("forced"), story.count("cancelled"), story.count("joined")) == (1, 1, 3)
    owners = [piece.owner for piece in story.pieces if piece.resource == "orders-3" and piece.state == "held"]
    assert owners == ["host/1.1", "host/1.1"]


def test_a_journal_is_folded(tmp_path: Path) -> None:
    """An export is a report without Spark; a group that it does not have is refused by name."""
    rows = [event._replace(source=JOURNAL) for event in events()]
    write(tmp_path / "events" / "wave=0", EVENT, rows)
    found = read(str(tmp_path))
    assert found.outcomes[0]["forced"] == 1
    assert sum(found.histograms["drain_hist"].values()) == 2
    assert len(found.events) == len(rows)
    with pytest.raises(NothingToReport, match="has no group nobody; it has orders"):
        read(str(tmp_path), "nobody")


def test_what_cannot_be_reported_is_said(tmp_path: Path, tuned: dict[str, Any]) -> None:
    """An empty folder, a damaged part and a recommendation of another form: the message says what it is, and where."""
    with pytest.raises(NothingToReport, match="neither a sweep"):
        read(str(tmp_path))
    (tmp_path / "torn" / "events").mkdir(parents=True)
    (tmp_path / "torn" / "events" / "part-0.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(SourceUnreadable, match=r"part-0\.parquet"):
        read(str(tmp_path / "torn"))
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(SourceUnreadable, match=r"deep\.json cannot be read"):
        read(str(tmp_path / "deep.json"))
    with pytest.raises(SourceUnreadable, match="run cobalance sims tune again"):
        Tuned.read({name: value for name, value in tuned.items() if name != "front"})


def test_rows_of_another_form_are_refused_in_words(tmp_path: Path, sweep: Path) -> None:
    """Parquet without the columns of events or outcomes is other data, or another version's; a folder may be empty."""
    for name, table in (
        ("journal", {"run": ["g"], "kind": ["granted"]}),
        ("journal-2", {"run": ["g", None], "seq": [1, 2], "kind": ["joined", "left"], "at_ms": [1, 2]}),
    ):
        (tmp_path / name / "events").mkdir(parents=True)
        pq.write_table(pa.table(table), tmp_path / name / "events" / "part-0.parquet")
        with pytest.raises(SourceUnreadable, match="other data, or of another version"):
            read(str(tmp_path / name))
    (tmp_path / "old" / "outcomes").mkdir(parents=True)
    found = pq.read_table(sweep / "outcomes" / "wave=1" / "part-0.parquet").drop_columns(["deadline_moves"])
    pq.write_table(found, tmp_path / "old" / "outcomes" / "part-0.parquet")
    with pytest.raises(SourceUnreadable, match="deadline_moves"):
        read(str(tmp_path / "old"))
    (tmp_path / "empty" / "events").mkdir(parents=True)
    with pytest.raises(NothingToReport, match="holds no events"):
        read(str(tmp_path / "empty"))


def test_the_recommendation_is_found_among_other_files(tmp_path: Path, tuned: dict[str, Any]) -> None:
    """In a folder with the churn, its calibration and the recommendation, the last is what a report is made of."""
    (tmp_path / "churn.json").write_text("{}")
    (tmp_path / "tune.json").write_text(json.dumps(tuned))
    assert read(str(tmp_path)).tuned == tuned


def test_costs_without_a_bound_can_be_drawn(tuned: dict[str, Any]) -> None:
    """If healing has a weight and is never seen to end, all totals are unbounded: there is no sensitivity to show."""
    endless = {"value": None, "low": 3.0, "high": None}
    points = [{**it, "total": endless} for it in tuned["sensitivity"][0]["points"]]
    assert sensitivity(Tuned.read({**tuned, "sensitivity": [{**tuned["sensitivity"][0], "points": points}]})) is None


def test_settings_that_are_kept_are_not_compared(tuned: dict[str, Any]) -> None:
    """If today's settings are recommended, there is no before and after; the front shows them all the same."""
    kept = Tuned.read({**tuned, "recommended": tuned["today"], "decision": "keep"})
    assert kept.recommended is None
    assert before_after(kept) is None
    shown = front(kept)
    assert shown is not None
    assert "today: 200 resource-s/day unavailable and 25 messages/day duplicates" in shown.caption


def test_numbers_are_for_people() -> None:
    """Durations have the unit that fits, and shortened labels stay distinct."""
    assert [duration(ms) for ms in (0, 850, 1_234, 300_000, 7_300_000, 2e8)] == [
        "0 ms",
        "850 ms",
        "1.23 s",
        "5 min",
        "2.03 h",
        "2.31 days",
    ]
    names = [f"very-long-prefix-{at}" for at in range(3)]
    assert list(shortened(names).values()) == ["0", "1", "2"]
    assert len(set(shortened([f"a{'x' * 30}{at}{'y' * 30}" for at in range(3)]).values())) == 3


@pytest.mark.thorough
def test_the_title_says_what_was_found(tuned: dict[str, Any]) -> None:
    """The gain in per cent of what today's cost, with its interval beside it; a churn that is wrong comes before that."""
    gained = {**tuned, "today": {**judged(2.0), "total": {"value": 200.0, "low": 180.0, "high": 220.0}}, "gain": {"value": 80.0, "low": 60.0, "high": 100.0}}  # fmt: skip
    material = Material("tune.json", "tune", tuned=gained)
    assert headline([material]) == "Other settings would cost 40 % less a day"
    tiles = sections([material])[0].tiles
    assert (tiles[0].value, tiles[0].tone) == ("40 %", "good")
    assert "30 to 50 %" in tiles[0].meaning
    wrong = {**gained, "check": {"mismatches": ["false expiries: …"], "figures": []}}
    assert headline([Material("tune.json", "tune", tuned=wrong)]) == "The churn does not do what its journal shows"
    assert headline([]) == "Handovers under churn"
