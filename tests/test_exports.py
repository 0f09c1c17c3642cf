"""What is public: complete, sorted, typed, and documented."""

from __future__ import annotations

import importlib
import inspect
from importlib.resources import files

import pytest

import cobalance

PUBLIC = ["cobalance", "cobalance.rabbitmq", "cobalance.servers"]


@pytest.mark.parametrize("name", PUBLIC)
def test_all_is_sorted_and_there(name: str) -> None:
    """`__all__` names what exists, in order, once."""
    module = importlib.import_module(name)
    assert list(module.__all__) == sorted(set(module.__all__))
    for item in module.__all__:
        assert hasattr(module, item)


@pytest.mark.parametrize("name", PUBLIC)
def test_nothing_else_is_imported_into_a_public_module(name: str) -> None:
    """So that nobody comes to depend on what is there by accident."""
    module = importlib.import_module(name)
    classes_and_functions = {
        item
        for item, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and not item.startswith("_")
    }
    assert classes_and_functions <= set(module.__all__)


@pytest.mark.parametrize("name", cobalance.__all__)
def test_public_things_are_documented(name: str) -> None:
    """Each has a docstring, and so has each of its public methods."""
    thing = getattr(cobalance, name)
    assert inspect.getdoc(thing)
    for method_name, method in inspect.getmembers(thing, inspect.isfunction):
        if not method_name.startswith("_"):
            assert inspect.getdoc(method), f"{name}.{method_name}"


def test_types_are_shipped() -> None:
    """The marker that makes type checkers look at our annotations."""
    assert (files(cobalance) / "py.typed").is_file()
