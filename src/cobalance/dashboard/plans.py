"""What an operator may change, each planned as a dry run: what would change, in words. The rules are those of
:class:`~cobalance.GroupAdmin` and of the commands; here they are asked, and shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.admin.offset_target import OffsetTarget
from cobalance.errors import UsageError
from cobalance.limits import check_names
from cobalance.operate.wording import RESUMED, duration
from cobalance.settings import STORED_NAMES, differences, duration_ms

if TYPE_CHECKING:
    from cobalance.admin import GroupAdmin, StreamReset
    from cobalance.description import GroupDescription, ResourceDescription

MOST_SENTENCES = 50
"""About single partitions; how many more there are is said."""

Given = Mapping[str, Any]
"""What a browser sent."""


@attrs.frozen(kw_only=True)
class Plan:
    """What would change."""

    sentences: Sequence[str]
    basis: Callable[[GroupAdmin], object]
    """What this rests on."""
    seen: object
    """How that was when it was planned."""
    act: Callable[[GroupAdmin], Sequence[str]] | None
    """Makes the change, and says what was done. None if nothing would change."""


def plan_resume(admin: GroupAdmin, group: str, given: Given) -> Plan:
    """Halted partitions: those that are named, or all."""
    found, wanted = admin.describe(group), _names(given, "partitions")
    halted = [it for it in found.resources if it.halted is not None and (wanted is None or it.name in wanted)]
    names = [it.name for it in halted]
    others = [f"{name} is not halted." for name in wanted or () if name not in names]
    lines = [
        "A partition that is resumed goes to the member with the most room, which tries its messages again: fix the cause first."
    ]

    def act(acting: GroupAdmin) -> Sequence[str]:
        answers = acting.resume(group, *names)
        return _few(f"{name}: {RESUMED[answer]}." for name, answer in answers.items())

    return Plan(
        sentences=[*_few(_halted(it) for it in halted), *(lines if halted else ["Nothing is halted."]), *others],
        basis=lambda asked: _of(asked.describe(group), names),
        seen=_of(found, names),
        act=act if names else None,
    )


def _halted(it: ResourceDescription) -> str:
    tried = f"; by itself that would be in {duration(it.tried_in_ms)}" if it.tried_in_ms is not None else ""
    meant = f" Its offset {it.committed} then counts as meant for the stream that is there now."
    is_offset = it.halted == "OffsetUnknown" and it.committed is not None
    return f"{it.name} would be resumed, halted for {duration(it.age_ms)} ({it.halted}){tried}.{meant if is_offset else ''}"


def plan_settings(admin: GroupAdmin, group: str, given: Given) -> Plan:
    """Settings, as ``configure`` takes them: durations as 30s or 1500ms.

    Raises:
        InvalidSettings: a value is out of range or contradicts another one.
    """
    before = admin.describe(group).settings
    wanted = _mapping(given, "settings")
    unknown = [name for name in wanted if name not in STORED_NAMES]
    if unknown:
        raise UsageError(f"there is no group setting {unknown[0]!r}; there are {', '.join(STORED_NAMES)}")
    values: dict[str, Any] = {name: _setting(name, str(value)) for name, value in wanted.items()}
    after = attrs.evolve(before, **values)
    changes = differences(before, after)

    def act(acting: GroupAdmin) -> Sequence[str]:
        in_force = acting.configure(group, **{name: new for name, (_, new) in changes.items()})
        return [f"{name} is {_shown(name, getattr(in_force, name))}." for name in changes]

    return Plan(
        sentences=[
            *(
                f"{name} would be {_shown(name, new)} instead of {_shown(name, old)}."
                for name, (old, new) in changes.items()
            ),
            "All members go by it at once." if changes else "Nothing would change.",
        ],
        basis=lambda asked: asked.describe(group).settings,
        seen=before,
        act=act if changes else None,
    )


def _setting(name: str, text: str) -> int | str:
    if not name.endswith("_ms"):
        return text if name == "mode" else _whole(text)
    try:
        return duration_ms(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def _shown(name: str, value: int | str) -> str:
    return duration(value) if name.endswith("_ms") and isinstance(value, int) and value else str(value)


TARGETS = {
    "earliest": "to_earliest",
    "latest": "to_latest",
    "offset": "to_offset",
    "datetime": "to_datetime",
    "duration": "by_duration",
    "shift": "shift_by",
}
"""Where offsets may be set to → the option of ``reset-offsets``. A file is none of them: it would be one of this machine."""


def plan_offsets(admin: GroupAdmin, group: str, given: Given) -> Plan:
    """Committed offsets of streams: of those that are named, or of all.

    Raises:
        QueueMissing: there is no such stream.
        UsageError: it is a queue, which keeps no offsets, or the target is invalid.
    """
    steps = admin.plan_offsets(group, _target(given), _names(given, "streams"))
    found, names = admin.describe(group), [it.stream for it in steps]
    rows = {it.name: it for it in found.resources}
    halted = [name for name in names if name in rows and rows[name].halted is not None]
    lines = list(_few(_moved(it) for it in steps)) or ["There are no streams."]
    lines += _few(it.remark for it in steps if it.remark)
    if halted:
        lines.append(f"Halted, and then resumed: {', '.join(_few(halted))}.")
    if found.members and len(halted) < len(names):
        lines.append(
            f"The group has members ({len(found.members)}): it will be refused until they have stopped, unless all of this is halted."
        )

    def basis(asked: GroupAdmin) -> object:
        """Planned once more, to what was shown: it differs if a stream does not have that any more, or is another one."""
        return _of(asked.describe(group), names), asked.plan_offsets(group, {it.stream: it.next for it in steps})

    def act(acting: GroupAdmin) -> Sequence[str]:
        resumed = acting.reset_offsets(group, steps)
        done = [f"{it.stream}: the next message to be read is {it.next}." for it in steps]
        return [*_few(done), *([f"Resumed: {', '.join(_few(resumed))}."] if resumed else [])]

    seen = _of(found, names), [attrs.evolve(it, asked=it.next) for it in steps]
    return Plan(sentences=lines, basis=basis, seen=seen, act=act if steps else None)


def _target(given: Given) -> Any:
    kind, value = str(given.get("to", "")), str(given.get("value", "")).strip()
    if kind not in TARGETS:
        raise UsageError(f"say where the offsets are to be set to: {', '.join(TARGETS)}")
    option: dict[str, Any] = {TARGETS[kind]: value}
    if kind in {"earliest", "latest"}:
        option[TARGETS[kind]] = True
    elif kind in {"offset", "shift"}:
        option[TARGETS[kind]] = _whole(value)
    return OffsetTarget(**option).target


def _moved(step: StreamReset) -> str:
    start = f"{step.stream}: the next message to be read would be {step.next}"
    if step.before is None:
        return f"{start}; it has no committed offset now."
    now = step.before + 1
    if step.next == now:
        return f"{start}, as it is now."
    what = f"up to {step.next - now} are skipped" if step.next > now else f"up to {now - step.next} are handled again"
    return f"{start} instead of {now}: {what}."


PLANS: Mapping[str, Callable[[GroupAdmin, str, Given], Plan]] = {
    "resume": plan_resume,
    "settings": plan_settings,
    "offsets": plan_offsets,
}
"""Action → what plans it."""


def _of(group: GroupDescription, names: Collection[str]) -> object:
    """How some of its resources are, as far as a decision of an operator goes by that."""
    wanted = set(names)
    return [(it.name, it.token, it.committed, it.halted) for it in group.resources if it.name in wanted]


def _names(given: Given, key: str) -> Sequence[str] | None:
    found = given.get(key)
    if found is None:
        return None
    if not isinstance(found, list) or not found:
        raise UsageError(f"{key}: give a list of names, or leave it out for all")
    return [*dict.fromkeys(check_names(key.removesuffix("s"), found))]


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{text[:40]!r} is no whole number") from None


def _mapping(given: Given, key: str) -> Mapping[str, object]:
    found = given.get(key)
    if not isinstance(found, dict):
        raise UsageError(f"{key}: give an object of names and values")
    return found


def _few(texts: Iterable[str]) -> Sequence[str]:
    found = [*texts]
    rest = len(found) - MOST_SENTENCES
    return found if rest <= 0 else [*found[:MOST_SENTENCES], f"{rest} more"]
