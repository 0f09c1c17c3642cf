"""The tree of errors is what its docstring draws, and no error carries a secret."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from cobalance import errors


def classes() -> dict[str, type[errors.CobalanceError]]:
    found = inspect.getmembers(errors, lambda item: inspect.isclass(item) and issubclass(item, errors.CobalanceError))
    return dict(found)


def drawn() -> dict[str, str]:
    """Each name in the drawing, and the name of its parent."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for indent, name in re.findall(r"^    ([│├└─ ]*)([A-Z]\w+)", str(errors.__doc__), re.MULTILINE):
        del path[len(indent) // 4 :]
        if path:
            parents[name] = path[-1]
        path.append(name)
    return parents


def test_the_docstring_draws_the_tree() -> None:
    """Every class is drawn, below its base."""
    assert drawn() == {name: kind.__mro__[1].__name__ for name, kind in classes().items() if name != "CobalanceError"}


@pytest.mark.parametrize("name", sorted(classes()))
def test_no_error_carries_a_secret(name: str) -> None:
    """Neither its text nor its repr nor its arguments, even if the code that raised it was careless."""
    error = classes()[name]("cannot reach redis://user:s3cret@host/0")
    assert "s3cret" not in f"{error} {error!r} {error.args}"
    assert "redis://***@host/0" in str(error)


@pytest.mark.parametrize("name", sorted(classes()))
def test_every_error_is_documented(name: str) -> None:
    """Its docstring is its own."""
    assert classes()[name].__doc__ != classes()[name].__mro__[1].__doc__


def test_server_errors_say_whether_it_may_have_happened() -> None:
    """By default a refused operation did not happen, and a failed script may have."""
    assert errors.Unreachable("gone").outcome == "not_executed"
    assert errors.Unreachable("late", outcome="unknown").outcome == "unknown"
    assert errors.ScriptFailed("boom").outcome == "unknown"


def test_errors_cross_process_boundaries() -> None:
    """An error keeps its facts when pickled, as multiprocessing does."""
    error = pickle.loads(pickle.dumps(errors.PermissionMissing("no", command="evalsha", outcome="unknown")))  # noqa: S301
    assert (str(error), error.command, error.outcome) == ("no", "evalsha", "unknown")


def test_one_is_no_plural() -> None:
    """Wherever something is counted for people."""
    assert [errors.counted(count, "member") for count in (0, 1, 2_000)] == ["0 members", "1 member", "2,000 members"]
    assert [errors.counted(count, "entry", "entries") for count in (1, 2)] == ["1 entry", "2 entries"]
