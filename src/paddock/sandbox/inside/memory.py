"""How much memory the processes of a pid namespace use, read from its /proc.

For hosts that delegate no cgroup. A quick estimate counts shared pages once for
every process and so is never too low; only when it is over the limit, the exact
figure is asked for, which takes the kernel a walk over page tables.
"""

from __future__ import annotations

import os

_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
_EXACT_FIELDS = (b"Pss_Anon:", b"SwapPss:")
_SHARED_FIELD = b"Pss_Shmem:"


def find_processes() -> list[bytes]:
    """Every process of the namespace but the first, which is ours."""
    return [name for name in os.listdir(b"/proc") if name.isdigit() and name != b"1"]


def is_alive(process: bytes) -> bool:
    """Whether a thread of it still runs: a zombie does not."""
    if _runs(b"/proc/%b" % process):
        return True
    # Threat: a process whose first thread has ended looks like a zombie, and goes on.
    return any(_runs(thread) for thread in _threads(process))


def _runs(task: bytes) -> bool:
    content = _read(task + b"/stat")
    # The name in parentheses may hold anything; the state comes behind the last of them.
    return content.rpartition(b")")[2].split()[:1] not in ([], [b"Z"], [b"X"])


def _threads(process: bytes) -> list[bytes]:
    folder = b"/proc/%b/task" % process
    try:
        return [b"%b/%b" % (folder, name) for name in os.listdir(folder)]
    except OSError:
        return []


def used_kb(limit_kb: int) -> int:
    """Memory of all processes and of the private file systems, in KiB.

    At or below `limit_kb` it is an estimate that is never too low; above, it is exact
    but for files in memory that are mapped too, which count once.
    """
    processes = find_processes()
    files = _files_kb()
    estimate = files + sum(resident_kb(process) for process in processes)
    if estimate <= limit_kb:
        return estimate
    private = shared = 0
    for process in processes:
        own, common = _proportional_kb(process)
        private += own
        shared += common
    return private + max(shared, files)


def _files_kb() -> int:
    """Files in memory: the private tmpfs, and System V segments that nobody need have mapped."""
    # The root itself, and not /tmp, where the workspace or a place of the host may stand.
    private = os.statvfs(b"/")
    used = (private.f_blocks - private.f_bfree) * private.f_frsize // 1024
    for line in _read(b"/proc/sysvipc/shm").splitlines()[1:]:
        resident, swapped = line.split()[-2:]
        used += (int(resident) + int(swapped)) // 1024
    return used


def resident_kb(process: bytes) -> int:
    """Resident memory of a process, pages that it shares included."""
    found = _pages_kb(b"/proc/%b" % process)
    if found is None:
        # Threat: see `is_alive`; the memory of a process is told by any thread that lives.
        found = max((_pages_kb(thread) or 0 for thread in _threads(process)), default=0)
    return found


def _pages_kb(task: bytes) -> int | None:
    """Resident memory of a task; None where it has ended and its memory is told elsewhere."""
    fields = _read(task + b"/statm").split()
    if len(fields) < 2 or fields[0] == b"0":
        return None
    return int(fields[1]) * _PAGE_KB


def _proportional_kb(process: bytes) -> tuple[int, int]:
    content = _read(b"/proc/%b/smaps_rollup" % process) or _first_rollup(process)
    if not content:
        # It has ended, or made itself unreadable: then all that it has is its own.
        return resident_kb(process), 0
    own = shared = 0
    for line in content.splitlines():
        if line.startswith(_EXACT_FIELDS):
            own += int(line.split()[1])
        elif line.startswith(_SHARED_FIELD):
            shared += int(line.split()[1])
    return own, shared


def _first_rollup(process: bytes) -> bytes:
    for thread in _threads(process):
        content = _read(thread + b"/smaps_rollup")
        if content:
            return content
    return b""


def _read(path: bytes) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""
    finally:
        os.close(fd)
