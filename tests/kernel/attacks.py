"""What a hostile command would try: a numbered list, and the program that tries it.

    python attacks.py WORLD.json [NAME ...]

Prints one JSON line for each attack: its name, whether it reached its goal, and what
stopped it. Each runs in a child of its own, so that one cannot spoil the next. The
same program runs without a sandbox, where it has to succeed, and inside one.

`WORLD.json` says what there is to reach: see `test_attacks.py`, which furnishes it.
Only the standard library, for the program runs in a bare room.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
ATTACKS: dict[str, "Attack"] = {}


class Attack:
    """One entry: `works_for` says who reaches the goal without a sandbox.

    `effect` is set where only the host can tell whether the goal was reached: what it
    looks at, relative to the place outside, and must not find there.
    """

    effect: tuple[str, str] | None = None

    def __init__(self, act: Callable[[dict], object], works_for: str) -> None:
        self.number = len(ATTACKS) + 1
        self.name = act.__name__
        self.act = act
        self.works_for = works_for


def attack(act):
    """Reaches its goal without a sandbox, whoever does it."""
    ATTACKS[act.__name__] = Attack(act, "everybody")
    return act


def as_root(act):
    """Reaches its goal without a sandbox only for root."""
    ATTACKS[act.__name__] = Attack(act, "root")
    return act


def where_offered(act):
    """A matter of the host's kernel and its settings: without a sandbox it may fail as well."""
    ATTACKS[act.__name__] = Attack(act, "some")
    return act


def call(x86: int, arm: int, *arguments) -> int:
    """A system call by its number; raises OSError."""
    words = [
        ctypes.c_char_p(each) if isinstance(each, bytes) else ctypes.c_long(each)
        for each in arguments
    ]
    found = LIBC.syscall(ctypes.c_long(x86 if X86 else arm), *words)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return found


# --- files outside the workspace ------------------------------------------------


@attack
def write_outside(world):
    Path(world["outside"], "file").write_text("planted")
    return True


@attack
def write_outside_by_dots(world):
    Path(world["workspace"], "../outside/dots").write_text("planted")
    return True


@attack
def read_outside(world):
    return Path(world["outside"], "secret").read_text()


@attack
def read_the_private_home(world):
    return Path(world["home"], ".ssh/id").read_text()


@attack
def write_through_a_link_to_a_file(world):
    os.symlink(f"{world['outside']}/linked", f"{world['workspace']}/link-to-file")
    Path(world["workspace"], "link-to-file").write_text("planted")
    return True


@attack
def write_through_a_link_to_a_directory(world):
    os.symlink(world["outside"], f"{world['workspace']}/link-to-dir")
    Path(world["workspace"], "link-to-dir/through").write_text("planted")
    return True


@attack
def write_through_a_hard_link_made_here(world):
    os.link(f"{world['outside']}/file", f"{world['workspace']}/hard")
    Path(world["workspace"], "hard").write_text("planted")
    return True


@attack
def write_through_a_hard_link_that_was_there(world):
    Path(world["workspace"], "shared").write_text("planted")
    return True


ATTACKS["write_through_a_hard_link_that_was_there"].effect = ("shared", "planted")


@attack
def truncate_outside(world):
    os.truncate(f"{world['outside']}/file", 0)
    return True


@attack
def chmod_outside(world):
    os.chmod(f"{world['outside']}/file", 0o600)
    return True


@attack
def set_times_outside(world):
    os.utime(f"{world['outside']}/file", (1, 1))
    return True


@attack
def rename_outside(world):
    os.rename(f"{world['outside']}/file", f"{world['outside']}/renamed")
    os.rename(f"{world['outside']}/renamed", f"{world['outside']}/file")
    return True


@attack
def move_the_workspace_away(world):
    os.rename(world["workspace"], world["workspace"] + "-away")
    os.rename(world["workspace"] + "-away", world["workspace"])
    return True


@attack
def read_a_hidden_name(world):
    return Path(world["workspace"], ".env").read_text()


@attack
def read_a_hidden_name_below(world):
    return Path(world["workspace"], "deep/down/.env").read_text()


@attack
def read_a_hidden_name_by_a_moved_parent(world):
    os.rename(f"{world['workspace']}/deep", f"{world['workspace']}/moved")
    try:
        return Path(world["workspace"], "moved/down/.env").read_text()
    finally:
        os.rename(f"{world['workspace']}/moved", f"{world['workspace']}/deep")


