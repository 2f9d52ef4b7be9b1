"""Confine a child in new namespaces, step by step; create its private network.

Users are mapped first, because mounting needs them. Every source is cloned before the new root is
entered, and /proc is mounted while the host's is visible (the kernel requires a full one).
Capabilities are dropped after the last mount, and the filter is installed last. Nothing is undone:
a failed step ends the process, and with it its namespaces and mounts.
"""

from __future__ import annotations

import _socket
import errno
import fcntl
import os
import stat
import struct

from paddock.kernel import mounts, seccomp, syscalls
from paddock.sandbox.inside.init import KILL_SIGNAL, limit_resources, send
from paddock.sandbox.inside.protocol import (
    AUTHORITIES,
    GIT,
    NAME_FILES,
    NAME_SERVER,
    SERVED,
    WORKSPACE,
    Base,
)

SHIELDED = mounts.READ_ONLY | mounts.NO_SUID | mounts.NO_DEVICES


OPEN = mounts.NO_SUID | mounts.NO_DEVICES


def host_mounts(base: Base) -> list[tuple[bytes, bytes, int, bool]]:
    """Return the host paths to mount: source, target, mount attributes, and whether ids are mapped.

    Owners in the caches are not mapped: entries that commands leave there belong to no user here.
    """
    attributes = SHIELDED if base.caches[1:] else OPEN
    # First: other mounts may be below it.
    shared = [(base.session, b"/tmp", OPEN, False)] if base.session else []
    return [
        *shared,
        *((path, path, SHIELDED, False) for path in base.readable),
        *((path, path, OPEN, True) for path in base.writable),
        *((path, base.home + b"/.cache", attributes, False) for path in base.caches[:1]),
    ]


class Layers:
    """Descriptors of the overlays' layers.

    `fds` has `workspace`, `stage` (with `upper` and `work`) and, if present, `hidden`, `git` (an
    outside git directory with a separate overlay) and `git_shown`. For a plain user these are
    directories; for root, mount trees that the launcher cloned while it was root of the host.
    """

    def __init__(self, fds: dict[str, int]) -> None:
        self.fds = fds
        self.trees: dict[bytes, int] = {}

    def descriptors(self) -> list[int]:
        return [*self.fds.values(), *self.trees.values()]

    def close(self) -> None:
        for fd in self.descriptors():
            os.close(fd)


def detach_layers(base: Base, layers: Layers, id_map: int) -> Layers:
    """Clone, as root of the host, everything that the sandbox will mount.

    Inside, no process can pass through /root any more. Only the lower layers of overlays and the
    writable paths have mapped owners: there the command owns root's files.
    """
    detached = Layers({})
    try:
        for name, fd in layers.fds.items():
            detached.fds[name] = mounts.clone_tree(fd, b"", recursive=False)
            if name in ("workspace", "git"):
                mounts.set_tree(detached.fds[name], SHIELDED, recursive=False, id_map=id_map)
        for path, _, attributes, is_mapped in host_mounts(base):
            detach_into(detached.trees, path, attributes, id_map if is_mapped else -1)
    except OSError:
        detached.close()
        raise
    return detached


def detach_into(trees: dict[bytes, int], path: bytes, attributes: int, id_map: int) -> None:
    place = _open_without_links(path)
    if place is None:
        return
    try:
        tree = mounts.clone_tree(place, b"", recursive=True)
    except FileNotFoundError:
        # Removed since it was opened, for example a cache that was cleared.
        return
    finally:
        os.close(place)
    trees[path] = tree
    mounts.set_tree(tree, attributes, recursive=True, id_map=id_map)


