"""Token arrivals of streams that run at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

# One stream: yields the number of new tokens as they arrive.
Stream = Callable[[], Iterator[int]]


@dataclass(frozen=True)
class Rate:
    """Summed decode rate while all streams were decoding.

    tokens, seconds: counted in that window. rows: how many streams.
    """

    tokens: int
    seconds: float
    rows: int

    def __post_init__(self) -> None:
        if self.tokens <= 0 or self.seconds <= 0:
            raise ValueError("the streams did not decode at the same time; ask for more tokens")

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def ms_per_forward(self) -> float:
        return 1000 * self.seconds * self.rows / self.tokens


def run_together(streams: Sequence[Stream]) -> Rate:
    """Run all streams at once and count in the window in which each of them decoded."""
    arrivals: list[list[tuple[float, int]]] = [[] for _ in streams]
    failures: list[BaseException] = []

    def follow(number: int) -> None:
        try:
            for count in streams[number]():
                arrivals[number].append((time.perf_counter(), count))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=follow, args=(i,)) for i in range(len(streams))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    if not all(arrivals):
        raise ValueError("a stream ended without a token")
    begin = max(stream[0][0] for stream in arrivals)
    end = min(stream[-1][0] for stream in arrivals)
    tokens = sum(n for stream in arrivals for at, n in stream if begin < at <= end)
    return Rate(tokens, end - begin, len(streams))