@attack
def write_what_may_be_read(world):
    Path(world["readable"], "planted").write_text("planted")
    return True


@attack
def write_the_hosts_shared_memory(world):
    Path(world["shm"]).write_text("planted")
    return Path(world["shm"]).read_text() and _is_outside_seen(world, "shm")


@attack
def write_the_hosts_temporary_directory(world):
    Path(world["tmp"]).write_text("planted")
    return _is_outside_seen(world, "tmp")


def _is_outside_seen(world, what):
    """The host left a mark beside it; a private directory does not have it."""
    return Path(world[what] + ".mark").exists()


@attack
def through_the_root_of_this_process(world):
    Path("/proc/self/root" + world["outside"], "file").write_text("planted")
    return True


@attack
def through_the_root_of_the_first_process(world):
    return Path(f"/proc/{world['victim']}/root{world['outside']}/file").write_text("planted")


@attack
def through_the_working_directory_of_another(world):
    return Path(f"/proc/{world['victim']}/cwd/file").write_text("planted")


@attack
def through_a_descriptor_of_another(world):
    return Path(f"/proc/{world['victim']}/fd/{world['victim_fd']}").read_text()


@attack
def through_the_first_process_in_here(world):
    """Ours is the first in a sandbox, and holds a socket to the host. Outside: any other."""
    who = world["victim"] if os.path.exists(f"/proc/{world['victim']}") else 1
    return os.listdir(f"/proc/{who}/fd") and os.readlink(f"/proc/{who}/fd/0")


@attack
def the_environment_of_another(world):
    return "hunter2" in Path(f"/proc/{world['victim']}/environ").read_text()


@attack
def secrets_in_the_environment(world):
    return any("hunter2" in value for value in os.environ.values())


@attack
def a_leaked_descriptor(world):
    for fd in range(3, 256):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if name.startswith(world["outside"]):
            return True
    return False


@as_root
def climb_by_chroot(world):
    os.chroot(world["workspace"])
    os.chdir("../../../../../../..")
    return True


@as_root
def open_by_handle(world):
    handle = ctypes.create_string_buffer(8 + 128)
    struct.pack_into("II", handle, 0, 128, 0)
    mount_id = ctypes.c_int()
    call(
        303,
        264,
        -100,
        os.fsencode(world["workspace"]),
        ctypes.addressof(handle),
        ctypes.addressof(mount_id),
        0,
    )
    directory = os.open(world["workspace"], os.O_RDONLY)
    return call(304, 265, directory, ctypes.addressof(handle), os.O_RDONLY) >= 0


@as_root
def read_a_raw_disk(world):
    device = os.stat(world["workspace"]).st_dev
    os.mknod(f"{world['workspace']}/disk", stat.S_IFBLK | 0o600, device)
    return True


@where_offered
def read_the_kernels_memory(world):
    return os.pread(os.open("/proc/kcore", os.O_RDONLY), 16, 0)


@as_root
def read_shadow(world):
    return Path("/etc/shadow").read_text()


# --- marks in files ---------------------------------------------------------------


@attack
def set_the_setuid_bit(world):
    path = Path(world["workspace"], "setuid")
    path.write_text("x")
    path.chmod(0o4755)
    return path.stat().st_mode & 0o4000


@attack
def set_the_setgid_bit_by_descriptor(world):
    fd = os.open(f"{world['workspace']}/setgid", os.O_CREAT | os.O_WRONLY, 0o755)
    os.fchmod(fd, 0o2755)
    return os.fstat(fd).st_mode & 0o2000


@attack
def set_the_setuid_bit_by_fchmodat2(world):
    path = Path(world["workspace"], "setuid2")
    path.write_text("x")
    call(452, 452, -100, os.fsencode(path), 0o4755, 0)
    return path.stat().st_mode & 0o4000


@attack
def create_with_the_setuid_bit(world):
    fd = os.open(f"{world['workspace']}/born-setuid", os.O_CREAT | os.O_WRONLY, 0o4755)
    return os.fstat(fd).st_mode & 0o4000


@attack
def create_with_the_setuid_bit_by_openat2(world):
    how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    fd = call(437, 437, -100, os.fsencode(world["workspace"] + "/born2"), how, len(how))
    return os.fstat(fd).st_mode & 0o4000


