"""One client's proxies to all servers of a kind, as one thing: what is done to it is done to each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.faults.proxy import FaultProxy

if TYPE_CHECKING:
    from tests.faults.proxy import Direction


class Ways:
    """By the port that a server is known by."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        """`ports`: what a server is called → where it is."""
        self._proxies = {known: FaultProxy(real) for known, real in ports.items()}

    @property
    def ports(self) -> dict[int, int]:
        """What a server is called → where this client reaches it."""
        return {known: proxy.port for known, proxy in self._proxies.items()}

    def through(self, url: str) -> str:
        """The URL with the proxies' ports."""
        for known, port in self.ports.items():
            url = url.replace(f":{known}", f":{port}")
        return url

    def delay(self, ms: float, *directions: Direction) -> None:
        """See :class:`FaultProxy`, as for all that follow."""
        for proxy in self._proxies.values():
            proxy.delay(ms, *directions)

    def black_hole(self, *directions: Direction) -> None:
        """Nothing gets through."""
        for proxy in self._proxies.values():
            proxy.black_hole(*directions)

    def heal(self) -> None:
        """All is well again."""
        for proxy in self._proxies.values():
            proxy.heal()

    def reset(self) -> None:
        """RST."""
        for proxy in self._proxies.values():
            proxy.reset()

    def close(self) -> None:
        """The end."""
        for proxy in self._proxies.values():
            proxy.close()