def _open_without_links(path: bytes) -> int | None:
    """Threat: since the plan, a process that can write above it replaced a directory by a link."""
    here = os.open(b"/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in path.split(b"/"):
        if not part:
            continue
        above = here
        try:
            here = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        except (FileNotFoundError, NotADirectoryError):
            return None
        finally:
            os.close(above)
    if stat.S_ISLNK(os.fstat(here).st_mode):
        os.close(here)
        return None
    return here


_DEVICES = (b"null", b"zero", b"full", b"random", b"urandom", b"tty")
_LINKS = (
    (b"/dev/fd", b"/proc/self/fd"),
    (b"/dev/stdin", b"/proc/self/fd/0"),
    (b"/dev/stdout", b"/proc/self/fd/1"),
    (b"/dev/stderr", b"/proc/self/fd/2"),
    (b"/dev/ptmx", b"pts/ptmx"),
)
_MASKED = (b"keys", b"key-users")
"""In /proc, not covered by any namespace: they list the keys of the user on the host."""
_PRIVATE = (b"/dev/shm", b"/run", b"/tmp", b"/var/tmp")
"""Private directories that the command may write."""


class Confinement:
    """A sandbox under construction. `step` names the current step, for the report."""

    def __init__(self, base: Base, layers: Layers, program: bytes, released: int) -> None:
        """Create it before the new user namespace, where no id is mapped yet.

        `released` becomes readable when the launcher, as root, has mapped this process's users.
        """
        self.step = b"start"
        self._user = os.getuid()
        self._group = os.getgid()
        self._base = base
        self._layers = layers
        self._program = program
        self._released = released
        self._as_root = released >= 0
        self._slash = -1
        self._root = -1
        self.served: list[int] = []
        """Descriptors for the runtime to serve, see `open_network`."""

    def confine(self) -> None:
        for name, act in (
            (b"users", self._become_user),
            (b"private mounts", self._open_mounts),
            (b"layers of the workspace", self._move_layers),
            (b"private root", self._make_root),
            (b"devices", self._make_devices),
            (b"directories of the host", self._bind_host_paths),
            (b"overlay of the workspace", self._mount_workspace),
            (b"overlay of the git directory", self._mount_git),
            (b"process information", self._mount_proc),
            (b"network", self._set_network),
            (b"new root", self._enter),
            (b"limits", self._set_limits),
            (b"privileges", self._drop_privileges),
        ):
            self.step = name
            act()

    # --- the steps ----------------------------------------------------------------

    def _become_user(self) -> None:
        if not self._as_root:
            _map_own(self._user, self._group)
            return
        if not os.read(self._released, 1):
            raise OSError(errno.EPERM, "the launcher could not map users")
        # Threat: until here this process is root of the host, though without its capabilities.
        os.setresgid(0, 0, 0)
        os.setgroups([])
        os.setresuid(0, 0, 0)
        syscalls.set_dumpable(True)

    def _open_mounts(self) -> None:
        # Threat: in a new user namespace the command could mount again. The filter refuses to
        # create one; this is a second barrier in case the filter has a hole.
        mounts.forbid_user_namespaces()
        mounts.make_mounts_private()
        self._slash = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _move_layers(self) -> None:
        fds = self._layers.fds
        if self._as_root:
            # Below a directory of the old root, not on top of it: there they would remain
            # mounted when the old root is detached.
            shelf = os.open("/usr", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            for tree in fds.values():
                mounts.attach_tree(tree, shelf)
            return
        # The launcher's working directory was the workspace when it cloned this process. The
        # kernel moved the working directory into the new namespace without resolving a name.
        # Threat: the workspace is replaced by a link between the check and the mount.
        fds["workspace"] = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in fds.keys() - {"workspace"}:
            fds[name] = _open_same(getattr(self._base, name), fds[name])

    def _make_root(self) -> None:
        options = {
            b"mode": b"0755",
            # Its pages count for no process: allow half of the processes' memory limit.
            b"size": b"%dm" % max(1, self._base.memory_mb // 2),
            b"nr_inodes": b"%d" % max(1024, self._base.memory_mb * 128),
        }
        root = mounts.make_file_system(b"tmpfs", options, OPEN)
        mounts.attach_tree(root, self._slash)
        self._root = root
        os.fchdir(root)
        for path in _PRIVATE:
            os.close(self._open_target(path, is_directory=True))
            # A bind mount on itself stays writable when the root around it is read-only.
            tree = mounts.clone_tree(root, path[1:], recursive=False)
            self._attach(tree, path)
            os.chmod(path[1:], 0o700)
        for name, text in (*_LINKS, *_pairs(self._base.links)):
            self._link(name, text)
        os.close(self._open_target(self._base.home, is_directory=True))
        for name, content in _pairs(self._base.files):
            path = self._base.home[1:] + b"/" + name
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            _write(path, content)

    def _link(self, path: bytes, text: bytes) -> None:
        parent, _, name = path.rpartition(b"/")
        here = self._open_target(parent, is_directory=True) if parent else os.dup(self._root)
        try:
            os.symlink(text, name, dir_fd=here)
        finally:
            os.close(here)

    def _make_devices(self) -> None:
        for name in _DEVICES:
            self._attach(_clone_device(name), b"/dev/" + name)
        terminals = mounts.make_file_system(
            b"devpts", {b"mode": b"620", b"ptmxmode": b"0666"}, mounts.NO_SUID | mounts.NO_EXEC
        )
        self._attach(terminals, b"/dev/pts")

    def _bind_host_paths(self) -> None:
        trees = self._layers.trees
        for path, target, attributes, _ in host_mounts(self._base):
            if not self._as_root:
                detach_into(trees, path, attributes, -1)
            if path in trees:
                self._attach(trees[path], target)
        uid, gid = os.getuid(), os.getgid()
        home = self._base.home
        for name, line in (
            (b"etc/passwd", b"user:x:%d:%d::%b:/bin/sh\n" % (uid, gid, home)),
            (b"etc/group", b"user:x:%d:\n" % gid),
            (b"etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n"),
        ):
            if not os.path.lexists(name):
                os.makedirs(b"etc", 0o755, exist_ok=True)
                _write(name, line)
        if self._base.network == b"policy":
            for name, content in NAME_FILES:
                content = content.replace(NAME_SERVER, self._base.name_server)
                self._cover(b"/etc/" + name, content)
            for path, content in (
                (b"/etc/ssh/ssh_known_hosts", self._base.known_hosts),
                (AUTHORITIES, self._base.authorities),
            ):
                if content:
                    self._cover(path, content)

    def _cover(self, path: bytes, content: bytes) -> None:
        """Mount Paddock's content over the path, even if the host's whole directory is shown."""
        if os.path.islink(path[1:]):
            # systemd's link leads below /run, which is private here.
            text = os.readlink(path[1:])
            path = os.path.normpath(os.path.join(os.path.dirname(path), text))
        source = b"run/" + os.path.basename(path) + b".new"
        _write(source, content)
        tree = mounts.clone_tree(self._root, source, recursive=False)
        mounts.set_tree(tree, SHIELDED, recursive=False)
        try:
            self._attach(tree, path)
        except OSError as error:
            # The whole of /etc is the host's here and lacks this file: leave it out.
            if error.errno != errno.EROFS:
                raise
        os.unlink(source)

    def _mount_workspace(self) -> None:
        self._mount_overlay("workspace", "hidden", WORKSPACE)

    def _mount_git(self) -> None:
        if "git" in self._layers.fds:
            for path, leads_to in _pairs(self._base.git_pointer):
                os.close(self._open_target(path, is_directory=False))
                _write(path[1:], b"gitdir: %b\n" % leads_to)
            self._mount_overlay("git", "git_shown", GIT)

    def _mount_overlay(self, below: str, above: str, names: tuple[bytes, bytes]) -> None:
        fds = self._layers.fds
        lower = b"/proc/self/fd/%d" % fds[below]
        if above in fds:
            # The first lower layer wins: its whiteouts remove names from the second.
            lower = b"/proc/self/fd/%d:%b" % (fds[above], lower)
        stage = b"/proc/self/fd/%d" % fds["stage"]
        options = (
            # userxattr: marks in user.overlay.*, the only ones a user namespace may write. It also
            # disables redirects and metadata-only copies: files in the upper layer are complete.
            b"lowerdir=%b,upperdir=%b/%b,workdir=%b/%b,userxattr,index=off,xino=off,"
            # The upper layer is read once and discarded: only the commit syncs to disk.
            b"volatile" % (lower, stage, names[0], stage, names[1])
        )
        target = self._open_target(getattr(self._base, below), is_directory=True)
        mounts.mount_overlay(b"/proc/self/fd/%d" % target, options)

    def _mount_proc(self) -> None:
        flags = mounts.NO_SUID | mounts.NO_DEVICES | mounts.NO_EXEC
        self._attach(mounts.make_file_system(b"proc", {}, flags), b"/proc")
        # Threat: core_pattern and similar settings act outside all namespaces.
        settings = mounts.clone_tree(self._root, b"proc/sys", recursive=True)
        mounts.set_tree(settings, mounts.READ_ONLY, recursive=True)
        self._attach(settings, b"/proc/sys")
        for name in _MASKED:
            if os.path.exists(b"proc/" + name):
                self._attach(_clone_device(b"null"), b"/proc/" + name)

    def _set_network(self) -> None:
        # A name that resolves, for programs that look up their host name.
        _socket.sethostname("localhost")
        if self._base.joins:
            return
        if self._base.network == b"loopback":
            raise_loopback()
        elif self._base.network == b"policy":
            self.served = open_network(self._base.literals)

    def _enter(self) -> None:
        mounts.set_tree(self._root, mounts.READ_ONLY, recursive=False)
        mounts.enter_root(self._root)

    def _set_limits(self) -> None:
        base = self._base
        # Processes are counted per user namespace (Linux 5.14): only this command's.
        limit_resources(base.processes + 1, base.file_mb, base.cpu_s)
        # If the host runs out of memory, it should kill this process first.
        _write(b"/proc/self/oom_score_adj", b"1000")

    def _drop_privileges(self) -> None:
        syscalls.drop_capabilities()
        # After the last change of credentials, which resets both.
        syscalls.set_death_signal(KILL_SIGNAL)
        syscalls.set_dumpable(False)
        syscalls.set_no_new_privileges()
        seccomp.install_filter(self._program)

    # --- places below the new root ------------------------------------------------

    def _attach(self, tree: int, path: bytes) -> None:
        target = self._open_target(path, is_directory=stat.S_ISDIR(os.fstat(tree).st_mode))
        mounts.attach_tree(tree, target)
        os.close(target)

    def _open_target(self, path: bytes, *, is_directory: bool) -> int:
        """Threat: a link on the path would resolve in the host's root, still ours: follow none."""
        *parents, name = path[1:].split(b"/")
        here = os.dup(self._root)
        for part in parents:
            here = _descend(here, part)
        if is_directory:
            return _descend(here, name)
        flags = os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            target = os.open(name, flags | os.O_PATH, dir_fd=here)
        except FileNotFoundError:
            os.close(os.open(name, flags | os.O_CREAT | os.O_WRONLY, dir_fd=here))
            target = os.open(name, flags | os.O_PATH, dir_fd=here)
        os.close(here)
        return target


def _clone_device(name: bytes) -> int:
    tree = mounts.clone_tree(mounts.AT_FDCWD, b"/dev/" + name, recursive=False)
    # Not NO_DEVICES: it would make the bind-mounted device unusable.
    mounts.set_tree(tree, mounts.NO_SUID | mounts.NO_EXEC, recursive=False)
    return tree


def _descend(directory: int, name: bytes) -> int:
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        found = os.open(name, flags, dir_fd=directory)
    except FileNotFoundError:
        os.mkdir(name, 0o755, dir_fd=directory)
        found = os.open(name, flags, dir_fd=directory)
    os.close(directory)
    return found


def _open_same(path: bytes, expected: int) -> int:
    """Open the expected directory by name in this mount namespace. Raises: OSError(ESTALE)."""
    found = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not os.path.samestat(os.fstat(found), os.fstat(expected)):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    return found


def _pairs(items: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(items[::2], items[1::2], strict=True))


def _write(path: bytes, content: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(content)


# A private network: its loopback, and sockets created in it that the runtime serves from outside.
#
# A socket belongs to the namespace in which it was created, whichever process holds it. So the
# sockets for a command's DNS queries and connections are created here, passed to the runtime, and
# closed here: this network has no link to the host's, and nothing inside keeps a capability or
# a copy.

_NAME_SERVERS = range(53, 255)
"""Of 127.0.0.0/24: each process that serves a network has its own."""
SYNTHETIC = b"198.18.0.0/15"
"""Addresses that represent names, from a range reserved for device benchmarks (RFC 2544)."""
OWN_ADDRESS = "198.18.0.1"
_BACKLOG = 128
_LO = 1
"""The index of the loopback, which is the first device of every network namespace."""
_INTERFACE_UP = 0x1 | 0x40
"""IFF_UP and IFF_RUNNING (linux/if.h)."""
_SET_INTERFACE_FLAGS = 0x8914
"""SIOCSIFFLAGS, the same on every architecture (linux/sockios.h)."""

# rtnetlink(7): linux/netlink.h, linux/rtnetlink.h, linux/if_addr.h.
_ROUTE_MESSAGES = 0
_NEW_ADDRESS = 20
_NEW_ROUTE = 24
_REQUEST = 0x1 | 0x4 | 0x200 | 0x400
"""NLM_F_REQUEST, ACK, EXCL, CREATE."""
_ADDRESS, _LOCAL = 1, 2
_DESTINATION, _DEVICE = 1, 4
_LOCAL_TABLE = 255
_STATIC = 4
_SCOPE_HOST = 254
_LOCAL_ROUTE = 2
"""RTN_LOCAL: packets to it are delivered locally."""


def raise_loopback() -> None:
    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    # struct ifreq: a 16-byte name, then a 24-byte union.
    fcntl.ioctl(sock.fileno(), _SET_INTERFACE_FLAGS, struct.pack("16sh22x", b"lo", _INTERFACE_UP))
    sock.close()


def open_network(literals: list[bytes]) -> list[int]:
    """Return descriptors: user and network namespace, the name server's socket.

    `literals`: more networks, as `ADDRESS/BITS`, to deliver locally. Another process may serve the
    same network already. Raises: OSError.
    """
    raise_loopback()
    sock = _socket.socket(
        _socket.AF_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, _ROUTE_MESSAGES
    )
    # A resolver asks for IPv4 addresses only if there is one besides 127.0.0.1 (AI_ADDRCONFIG).
    own = _socket.inet_aton(OWN_ADDRESS)
    _ask(
        sock,
        _NEW_ADDRESS,
        struct.pack("=BBBBI", _socket.AF_INET, 32, 0, _SCOPE_HOST, _LO),
        ((_LOCAL, own), (_ADDRESS, own)),
    )
    for network in (SYNTHETIC, *literals):
        address, _, bits = network.decode("ascii").partition("/")
        route = _LOCAL_TABLE, _STATIC, _SCOPE_HOST, _LOCAL_ROUTE
        head = struct.pack("=8BI", _socket.AF_INET, int(bits), 0, 0, *route, 0)
        device = struct.pack("=I", _LO)
        _ask(
            sock, _NEW_ROUTE, head, ((_DESTINATION, _socket.inet_aton(address)), (_DEVICE, device))
        )
    sock.close()
    questions = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)
    for last in _NAME_SERVERS:
        try:
            questions.bind((f"127.0.0.{last}", 53))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or last == _NAME_SERVERS[-1]:
                raise
        else:
            break
    return [*_own_spaces(), questions.detach()]


def _own_spaces() -> list[int]:
    kinds = ("user", "net")
    return [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]


def _map_own(uid: int, gid: int) -> None:
    # A plain user may map only its own ids (user_namespaces(7)).
    users, groups = b"%d %d 1" % (uid, uid), b"%d %d 1" % (gid, gid)
    mounts.write_id_maps(None, users, groups, keep_groups=False)


def share_network(kind: bytes, literals: list[bytes], reply: int, owner: tuple[int, int]) -> None:
    """Create a network for the commands of a session, and send what `open_network` returns.

    The name server's socket is only sent for `policy`. The caller was just cloned into a user and a
    network namespace, or has joined them. Commands run in children of the user namespace, which
    owns the network, so they have no capability over it. `owner` is the user who started the
    launcher, 0 if nothing has to be mapped. Raises: OSError.
    """
    if owner[0] != 0:
        # A child can only map ids that are mapped here. Root maps its children from outside.
        _map_own(*owner)
    if kind == b"policy":
        send(reply, SERVED, *open_network(literals))
    else:
        raise_loopback()
        send(reply, SERVED, *_own_spaces())


def join_network(user: int, network: int) -> None:
    """Enter a network in a separate process; its children start in it. Raises: OSError."""
    if os.geteuid() != 0:
        # The creator of a user namespace has every capability in it. Root has them already, and
        # would lose those on the host.
        mounts.enter_namespace(user, mounts.NEW_USER)
        # A change of capabilities makes /proc/self inaccessible, which is needed to map users.
        syscalls.set_dumpable(True)
    mounts.enter_namespace(network, mounts.NEW_NETWORK)


def listen_within(user: int, network: int, wanted: bytes, reply: int) -> None:
    """Enter a sandbox's network permanently, listen at each `ADDRESS PORT`, and send the sockets.

    The reply has an errno for each, 0 if there is a socket. Call this in a separate process.
    """
    join_network(user, network)
    listeners: list[int] = []
    codes: list[bytes] = []
    for line in wanted.decode("ascii").split("\n"):
        address, port = line.split(" ")
        # Without address reuse: no process inside can bind the same port.
        sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        try:
            sock.bind((address, int(port)))
            sock.listen(_BACKLOG)
            listeners.append(sock.detach())
            codes.append(b"0")
        except OSError as error:
            codes.append(b"%d" % (error.errno or errno.EIO))
    send(reply, b" ".join(codes), *listeners)


def _ask(
    sock: _socket.socket, kind: int, head: bytes, attributes: tuple[tuple[int, bytes], ...]
) -> None:
    body = head + b"".join(
        struct.pack("=HH", 4 + len(value), name) + value for name, value in attributes
    )
    # struct nlmsghdr: length, type, flags, sequence, port.
    sock.sendall(struct.pack("=IHHII", 16 + len(body), kind, _REQUEST, 1, 0) + body)
    # struct nlmsgerr after it begins with the negative errno; EEXIST: it is already set.
    (code,) = struct.unpack_from("=i", sock.recv(4096), 16)
    if code not in (0, -errno.EEXIST):
        raise OSError(-code, os.strerror(-code))
