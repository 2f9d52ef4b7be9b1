"""The filter of system calls, run by an interpreter of its own: every call, both machines."""

import errno
import os
import re
import struct
from pathlib import Path

import pytest

from paddock.kernel import seccomp, syscalls
from paddock.kernel.syscalls import AARCH64, AUDIT_ARCH, CALL_NAMES, X86_64, call_number

ALLOW = 0x7FFF0000
KILL = 0x80000000
EPERM = 0x00050000 | errno.EPERM
ENOSYS = 0x00050000 | errno.ENOSYS

MACHINES = [pytest.param(X86_64, id="x86_64"), pytest.param(AARCH64, id="aarch64")]
INET = (seccomp.AF_INET, seccomp.AF_INET6)


def judge(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """Classic BPF over struct seccomp_data, as the kernel runs it."""
    words = [argument & (2**64 - 1) for argument in (*arguments, 0, 0, 0, 0, 0, 0)][:6]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *words)
    code = list(struct.iter_unpack("<HBBI", program))
    accumulator = at = 0
    while True:
        operation, if_true, if_false, constant = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, constant)
        elif operation == 0x06:
            return constant
        elif operation == 0x05:
            at += constant
        else:
            compare = {
                0x15: accumulator == constant,
                0x25: accumulator > constant,
                0x35: accumulator >= constant,
                0x45: accumulator & constant != 0,
            }
            at += if_true if compare[operation] else if_false


class Filter:
    """One machine's program, asked by names."""

    def __init__(self, at: int, families: tuple[int, ...] = INET) -> None:
        self.at = at
        self.program = seccomp.build_filter(families, at)

    def __call__(self, name: str, *arguments: int) -> int:
        number = call_number(name, self.at)
        assert number is not None, name
        return judge(self.program, AUDIT_ARCH[self.at], number, *arguments)

    def has(self, name: str) -> bool:
        return call_number(name, self.at) is not None


@pytest.mark.parametrize("at", MACHINES)
def test_every_number_gets_the_answer_of_its_name_and_every_other_is_allowed(at: int):
    ask = Filter(at)
    expected = dict.fromkeys(range(syscalls.LAST_KNOWN_CALL + 1), ALLOW)
    judged = set(CALL_NAMES) - set(seccomp.REFUSED) - set(seccomp.ABSENT)
    for name in CALL_NAMES:
        number = call_number(name, at)
        if number is not None and name in seccomp.REFUSED:
            expected[number] = EPERM
        elif number is not None and name in seccomp.ABSENT:
            expected[number] = ENOSYS
    for name in judged & {"socket", "socketpair"}:
        # Family 0 is none of those that are granted.
        expected[call_number(name, at)] = EPERM

    found = {number: judge(ask.program, AUDIT_ARCH[at], number) for number in expected}

    assert found == expected


@pytest.mark.parametrize("at", MACHINES)
def test_another_machines_calls_kill(at: int):
    ask = Filter(at)
    others = {AUDIT_ARCH[1 - at], 0x40000003, 0x40000028, 0}

    assert {judge(ask.program, arch, 0) for arch in others} == {KILL}


@pytest.mark.parametrize("number", [0x40000000, 0x40000001, 0xFFFFFFFF, 470, 600, 2**31])
@pytest.mark.parametrize("at", MACHINES)
def test_a_call_that_is_not_known_does_not_exist(at: int, number: int):
    assert judge(Filter(at).program, AUDIT_ARCH[at], number) == ENOSYS


NAMESPACES = [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]


@pytest.mark.parametrize("flag", NAMESPACES)
@pytest.mark.parametrize("at", MACHINES)
def test_no_namespace_of_any_kind_is_made(at: int, flag: int):
    ask = Filter(at)

    assert ask("clone", flag | 17) == EPERM
    assert ask("clone", flag | 17 | 1 << 40) == EPERM
    assert ask("unshare", flag) == EPERM
    assert ask("clone3") == ENOSYS


@pytest.mark.parametrize("at", MACHINES)
def test_processes_and_threads_can_be_made(at: int):
    ask = Filter(at)

    assert ask("clone", 17) == ALLOW
    assert ask("clone", 0x3D0F00) == ALLOW, "a thread of the C library"
    assert ask("clone", 0x4100 | 17) == ALLOW, "vfork"
    # The exit signal shares the low byte with a time namespace, which clone(2) cannot make.
    assert ask("clone", 0x80) == ALLOW
    assert ask("unshare", 0x80) == EPERM
    assert ask("unshare", 0x600) == ALLOW


