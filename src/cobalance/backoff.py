"""How long to pause between attempts."""

import attrs


@attrs.frozen
class Backoff:
    """The first pause, then each twice as long as the one before, up to the longest. In the caller's unit."""

    first: float
    longest: float

    def pause(self, failures: int) -> float:
        """The pause after this many failures in a row, at least one."""
        return min(self.first * 2.0 ** min(failures - 1, 20), self.longest)
