"""The small models that are checked to their end: of a group, and of one partition that is handed over."""

from __future__ import annotations

import re

import attrs

from proof.spec.tlc import DOCUMENT

Changes = tuple[tuple[str, str], ...]
"""Constants that differ from those of a configuration, and their values."""


@attrs.frozen(kw_only=True)
class Model:
    """A configuration of a module, perhaps with other constants."""

    summary: str
    """What is checked completely."""
    file: str
    module: str = "Small"
    bugs: str = "Bugs"
    """The module that plants mistakes in it."""
    changes: Changes = ()
    specification: str = ""
    promises: str = ""
    """If given, in place of those of the configuration: ``PROPERTIES L1``."""

    @property
    def text(self) -> str:
        """The configuration for TLC."""
        text = changed((DOCUMENT / f"{self.file}.cfg").read_text("utf-8"), self.file, self.changes)
        return specified(text, self.specification, self.promises)


def changed(text: str, file: str, changes: Changes) -> str:
    """A configuration with other constants.

    Raises:
        ValueError: it has no such constant.
    """
    for constant, value in changes:
        text, found = re.subn(rf"^    {constant} = .*$", f"    {constant} = {value}", text, flags=re.MULTILINE)
        if not found:
            raise ValueError(f"{file}.cfg has no constant {constant}")
    return text


def specified(text: str, specification: str, promises: str) -> str:
    """A configuration of another specification, or with other promises."""
    if specification:
        text = re.sub(r"^SPECIFICATION .*$", f"SPECIFICATION {specification}", text, flags=re.MULTILINE)
    if promises:
        text = re.sub(r"^(INVARIANTS|PROPERTIES) .*\n", "", text, flags=re.MULTILINE) + f"{promises}\n"
    return text


def _of_group(file: str, summary: str) -> tuple[str, Model]:
    return file, Model(file=file, summary=summary)


def _of_handover(name: str, summary: str, file: str = "Handover", **more: object) -> tuple[str, Model]:
    given = {"file": file, "summary": summary, "module": "Handover", "bugs": "HandoverBugs", **more}
    return name, Model(**given)  # type: ignore[arg-type]


MODELS: dict[str, Model] = dict(
    (
        _of_group("Delays", "2 members, 1 resource, one disturbance, answers that are believed a tick later"),
        _of_group(
            "Lists", "2 members, 1 resource, two disturbances: changing lists of one or both, crashes, freezes, cuts"
        ),
        _of_group(
            "Deploy",
            "2 members, 2 resources, of which they name one or both, one disturbance: a leave, a crash, another list, data lost",
        ),
        _of_group(
            "Endings", "2 members, 1 resource, which one or the other or both name, and name no more: L1, L2, L3"
        ),
        _of_group("Backups", "2 members, 1 resource, Redis comes back older"),
        _of_group("Avoidance", "2 members, 1 resource, two disturbances: work that breaks, crashes, freezes"),
        _of_group("Commits", "2 members, 1 resource, one disturbance, offsets, late commits and releases"),
        _of_group("Three", "3 members, 1 resource, a leave, a crash or a freeze"),
        _of_group("Crash", "3 members, 2 resources, a crash"),
        _of_group(
            "Interleavings", "2 members, 1 resource, two disturbances of any kind, scripts that leave work for later"
        ),
        _of_group("Safety", "2 members, 2 resources, one disturbance of any kind"),
        _of_group(
            "Liveness", "2 members, 1 resource, one disturbance of any kind: L1, L2, L3, no drain ever finishing"
        ),
        _of_handover("Handover", "1 partition of each kind, 2 messages, asked for once, a channel lost"),
        _of_handover(
            "HandoverForced",
            "1 partition of each kind, 2 messages, moved by force once, a channel lost",
            changes=(("Asks", "0"), ("Forces", "1")),
        ),
        _of_handover(
            "HandoverStopped",
            "1 partition of each kind, 2 messages, given up unfinished by its holder once, a channel lost",
            changes=(("Asks", "0"), ("Stops", "1")),
        ),
        _of_handover(
            "HandoverByKey",
            "1 queue, 3 messages of 2 keys side by side, asked for once",
            changes=(("Guards", '{"exclusive", "single active"}'), ("Messages", "3"), ("Keys", "2"), ("Losses", "0")),
        ),
        _of_handover(
            "HandoverTwice",
            "1 partition of each kind, 1 message, asked for twice: 3 holders",
            changes=(("Messages", "1"), ("Asks", "2"), ("Losses", "0")),
        ),
        _of_handover(
            "HandoverLive",
            "1 partition of each kind, 1 message, asked for once, no handler ever returning: WorkedAgain",
            "HandoverLive",
        ),
        _of_handover(
            "HandoverFinished",
            "1 partition of each kind, 1 message, moved by force once, a channel lost: AllFinished, WorkedAgain",
            "HandoverLive",
            changes=(("Asks", "0"), ("Forces", "1"), ("Losses", "1")),
            specification="LiveWithHandlers",
            promises="PROPERTIES AllFinished WorkedAgain",
        ),
    )
)
"""By name."""
