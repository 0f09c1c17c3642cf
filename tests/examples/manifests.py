"""Reads the manifests in examples/, and the commands in them with the real parser."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from cobalance.cli.app import app

EXAMPLES = Path(__file__).parents[2] / "examples"

PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+\.\d+(-[\w.-]+)?")
"""An image with a whole version, so that everybody runs the same."""


def documents(path: str) -> list[Any]:
    """All documents of a YAML file below examples/."""
    return list(yaml.safe_load_all((EXAMPLES / path).read_text("utf-8")))


def parsed(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a command line of ``cobalance`` says, by the names of the command's parameters. Refuses what the command
    refuses.
    """
    assert all(isinstance(it, str) for it in arguments), "what is no text would be refused by the container's runtime"
    with patch.dict(os.environ, environment or {}, clear=True):
        _, bound, _ = app.parse_args(list(arguments), exit_on_error=False, print_error=False)
        bound.apply_defaults()
        return dict(bound.arguments)


def read_variables() -> set[str]:
    """The environment variables that the commands of these manifests read."""
    sources = "".join(it.read_text("utf-8") for it in (EXAMPLES.parent / "src/cobalance/cli").glob("*.py"))
    return set(re.findall(r'"(COBALANCE_\w+)"', sources))
