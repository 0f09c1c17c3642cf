"""Partitions as keys: equal if and only if nothing that can follow differs. Each reader's state is stored once."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from io import BytesIO
from operator import attrgetter
from typing import Any, cast

import attrs

from cobalance.errors import ChannelLost
from cobalance.rabbitmq.partition.actions import SetTimer, Timer
from cobalance.rabbitmq.partition.arrivals import Arrivals
from cobalance.rabbitmq.partition.core import PartitionCore
from cobalance.rabbitmq.partition.key_order import KeyOrder
from cobalance.rabbitmq.partition.refusals import Refusals
from cobalance.rabbitmq.partition.states import Lock, PartitionState
from cobalance.rabbitmq.streams.continuity import Continuity
from cobalance.rabbitmq.streams.position import Position
from proof.partitions.broker import OneQueue
from proof.partitions.handover import Partition
from proof.partitions.reader import IN_USE, LOST, Item, Reader

Key = tuple[int, ...]

_CONSTANTS: tuple[Any, ...] = (LOST, IN_USE, *PartitionState, *Lock, *Timer)


class Snapshots:
    """Takes partitions apart, and puts them together again."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._stored: list[bytes] = []

    def key(self, partition: Partition) -> Key:
        """The same for the same state."""
        readers, partition.readers = partition.readers, []
        for it in readers:
            _tidy(it)
        return self._number(partition), *map(self._number, readers)

    def partition(self, key: Key) -> Partition:
        """The partition, which may be changed."""
        first, *rest = (pickle.loads(self._stored[number]) for number in key)  # noqa: S301  # its own
        partition = cast("Partition", first)
        partition.readers = rest
        for it in partition.readers:
            it.core.backlog.acks = it.core.acks
        return partition

    def _number(self, value: Any) -> int:
        to = BytesIO()
        pickler = pickle.Pickler(to)
        pickler.fast = True  # whether two values are one object makes no difference
        pickler.dispatch_table = _REDUCED
        pickler.dump(value)
        number = self._numbers.setdefault(to.getvalue(), len(self._stored))
        if number == len(self._stored):
            self._stored.append(to.getvalue())
        return number


def _tidy(reader: Reader) -> None:
    """What makes no difference is made the same."""
    reader.core.backlog.acks = None  # type: ignore[assignment]  # it is the core's own, which is stored once
    refusals = reader.core._refusals  # noqa: SLF001
    refusals.count = min(refusals.count, 1)  # the first one is reported; how long pauses are does not matter here
    refusals._waited_ms = 0.0  # noqa: SLF001
    order: Any = reader.order
    if order is not None:
        order._ready.sort()  # noqa: SLF001  # a sorted heap is a heap
        order._lines = dict(sorted(order._lines.items()))  # noqa: SLF001
        order._taken = dict(sorted(order._taken.items()))  # noqa: SLF001


_Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def _by_fields(names: tuple[str, ...]) -> Callable[[Any], _Reduced]:
    number, values = len(_KINDS), attrgetter(*names, "__class__")
    _KINDS.append(names)
    return lambda it: (_make, (number, values(it)))


def _make(number: int, values: tuple[Any, ...]) -> Any:
    value = object.__new__(values[-1])
    put = object.__setattr__
    for name, it in zip(_KINDS[number], values, strict=False):
        put(value, name, it)
    return value


def _constant(it: Any) -> _Reduced:
    return _constant_at, (_CONSTANTS.index(it),)


def _constant_at(number: int) -> Any:
    return _CONSTANTS[number]


def _fields(kind: type) -> tuple[str, ...]:
    return tuple(it.name for it in attrs.fields(kind))


def _names(value: object) -> tuple[str, ...]:
    return tuple(vars(value))


_KINDS: list[tuple[str, ...]] = []

_core = PartitionCore("q", gate=Continuity("q", -1, int))

_PLAIN: tuple[object, ...] = (
    *(_core, _core.acks, _core.backlog, Arrivals()),
    *(KeyOrder(), Continuity("q", -1, int), Position(-1)),
)

_REDUCED: dict[type, Callable[[Any], _Reduced]] = {
    **{it: _by_fields(_fields(it)) for it in (Partition, Reader, Item, OneQueue, Refusals, SetTimer)},
    **{type(it): _by_fields(_names(it)) for it in _PLAIN},
    **dict.fromkeys((ChannelLost, PartitionState, Lock, Timer), _constant),
}
"""Their fields in order, without their names; everything else as pickle has it."""