@pytest.mark.parametrize("at", MACHINES)
def test_terminals_take_no_input_from_commands(at: int):
    ask = Filter(at)

    assert ask("ioctl", 0, 0x5412) == EPERM
    assert ask("ioctl", 0, 0x541C) == EPERM
    assert ask("ioctl", 0, 0x5423) == EPERM
    assert ask("ioctl", 0, 0x5412 | 1 << 32) == EPERM
    assert ask("ioctl", 0, 0x5413) == ALLOW


@pytest.mark.parametrize("at", MACHINES)
def test_sockets_of_the_granted_families_and_protocols_only(at: int):
    ask, closed = Filter(at), Filter(at, ())

    for family in range(50):
        expected = ALLOW if family in INET else EPERM
        assert ask("socket", family, 1, 0) == expected
        assert ask("socket", family | 1 << 32, 1, 0) == expected
        assert closed("socket", family, 1, 0) == EPERM
        assert ask("socketpair", family, 1) == (ALLOW if family == 1 else EPERM)
    for kind in range(16):
        expected = ALLOW if kind < 4 else EPERM
        assert ask("socket", 2, kind | 0o2004000, 0) == expected, "protocol 0 of a kind is one too"
    for protocol in range(300):
        allowed = protocol in (0, 1, 6, 17, 58, 262)
        assert ask("socket", 2, 1, protocol) == (ALLOW if allowed else EPERM)


@pytest.mark.parametrize("flags", [0, 0o4000, 0o2000000, 0o2004000])
@pytest.mark.parametrize("at", MACHINES)
def test_of_pairs_of_sockets_only_those_that_stay_with_each_other(at: int, flags: int):
    ask = Filter(at)

    for kind in range(16):
        expected = ALLOW if kind in (1, 5) else EPERM
        assert ask("socketpair", 1, kind | flags) == expected, kind
        assert ask("socketpair", 1, kind | flags | 1 << 32) == expected, kind


@pytest.mark.parametrize("at", MACHINES)
def test_no_lease_is_taken_and_all_else_is_asked_of_a_descriptor(at: int):
    ask = Filter(at)
    refused = {1024, 1040}

    for command in range(1100):
        assert ask("fcntl", 3, command) == (EPERM if command in refused else ALLOW)


@pytest.mark.parametrize("at", MACHINES)
def test_no_memory_is_taken_that_is_counted_nowhere(at: int):
    ask = Filter(at)

    assert ask("mmap", 0, 4096, 3, 0x22) == ALLOW
    assert ask("mmap", 0, 4096, 3, 0x22 | 0x40000 | 21 << 26) == EPERM
    assert ask("memfd_create") == ENOSYS


DONE = 0x00050000


@pytest.mark.parametrize("at", MACHINES)
def test_the_limit_of_core_dumps_stays_as_it_is(at: int):
    ask = Filter(at)

    assert ask("setrlimit", 4, 0x7000) == DONE
    assert ask("setrlimit", 7, 0x7000) == ALLOW
    assert ask("prlimit64", 0, 4, 0, 0x7000) == ALLOW, "only asked for"
    for pointer in (0x7000, 0x7F00_0000_0000, 1 << 32, 0x7F00_0000_7000):
        assert ask("prlimit64", 0, 4, pointer) == DONE
        assert ask("prlimit64", 0, 4 | 1 << 32, pointer) == DONE
        assert ask("prlimit64", 5, 7, pointer) == ALLOW
        assert ask("prlimit64", 1, 4, pointer) == EPERM


MODES = {0o644: ALLOW, 0o777: ALLOW, 0o1777: ALLOW, 0o4755: EPERM, 0o2755: EPERM, 0o6000: EPERM}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at", MACHINES)
def test_no_call_sets_a_setuid_or_setgid_bit(at: int, mode: int):
    ask = Filter(at)
    places = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1}
    places |= {"mknod": 1, "mknodat": 2}

    for name, place in places.items():
        if ask.has(name):
            assert ask(name, *[0] * place, mode) == MODES[mode], name
    for name, flags in (("open", 1), ("openat", 2)):
        if ask.has(name):
            assert ask(name, *[0] * flags, os.O_CREAT | os.O_WRONLY, mode) == MODES[mode]
            assert ask(name, *[0] * flags, os.O_TMPFILE | os.O_RDWR, mode) == MODES[mode]
            # The register holds anything where nothing is made.
            assert ask(name, *[0] * flags, os.O_RDONLY, mode) == ALLOW
    assert ask("openat2") == ENOSYS


