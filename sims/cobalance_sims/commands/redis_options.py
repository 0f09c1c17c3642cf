"""Options of commands that read groups from Redis."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cobalance.coordinator.keys import DEFAULT_PREFIX

if TYPE_CHECKING:
    import argparse

KEY_PREFIX = "COBALANCE_KEY_PREFIX"


def add_key_prefix(parser: argparse.ArgumentParser) -> None:
    """What the groups' keys begin with."""
    parser.add_argument(
        "--key-prefix",
        default=os.environ.get(KEY_PREFIX) or DEFAULT_PREFIX,
        metavar="PREFIX",
        help=f"what the keys of the group begin with, as its members have it; by default {KEY_PREFIX}, or {DEFAULT_PREFIX}",
    )