@attack
def make_a_node_with_the_setuid_bit(world):
    os.mknod(f"{world['workspace']}/node", stat.S_IFREG | 0o4755)
    return os.stat(f"{world['workspace']}/node").st_mode & 0o4000


@attack
def plant_a_whiteout(world):
    os.mknod(f"{world['workspace']}/whiteout", stat.S_IFCHR, 0)
    return True


@as_root
def make_a_file_immutable(world):
    fd = os.open(f"{world['workspace']}/immutable", os.O_CREAT | os.O_RDONLY, 0o600)
    flags = struct.unpack("l", fcntl.ioctl(fd, 0x80086601, struct.pack("l", 0)))[0]
    fcntl.ioctl(fd, 0x40086602, struct.pack("l", flags | 0x10))
    fcntl.ioctl(fd, 0x40086602, struct.pack("l", flags))
    return True


@as_root
def give_a_file_capabilities(world):
    path = f"{world['workspace']}/capable"
    Path(path).write_text("x")
    os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000001, 0xFFFFFFFF, 0, 0, 0))
    return True


# --- other processes ------------------------------------------------------------


@attack
def signal_another(world):
    os.kill(world["victim"], 0)
    return True


@attack
def signal_everything(world):
    if os.getpid() < 1000 and os.getppid() < 1000:
        os.kill(1, signal.SIGKILL)
        time.sleep(0.05)
        os.kill(1, 0)
        return False
    os.kill(world["victim"], signal.SIGCONT)
    return True


@attack
def trace_another(world):
    LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    return _prctl_ok(LIBC.ptrace(0x4206, world["victim"], None, None))


@attack
def be_traced(world):
    return _prctl_ok(LIBC.ptrace(0, 0, None, None))


def _prctl_ok(found: int) -> bool:
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True


@attack
def read_anothers_memory(world):
    into = ctypes.create_string_buffer(8)
    local = struct.pack("PN", ctypes.addressof(into), 8)
    remote = struct.pack("PN", world["victim_address"], 8)
    return call(310, 270, world["victim"], local, 1, remote, 1, 0)


@attack
def open_anothers_memory(world):
    return os.pread(
        os.open(f"/proc/{world['victim']}/mem", os.O_RDONLY), 8, world["victim_address"]
    )


@attack
def take_anothers_descriptor(world):
    fd = os.pidfd_open(world["victim"])
    return call(438, 438, fd, world["victim_fd"], 0)


@attack
def compare_with_another(world):
    return call(312, 272, os.getpid(), world["victim"], 0, 0, 0) >= 0


@attack
def limit_the_first_process(world):
    """Starve who watches us. Outside there is none, so its place is taken by a child."""
    who = 1 if os.getppid() < 100 else world["victim"]
    old = ctypes.create_string_buffer(16)
    call(302, 261, who, 7, 0, ctypes.addressof(old))
    return True


# --- namespaces and mounts --------------------------------------------------------


@attack
def make_a_user_namespace(world):
    call(272, 97, 0x10000000)
    return True