@pytest.mark.parametrize("at", MACHINES)
def test_a_renaming_leaves_no_device_behind(at: int):
    ask = Filter(at)

    answers = [ask("renameat2", 0, 0, 0, 0, flags) for flags in (0, 1, 2, 4, 5, 4 | 1 << 32)]
    assert answers == [ALLOW, ALLOW, ALLOW, EPERM, EPERM, EPERM]


@pytest.mark.parametrize("at", MACHINES)
def test_the_first_process_is_out_of_reach_and_others_are_not(at: int):
    ask = Filter(at)
    for name, place in (("prlimit64", 0), ("sched_setscheduler", 0), ("setpriority", 1)):
        assert ask(name, *[0] * place, 1) == EPERM
        assert ask(name, *[0] * place, 0) == ALLOW
        assert ask(name, *[0] * place, 2) == ALLOW
    # A process, a group, and then every process of a user: the first one among them.
    assert [ask("setpriority", which, 0) for which in range(3)] == [ALLOW, ALLOW, EPERM]
    assert [ask("ioprio_set", which, 0) for which in range(1, 4)] == [ALLOW, ALLOW, EPERM]
    assert ask("ioprio_set", 1, 1) == EPERM


@pytest.mark.parametrize("at", MACHINES)
def test_among_the_hosts_processes_a_command_changes_none_but_itself(at: int):
    ask = Filter(at)
    alone = ask.program
    ask.program = seccomp.build_filter_among_others(INET, at)

    places = {"prlimit64": 0, "setpriority": 1, "ioprio_set": 1}
    places |= dict.fromkeys(("sched_setaffinity", "sched_setattr", "sched_setparam"), 0)
    for name, place in {**places, "sched_setscheduler": 0}.items():
        assert ask(name, *[0] * place, 0) == ALLOW
        for process in (1, 2, 77, 2**22, -1):
            assert ask(name, *[0] * place, process) == EPERM, name
    assert ask("prlimit64", 0, 4, 0x7000) == DONE
    assert ask("prlimit64", 0, 7, 0x7000) == ALLOW
    for name in seccomp.SHARED_MEMORY:
        assert ask(name) == EPERM
        assert judge(alone, AUDIT_ARCH[at], call_number(name, at)) == ALLOW
    # All else is the same.
    others = set(CALL_NAMES) - set(places) - {"sched_setscheduler"} - set(seccomp.SHARED_MEMORY)
    for name in others:
        number = call_number(name, at)
        if number is not None:
            same = judge(alone, AUDIT_ARCH[at], number)
            assert judge(ask.program, AUDIT_ARCH[at], number) == same, name


@pytest.mark.parametrize("at", MACHINES)
def test_the_program_is_one_that_the_kernel_takes(at: int):
    code = list(struct.iter_unpack("<HBBI", Filter(at).program))

    assert len(code) < 4096
    for place, (operation, if_true, if_false, constant) in enumerate(code):
        jumps = {0x15, 0x25, 0x35, 0x45}
        furthest = max(if_true, if_false) if operation in jumps else 0
        furthest = constant if operation == 0x05 else furthest
        assert operation == 0x06 or place + 1 + furthest < len(code)
    assert code[-1][0] == 0x06


def test_a_machine_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch):
    known = os.uname()
    fields = [known.sysname, known.nodename, known.release, known.version]
    for name in ("riscv64", "aarch64_be", "i686", "armv8l", ""):
        monkeypatch.setattr(os, "uname", lambda name=name: os.uname_result([*fields, name]))
        with pytest.raises(OSError, match="system call numbers") as caught:
            syscalls.this_machine()
        assert caught.value.errno == errno.ENOSYS
        with pytest.raises(OSError, match="system call numbers"):
            seccomp.build_filter(INET)


HEADERS = {
    X86_64: Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    AARCH64: Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("at", MACHINES)
def test_the_numbers_are_those_of_the_kernels_headers(at: int):
    if not HEADERS[at].exists():
        pytest.skip(f"needs the kernel's headers: {HEADERS[at]}")
    text = HEADERS[at].read_text()
    told = {
        name: int(number)
        for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)
    }

    for name in sorted(CALL_NAMES & set(told)):
        assert call_number(name, at) == told[name], name
    # Calls that these headers are too old for have the same number everywhere.
    for name in sorted(CALL_NAMES - set(told)):
        number = call_number(name, at)
        assert number is None or number >= 424, name
