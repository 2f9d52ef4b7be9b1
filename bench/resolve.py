"""What resolving a path costs, against the bare system call that it rests on.

    python bench/resolve.py

Prints the median time of one `resolve_read` of an existing path five deep, and of one
bare openat2(2) with close(2) on the same path, both through ctypes, and their ratio.
The two are timed in alternating rounds, so that both see the same machine.
"""

import ctypes
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from paddock.workspace import Workspace
from paddock.workspace.workspace import Openat2Resolution, WalkResolution

PATH = "one/two/three/four/file.txt"
ROUNDS = 400
CALLS = 50
SYS_OPENAT2 = 437
RESOLVE = 0x08 | 0x04 | 0x02  # BENEATH, NO_SYMLINKS, NO_MAGICLINKS
BUDGET = 1.5


class Bare:
    """openat2 and close with nothing around them."""

    def __init__(self, root: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.call = libc.syscall
        self.call.argtypes = [
            ctypes.c_long,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_void_p,
            ctypes.c_size_t,
        ]
        self.call.restype = ctypes.c_long
        self.how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, RESOLVE)
        self.root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.path = PATH.encode()

    def __call__(self) -> None:
        """Open and close once."""
        os.close(self.call(SYS_OPENAT2, self.root_fd, self.path, ctypes.addressof(self.how), 24))


def time_us(act: Callable[[], object]) -> float:
    """Microseconds of one call, over a short round."""
    begin = time.perf_counter()
    for _ in range(CALLS):
        act()
    return (time.perf_counter() - begin) / CALLS * 1e6


def main() -> int:
    """Print both figures and the ratio; 1 if it is over budget."""
    with tempfile.TemporaryDirectory() as root:
        file = Path(root, PATH)
        file.parent.mkdir(parents=True)
        file.write_bytes(b"content\n")
        bare = Bare(root)
        with (
            Workspace.open(root, Openat2Resolution()) as by_openat2,
            Workspace.open(root, WalkResolution()) as by_walk,
        ):
            acts: dict[str, Callable[[], object]] = {
                "bare openat2 + close": bare,
                "resolve_read, openat2": lambda: by_openat2.resolve_read(PATH),
                "resolve_read, walk": lambda: by_walk.resolve_read(PATH),
            }
            times: dict[str, list[float]] = {name: [] for name in acts}
            for _ in range(ROUNDS):
                for name, act in acts.items():
                    times[name].append(time_us(act))
    medians = {name: statistics.median(found) for name, found in times.items()}
    floor = medians["bare openat2 + close"]
    for name, median_us in medians.items():
        print(f"{name:24} {median_us:7.2f} us   x {median_us / floor:.2f}")
    ratio = medians["resolve_read, openat2"] / floor
    print(f"budget {BUDGET}: {'kept' if ratio <= BUDGET else 'BROKEN'}")
    return 0 if ratio <= BUDGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
