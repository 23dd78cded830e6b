"""Wall time of a run over all its resumes, without the time spent waiting for a person."""

from __future__ import annotations

from collections.abc import Callable

from romanesco.errors import RomanescoError


class Stopwatch:
    """Counts the active seconds of a run.

    The rule: from ``start`` on time counts, except while at least one question to a person is open **and**
    nothing else is in flight. So a run that asks and works on meanwhile pays for its work, and a run that can
    only wait doesn't pay for the person's time.

    Args:
        clock: Monotonic seconds. If it steps back, that step counts as nothing.
        base: Seconds that the journal has from before a resume.
    """

    __slots__ = ("_at", "_base", "_clock", "_running", "_waits", "_works")

    def __init__(self, clock: Callable[[], float], *, base: float = 0.0) -> None:
        self._clock = clock
        self._base = base
        self._at = 0.0
        self._running = False
        self._waits = 0
        self._works = 0

    def start(self) -> None:
        """Begin to count, or go on after ``stop``. Starting twice does nothing."""
        if not self._running:
            self._at = self._clock()
            self._running = True

    def stop(self) -> None:
        """Count no further, for example when the run is put aside. Stopping twice does nothing."""
        self._tick()
        self._running = False

    def pause(self) -> None:
        """A question to a person is open. Pauses nest: each needs its ``resume``."""
        self._tick()
        self._waits += 1

    def resume(self) -> None:
        """One question was answered or given up.

        Raises:
            RomanescoError: No pause is open.
        """
        if not self._waits:
            raise RomanescoError("the stopwatch was resumed without a pause", advice="This is a fault of the program.")
        self._tick()
        self._waits -= 1

    def working(self) -> _Work:
        """A call or other work is in flight in this block: time counts even if a question is open."""
        return _Work(self)

    @property
    def paused(self) -> bool:
        """Whether time stands still because a person is waited for and nothing else goes on."""
        return self._waits > 0 and self._works == 0

    @property
    def elapsed(self) -> float:
        """Active seconds until now, those before the resume included."""
        self._tick()
        return self._base

    def _tick(self) -> None:
        if self._running:
            now = self._clock()
            if not self.paused:
                self._base += max(0.0, now - self._at)
            self._at = now


class _Work:
    """A block of ``working``. A class, because a generator would cost more than all the rest on every call."""

    __slots__ = ("_watch",)

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch

    def __enter__(self) -> None:
        self._watch._tick()
        self._watch._works += 1

    def __exit__(self, *_: object) -> None:
        self._watch._tick()
        self._watch._works -= 1
