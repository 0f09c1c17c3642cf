"""One client's proxies to all servers of a kind, as one: what is done to it is done to each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.faults.proxy import FaultProxy

if TYPE_CHECKING:
    from tests.faults.proxy import Direction


class Ways:
    """Proxies by the port that a server is known by; see :class:`FaultProxy` for the faults."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        """`ports`: the port that a server is known by → its real port."""
        self._proxies = {known: FaultProxy(real) for known, real in ports.items()}

    @property
    def ports(self) -> dict[int, int]:
        """The port that a server is known by → the port where this client reaches it."""
        return {known: proxy.port for known, proxy in self._proxies.items()}

    def through(self, url: str) -> str:
        """Returns the URL with the proxies' ports."""
        for known, port in self.ports.items():
            url = url.replace(f":{known}", f":{port}")
        return url

    def delay(self, ms: float, *directions: Direction) -> None:
        for proxy in self._proxies.values():
            proxy.delay(ms, *directions)

    def black_hole(self, *directions: Direction) -> None:
        for proxy in self._proxies.values():
            proxy.black_hole(*directions)

    def heal(self) -> None:
        for proxy in self._proxies.values():
            proxy.heal()

    def reset(self) -> None:
        for proxy in self._proxies.values():
            proxy.reset()

    def close(self) -> None:
        for proxy in self._proxies.values():
            proxy.close()
