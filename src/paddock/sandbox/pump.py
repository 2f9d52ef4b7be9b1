"""A thread that reads one stream to its end, for a command that pours.

Who polls a pipe is woken by every write to it; who blocks in a read is woken where there was
nothing, and slows the writer down half as much (`bench/spawn.py`). A command that says little
is polled all the same: a thread would cost more than it does.
"""

import os
import threading

from paddock.sandbox.capture import Capture


class Pump:
    """Owns a capture from here on."""

    def __init__(self, capture: Capture) -> None:
        """Start, on a descriptor that blocks from now on.

        Raises: RuntimeError where no thread can be had; then nothing is owned, and it does not.
        """
        self._capture = capture
        self._lock = threading.Lock()
        self._is_left = False
        self._is_ended = False
        self._is_closed = False
        self._error: OSError | None = None
        self._done = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        os.set_blocking(capture.fileno(), True)
        # A daemon: what hangs in the kernel and holds the pipe must not hold our process too.
        try:
            threading.Thread(target=self._run, name="paddock-output", daemon=True).start()
        except RuntimeError:
            os.set_blocking(capture.fileno(), False)
            os.close(self._done)
            raise

    def fileno(self) -> int:
        """Readable once the stream has ended, or cannot be read or saved."""
        return self._done

    def read(self) -> bool:
        """False, at the end. Raises: OSError of the pipe or of the spool's file."""
        if self._error is not None:
            raise self._error
        return False

    def leave(self) -> None:
        """Take nothing more in. A read that still waits goes on waiting, and changes nothing."""
        with self._lock:
            self._is_left = True

    def close(self) -> None:
        """Leave, and close the pipe: now, or when the read that waits for it is back.

        Not before: its number could be another file's by then.
        """
        with self._lock:
            self._is_left = self._is_closed = True
            if self._is_ended:
                self._capture.close()
            os.close(self._done)

    def _run(self) -> None:
        try:
            while self._take(self._capture.fill()):
                continue
        except OSError as error:
            self._error = error
            self._end()

    def _take(self, count: int) -> bool:
        with self._lock:
            is_open = not self._is_left and self._capture.take(count)
        if not is_open:
            self._end()
        return is_open

    def _end(self) -> None:
        with self._lock:
            self._is_ended = True
            if self._is_closed:
                self._capture.close()
            else:
                os.eventfd_write(self._done, 1)
