"""``cobalance sims journal`` around Spark: what is refused before it starts, how it ends, and what it leaves behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cobalance.cli.app import run
from cobalance.cli.exits import INTERRUPTED, UNREACHABLE, USAGE
from cobalance.cli.sims import journal as command
from cobalance.errors import CobalanceError, Unreachable
from cobalance_sims.spark import journal_export, session
from cobalance_sims.spark.journal_export import JournalFailed, own_words

SECRET = "s3cret"
URL = f"redis://user:{SECRET}@127.0.0.1:1"
SLOW = Exception("org.apache.spark.SparkException: Python worker failed to connect back.")


class Query:
    """A stream that runs until it fails, is stopped or is told to end."""

    def __init__(self, end: Callable[[], object], progress: object = None) -> None:
        self._end, self.lastProgress, self.stopped = end, progress, False

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 - Spark's name
        """Whether it has ended."""
        return bool(self._end())

    def stop(self) -> None:
        self.stopped = True


def raising(error: BaseException) -> Callable[[], None]:
    """Ends in an error."""

    def end() -> None:
        raise error

    return end


def terminated() -> None:
    """Ends as a service manager does it."""
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replaces Spark: records the options of each stream that was started. None continues by itself."""
    asked: list[Any] = []

    @contextmanager
    def spark_session(*_: object, **__: object) -> Iterator[None]:
        yield

    def start_export(_spark: None, _out: str, options: dict[str, str], _every_s: float | None) -> Query:
        asked.append(options)
        return Query(terminated)

    monkeypatch.setattr(session, "spark_session", spark_session)
    monkeypatch.setattr(journal_export, "start_export", start_export)
    monkeypatch.setattr(journal_export, "exported", lambda _spark, _out: [])
    return asked


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--redis-ulr", URL], "Unknown option"),
        (["--redis-url-file", URL], "a URL, not a path"),
        (["--redis-url", URL.replace("redis:", "rdis:")], "URL cannot be read"),
        (["--every", "0"], "no number of seconds"),
        (["--every", "nan"], "no number of seconds"),
        (["--max-entries", "0"], "Must be >= 1"),
        (["--since", "yesterday"], "not a point in time"),
        (["--redis-url-file", "/nowhere/url"], "No such file"),
    ],
)
def test_a_wrong_command_is_refused_before_spark_starts(
    started: list[Any], words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever was mistyped, the message contains no password."""
    assert run(["sims", "journal", "--out", str(tmp_path / "out"), "--group", "orders", *words]) == USAGE
    said = capsys.readouterr().err
    assert says in said
    assert SECRET not in said
    assert not started


def test_a_redis_that_does_not_answer_is_told_before_spark_starts(
    started: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark would take half a minute to start, and half another to give up."""
    words = ["--out", str(tmp_path / "out"), "--group", "orders", "--redis-url", URL]
    assert run(["sims", "journal", *words]) == UNREACHABLE
    said = capsys.readouterr().err
    assert "cannot be reached" in said
    assert SECRET not in said
    assert not started


def test_sigterm_ends_it_as_ctrl_c_does(started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service manager stops it: with --follow, that is the regular end. No file with the URL stays behind."""
    monkeypatch.setattr(command, "check_groups", lambda _: None)  # there is no Redis
    words = ["sims", "journal", "--out", str(tmp_path / "out"), "--group", "orders", "--redis-url", URL]
    before = signal.getsignal(signal.SIGTERM)
    assert run([*words, "--follow"]) == 0
    assert run(words) == INTERRUPTED
    assert len(started) == 2
    assert not any(Path(it["redisUrlFile"]).exists() for it in started)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_wish_to_stop_is_met_between_two_questions(sent: signal.Signals) -> None:
    """No call is interrupted, as by an exception: the current call finishes, and then the query is told to stop."""
    told: list[str] = []

    def end() -> None:
        os.kill(os.getpid(), sent)
        told.append("answered")

    query = Query(end)
    assert not command.to_the_end(lambda: query)  # type: ignore[arg-type, return-value]
    assert (told, query.stopped) == (["answered"], True)


def test_a_slow_start_is_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    """A message says so. Only failures in a row count: progress resets the count, even after weeks."""
    queries = [Query(raising(SLOW)) for _ in range(15)] + [Query(raising(SLOW), "batch 7")]
    queries += [Query(raising(SLOW)) for _ in range(15)] + [Query(lambda: True)]
    assert command.to_the_end(iter(queries).__next__)  # type: ignore[arg-type]
    assert capsys.readouterr().err.count("Trying again") == 31
    with pytest.raises(JournalFailed, match=r"too busy for Spark: 20 times in a row .* goes on from there"):
        command.to_the_end(lambda: Query(raising(SLOW)))  # type: ignore[arg-type, return-value]


def test_an_error_is_of_its_own_kind() -> None:
    """So that the exit code says whether it is worth trying again. The message also says what is kept."""
    cause = ConnectionError("Traceback …\ncobalance.errors.Unreachable: Redis at h:1 cannot be reached\nat java…")
    with pytest.raises(Unreachable, match=r"^Redis at h:1 cannot be reached.*exported before is kept"), own_words("x"):
        raise cause
    other = ConnectionError("cobalance_sims.spark.journal_rows.JournalIncomplete: The journal lacks the entries 1 to 2")
    with pytest.raises(JournalFailed, match="lacks the entries"), own_words("x"):
        raise other
    with pytest.raises(CobalanceError, match="went away"), own_words("x"):
        raise ConnectionError("Connection refused")


def test_a_folder_without_its_checkpoint_is_refused(
    started: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is unknown where its events end: they would come twice."""
    (tmp_path / "events").mkdir()
    assert run(["sims", "journal", "--out", str(tmp_path), "--group", "orders", "--redis-url", URL]) == USAGE
    assert "holds events but no checkpoint" in capsys.readouterr().err
    assert not started