@attack
def clone_a_user_namespace(world):
    pid = call(56, 220, 0x10000000 | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


@attack
def clone3_a_user_namespace(world):
    arguments = struct.pack("8Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0)
    pid = call(435, 435, arguments, 64)
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


@as_root
def make_a_mount_namespace(world):
    call(272, 97, 0x20000)
    return True


@as_root
def enter_a_namespace_of_another(world):
    fd = os.open(f"/proc/{world['victim']}/ns/mnt", os.O_RDONLY)
    return call(308, 268, fd, 0) == 0


@where_offered
def mount_in_a_namespace_of_its_own(world):
    done = subprocess.run(
        ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def _own_mounts():
    """Without a sandbox, nothing of this may reach the host's own mounts."""
    call(272, 97, 0x20000)
    call(165, 40, b"none", b"/", b"none", 0x44000, 0)


def _mount(source, target, kind, flags):
    call(165, 40, source, target, kind, flags, 0)
    return True


@as_root
def mount_a_file_system(world):
    _own_mounts()
    return _mount(b"none", os.fsencode(world["workspace"]), b"tmpfs", 0)


@as_root
def bind_over_a_directory(world):
    _own_mounts()
    return _mount(b"/etc", os.fsencode(world["workspace"]), b"none", 4096)


@as_root
def remount_for_writing(world):
    _own_mounts()
    _mount(b"/usr", b"/usr", b"none", 4096)
    return _mount(b"none", b"/usr", b"none", 32 | 4096)


@as_root
def unmount(world):
    _own_mounts()
    call(166, 39, b"/proc", 2)
    return True


@as_root
def unmount_the_overlay(world):
    _own_mounts()
    _mount(b"none", os.fsencode(world["workspace"]), b"tmpfs", 0)
    call(166, 39, os.fsencode(world["workspace"]), 2)
    return True


@as_root
def open_a_file_system(world):
    return call(430, 430, b"tmpfs", 0) >= 0


@as_root
def clone_a_mount(world):
    return call(428, 428, -100, b"/", 1) >= 0


@as_root
def change_a_mount(world):
    _own_mounts()
    return call(442, 442, -100, b"/", 0, struct.pack("QQQQ", 0, 0, 0, 0), 32) == 0


@as_root
def pivot_the_root(world):
    _own_mounts()
    place = os.fsencode(world["workspace"])
    _mount(b"none", place, b"tmpfs", 0)
    os.chdir(place)
    return call(155, 41, b".", b".") == 0


@as_root
def write_a_setting_of_the_kernel(world):
    path = Path("/proc/sys/kernel/core_pattern")
    path.write_text(path.read_text())
    return True


@where_offered
def write_a_setting_of_namespaces(world):
    path = Path("/proc/sys/user/max_user_namespaces")
    path.write_text(path.read_text())
    return True


@as_root
def set_a_value_of_the_kernel(world):
    """To what it is: only the right to do it is asked for."""
    setting = Path("/proc/sys/vm/swappiness")
    setting.write_text(setting.read_text())
    return True


@as_root
def set_the_hosts_name(world):
    call(170, 161, os.fsencode(socket.gethostname()), len(socket.gethostname()))
    return True


@as_root
def set_the_clock(world):
    # Of nothing to nothing: only the right to do it is asked for.
    call(164, 170, 0, 0)
    return True


# --- the kernel's corners -----------------------------------------------------------


@as_root
def read_the_kernels_log(world):
    return call(103, 116, 10, 0, 0) >= 0


@where_offered
def add_a_key(world):
    return call(248, 217, b"user", b"paddock-test", b"x", 1, -2)


@where_offered
def join_a_keyring(world):
    return call(250, 219, 1, 0) >= 0


@as_root
def load_a_bpf_program(world):
    attributes = ctypes.create_string_buffer(72)
    struct.pack_into("IIII", attributes, 0, 1, 4, 4, 1)
    return call(321, 280, 0, ctypes.addressof(attributes), 72)


@where_offered
def count_performance_events(world):
    attributes = ctypes.create_string_buffer(128)
    struct.pack_into("IIQ", attributes, 0, 1, 128, 1)
    struct.pack_into("Q", attributes, 40, 1 | (1 << 5) | (1 << 6))
    return call(298, 241, ctypes.addressof(attributes), 0, -1, -1, 0)


@as_root
def handle_page_faults(world):
    return call(323, 282, os.O_CLOEXEC) >= 0


@where_offered
def set_up_io_uring(world):
    parameters = ctypes.create_string_buffer(120)
    return call(425, 425, 4, ctypes.addressof(parameters)) >= 0


def _type_with(request: int) -> bool:
    _, slave = os.openpty()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setsid()
            fcntl.ioctl(slave, 0x540E, 0)
            call(16, 29, slave, request, b"x")
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return status == 0


@where_offered
def type_into_a_terminal(world):
    return _type_with(0x5412)


@where_offered
def type_into_a_terminal_with_high_bits(world):
    """The kernel reads 32 bits of the request; a filter that compares 64 is passed."""
    return _type_with(0x5412 | (1 << 32))


@attack
def run_from_memory(world):
    fd = os.memfd_create("program")
    os.write(fd, Path("/bin/sh").resolve().read_bytes())
    return subprocess.run([f"/proc/self/fd/{fd}", "-c", "exit 0"], pass_fds=[fd], check=True)


@where_offered
def enter_the_kernel_by_another_door(world):
    """int 0x80: 32-bit numbers. getpid there, writev for a filter of 64-bit numbers."""
    if not X86:
        raise OSError(errno.ENOSYS, "x86_64 only")
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    pid = os.fork()
    if pid == 0:
        found = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        os._exit(0 if found == os.getpid() else 1)
    _, status = os.waitpid(pid, 0)
    return status == 0


@where_offered
def load_a_module(world):
    try:
        call(313, 273, -1, b"", 0)
    except OSError as error:
        # Past the check of privileges, the descriptor is looked at.
        return error.errno in (errno.EBADF, errno.EINVAL) or _raise(error)


@where_offered
def start_another_kernel(world):
    try:
        call(246, 104, 0, 1000, 0, 0)
    except OSError as error:
        return error.errno == errno.EINVAL or _raise(error)


def _raise(error):
    raise error


@as_root
def watch_all_files(world):
    return call(300, 262, 0, os.O_RDONLY) >= 0


@as_root
def become_another_user(world):
    os.setresuid(12345, 12345, 12345)
    return True


@as_root
def give_a_file_away(world):
    path = f"{world['workspace']}/given"
    Path(path).write_text("x")
    os.chown(path, 12345, 12345)
    return True


@where_offered
def raise_a_hard_limit(world):
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    return True


# --- sockets ----------------------------------------------------------------------


@attack
def connect_to_the_host(world):
    with socket.create_connection(("127.0.0.1", world["tcp"]), timeout=2):
        return True


@where_offered
def connect_to_the_host_by_ipv6(world):
    with socket.create_connection(("::1", world["tcp6"]), timeout=2):
        return True


@attack
def send_a_datagram(world):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", world["udp"]))
        sender.send(b"x")
        sender.settimeout(2)
        return sender.recv(1)


@attack
def be_reached_from_the_host(world):
    """The address is written where the host looks; it says so by connecting."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(1)
        with socket.create_connection(("127.0.0.1", world["tcp"]), timeout=2) as asking:
            asking.sendall(b"%d" % server.getsockname()[1])
        server.accept()
        return True


@attack
def an_abstract_socket(world):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + world["abstract"])
        return True


@attack
def a_socket_in_the_workspace(world):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(world["socket"])
        return True


@attack
def a_socket_among_what_may_be_read(world):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(world["readable_socket"])
        return True


@attack
def a_netlink_socket(world):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0):
        return True


@as_root
def a_packet_socket(world):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0):
        return True


@as_root
def a_raw_socket(world):
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, 1):
        return True


@where_offered
def a_vsock_or_alg_socket(world):
    for family in (40, 38):
        try:
            socket.socket(family, socket.SOCK_STREAM if family == 40 else socket.SOCK_SEQPACKET, 0)
        except OSError as error:
            if error.errno == errno.EAFNOSUPPORT:
                continue
            raise
        return True
    raise OSError(errno.EAFNOSUPPORT, "neither")


# --- memory shared between processes ------------------------------------------------


@attack
def a_shared_memory_segment(world):
    # Its address may look negative.
    LIBC.shmat.restype = ctypes.c_void_p
    if LIBC.shmat(world["segment"], None, 0o10000) in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True


@attack
def find_a_shared_memory_segment(world):
    return call(29, 194, world["segment_key"], 0, 0) >= 0


@attack
def a_message_queue_of_the_host(world):
    return call(68, 186, world["queue_key"], 0) >= 0


@attack
def a_posix_queue_of_the_host(world):
    return call(240, 180, os.fsencode(world["posix_queue"]), os.O_RDONLY, 0, 0) >= 0


# --- what a hostile reader of the list added ----------------------------------------


@attack
def a_datagram_through_a_pair(world):
    """One of a pair of datagram sockets sends to any name, though no socket can be made."""
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return ours.sendto(b"x", world["readable_datagrams"])


@attack
def a_descriptor_handed_out_through_a_pair(world):
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.connect(world["readable_datagrams"])
    with open("/dev/null") as kept:
        rights = struct.pack("i", kept.fileno())
        return ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


@attack
def an_abstract_datagram_through_a_raw_pair(world):
    """SOCK_RAW is another word for SOCK_DGRAM there."""
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
    return ours.sendto(b"x", "\0" + world["abstract_datagrams"])


@attack
def hold_a_lease(world):
    """On a file that may be read: whoever writes it waits for us, 45 seconds by default."""
    fd = os.open(f"{world['readable']}/leased", os.O_RDONLY)
    return call(72, 25, fd, 1024, fcntl.F_RDLCK) == 0


@attack
def dump_core_for_the_hosts_handler(world):
    """It is started for every limit but 1, for 0 too."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    return resource.getrlimit(resource.RLIMIT_CORE)[0] != 1


NOBODYS_ID = 1_999_999_999


def _reaches_a_user(x86: int, arm: int, *arguments) -> bool:
    """Nobody has this id, so that nothing is slowed where it is allowed."""
    try:
        return call(x86, arm, *arguments) >= 0
    except OSError as error:
        return error.errno == errno.ESRCH or _raise(error)


@attack
def slow_everything_of_a_user(world):
    """The first process in here, which keeps the time, is of our user too."""
    return _reaches_a_user(141, 140, os.PRIO_USER, NOBODYS_ID, 19)


@attack
def slow_the_disk_for_everything_of_a_user(world):
    return _reaches_a_user(251, 30, 3, NOBODYS_ID, 3 << 13)


@attack
def change_a_line_discipline(world):
    """Whatever number is given, the kernel loads the module for it."""
    _, slave = os.openpty()
    return fcntl.ioctl(slave, 0x5423, struct.pack("i", 0))


@attack
def open_the_memory_of_the_first_process(world):
    who = world["victim"] if os.path.exists(f"/proc/{world['victim']}") else 1
    return os.open(f"/proc/{who}/mem", os.O_RDWR) >= 0


@where_offered
def learn_a_files_handle(world):
    handle = ctypes.create_string_buffer(8 + 128)
    struct.pack_into("II", handle, 0, 128, 0)
    mount_id = ctypes.c_int()
    place = os.fsencode(world["readable"])
    return not call(303, 264, -100, place, ctypes.addressof(handle), ctypes.addressof(mount_id), 0)


@where_offered
def see_the_names_of_keys(world):
    """The user's keys have no namespace: /proc/keys shows those of the host."""
    return world["key"] in Path("/proc/keys").read_text()


@where_offered
def take_the_hosts_huge_pages(world):
    """They are in no process's resident size. Only where the host has set some aside."""
    LIBC.mmap.restype = ctypes.c_void_p
    found = LIBC.mmap(None, ctypes.c_size_t(2 << 20), 3, 0x40022, -1, 0)
    if found in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True


@where_offered
def enter_the_kernel_by_x32(world):
    if not X86:
        raise OSError(errno.ENOSYS, "x86_64 only")
    return call(39 | 0x40000000, -1) == os.getpid()


@as_root
def make_a_time_namespace(world):
    call(272, 97, 0x80)
    return True


@as_root
def take_other_groups(world):
    os.setgroups([0, 12345])
    return True


@as_root
def mark_a_file_as_overlays_do(world):
    path = Path(world["workspace"], "marked")
    path.write_text("x")
    os.setxattr(path, "trusted.overlay.opaque", b"y")
    return True


@as_root
def share_mounts_with_others(world):
    _own_mounts()
    return _mount(b"none", b"/", b"none", 0x100000 | 0x4000)


@where_offered
def trigger_a_system_request(world):
    return os.open("/proc/sysrq-trigger", os.O_WRONLY) >= 0


@as_root
def have_capabilities_after_exec(world):
    ran = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True)
    (line,) = (each for each in ran.stdout.splitlines() if each.startswith("CapEff:"))
    return int(line.split()[1], 16)


# --- the program --------------------------------------------------------------------


def _try(chosen: Attack, world: dict) -> dict[str, object]:
    """One attack in a child. A child that dies has not reached its goal."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        signal.alarm(10)
        try:
            told = json.dumps([bool(chosen.act(world)), ""])
        except Exception as error:
            told = json.dumps([False, f"{type(error).__name__}: {error}"])
        os.write(write_end, told.encode()[:4000])
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(pid, 0)
    reached, why = json.loads(content) if content else (False, f"ended with status {status}")
    return {"name": chosen.name, "reached": reached, "why": why}


def main(arguments: list[str]) -> None:
    world = json.loads(Path(arguments[0]).read_text())
    for name in arguments[1:] or ATTACKS:
        print(json.dumps(_try(ATTACKS[name], world)), flush=True)


if __name__ == "__main__":
    tempfile.tempdir = None
    main(sys.argv[1:])
