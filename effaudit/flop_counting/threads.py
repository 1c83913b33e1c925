"""Work that a counted thread hands to other threads is counted there: dispatch modes are per thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import thread as pool_thread
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from effaudit.flop_counting.mode import CountingMode
from effaudit.flop_counting.patching import patched


def _is_pool_worker(thread: threading.Thread) -> bool:
    """Workers outlive the work that started them, so their tasks are followed instead."""
    return getattr(thread, "_target", None) is pool_thread._worker


class ThreadFollower:
    """Wraps work that a counted thread hands on in `counting(path)`, `path` being the module that handed it on."""

    def __init__(
        self, mode_here: Callable[[], CountingMode | None], counting: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        self._mode_here = mode_here
        self._counting = counting
        self._lock = threading.Lock()
        self._is_open = False
        self.n_unfinished = 0

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follows threads and pool tasks that start inside; what has not ended by then is `n_unfinished`."""
        start, submit = threading.Thread.start, ThreadPoolExecutor.submit

        def start_counted(thread: threading.Thread) -> None:
            if not _is_pool_worker(thread):
                thread.run = self._followed(thread.run)  # type: ignore[method-assign]
            start(thread)

        def submit_counted(pool: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            return submit(pool, self._followed(fn), *args, **kwargs)

        self._is_open, self.n_unfinished = True, 0
        try:
            with (
                patched(threading.Thread, "start", start_counted),
                patched(ThreadPoolExecutor, "submit", submit_counted),
            ):
                yield
        finally:
            self._is_open = False

    def _followed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        mode = self._mode_here()
        if mode is None:
            return work
        path = mode.path
        self._note(1)

        def run(*args: Any, **kwargs: Any) -> Any:
            if not self._is_open:
                return work(*args, **kwargs)
            try:
                with self._counting(path):
                    return work(*args, **kwargs)
            finally:
                self._note(-1)

        return run

    def _note(self, change: int) -> None:
        with self._lock:
            if self._is_open:
                self.n_unfinished += change
