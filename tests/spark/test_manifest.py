"""The folder of a sweep or an export: one writer at a time, and no name that Spark would take for a pattern."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from cobalance.errors import UsageError
from cobalance_sims.spark.manifest import folder_of, only_writer


@pytest.mark.parametrize("out", ["runs[1]", "{a,b}", "what?", "s3a://bucket/all*", "back\\slash"])
def test_a_folder_whose_name_is_a_pattern_is_refused(out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark writes there and, reading it again, finds others or none: everything would be made a second time."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="takes for a pattern"), only_writer(out):
        pass
    assert not list(tmp_path.iterdir())


def test_no_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty name, as of a variable that is not set, does not mean the current folder."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no folder is named"), only_writer(" "):
        pass
    assert not list(tmp_path.iterdir())


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    """Whichever command it is. When the first one has ended, it may write."""
    refused = pytest.raises(UsageError, match="Another command is at work")
    with only_writer(str(tmp_path)), refused, only_writer(str(tmp_path)):
        pass
    with only_writer(str(tmp_path)):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_written_to(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Network mounts and mounted object stores may refuse locks, which does not mean that another command is at work."""

    def flock(*_: object) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(fcntl, "flock", flock)
    with only_writer(str(tmp_path)):
        assert (tmp_path / ".lock").exists()


def test_which_folders_are_of_this_machine(tmp_path: Path) -> None:
    """A plain path is taken as it is, a file URL is decoded, and anything else is elsewhere."""
    assert folder_of(f"{tmp_path}/a%20b#c") == tmp_path / "a%20b#c"
    assert folder_of(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    assert folder_of("s3a://bucket/runs") is None
