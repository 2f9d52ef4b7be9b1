"""Find a git directory outside the workspace, and read the user's git settings.

The git directory is outside if `.git` is a file (a linked worktree, a submodule), or is above.

Threat: a `.git` file is untrusted, and its target would be read and written. So the git directory
has to name the workspace itself (`gitdir`, `core.worktree`). It is read through the descriptor that
is mounted later, and it and the workspace must have the same owner.

Of the user's configuration commands get listed keys without programs or paths, author and
committer, ignore and attributes files as text, and filters, which run in the sandbox. Threat: the
repository's configuration may name programs. `git config --list` starts none, but may read an
endless file, so time and size are limited.
"""

import os
import pwd
import re
import shlex
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import HostError, PaddockError
from paddock.pattern import lazy_pattern
from paddock.sandbox.git.objects import GIT_OPTIONS
from paddock.sandbox.host.host_facts import (
    GitFacts,
    GitFilter,
    GitOutside,
    LeftOut,
    ResolvedPath,
    Resolver,
    is_below,
    is_changeable,
    is_covered,
    read_content,
)
from paddock.storage.atomic import held_open, read_file
from paddock.workspace.workspace import PASS_DIRECTORY, READ_FILE, Beside, detect_resolution

GIT: Final = ".git"
_POINTER_BYTES_MAX: Final = 4096
_CONFIG_BYTES_MAX: Final = 1_000_000
_WORKTREE: Final = lazy_pattern(r'(?im)^(?:\s*\[core\])?\s*worktree\s*=\s*"?([^"\n]+?)"?\s*$')
_IS_SPARSE: Final = lazy_pattern(
    r'(?im)^(?:\s*\[core\])?\s*sparsecheckout\s*(?:=\s*"?(?:true|yes|on|1)|$)'
)
_NAMES: Final = ("HEAD", "objects", "refs")


class HeldGit(Struct, frozen=True):
    outside: GitOutside
    beside: Beside

    def close(self) -> None:
        os.close(self.beside.fd)


def find_git_outside(workspace: str) -> GitOutside | None:
    held = open_git_outside(workspace)
    if held is None:
        return None
    held.close()
    return held.outside


def open_git_outside(workspace: str) -> HeldGit | None:
    """Open the git directory; only links above it are followed, and they are reported."""
    try:
        device = os.stat(workspace).st_dev
        place = workspace
        while place != "/":
            if os.stat(place).st_dev != device:
                return None  # git stops at file system boundaries, too.
            found = _mode_of(f"{place}/{GIT}")
            if found is not None:
                return _GitEntry(workspace, place).open(is_file=stat.S_ISREG(found))
            place = place.rpartition("/")[0] or "/"
    except (HostError, OSError, ValueError):
        # It was removed meanwhile, may not be read, or is not in a format that git writes.
        return None
    return None


def _mode_of(path: str) -> int | None:
    try:
        return os.stat(path, follow_symlinks=False).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


class _GitEntry:
    """A `.git` at or above a workspace. `open` raises OSError, ValueError if it is not valid."""

    def __init__(self, workspace: str, place: str) -> None:
        self._workspace = workspace
        self._place = place
        self._resolver = Resolver()
        self._owner = os.stat(workspace).st_uid

    def open(self, *, is_file: bool) -> HeldGit | None:
        folder = self._workspace[len(self._place) :].strip("/")
        if not is_file:
            if not folder:
                return None
            outside = GitOutside(f"{self._place}/.git", folder=folder)
            return self._opened(outside, lambda _: True)
        text = self._pointer()
        asked = text if text.startswith("/") else f"{self._place}/{text}"
        resolved = self._resolver.find(asked)
        if resolved is None or is_below(resolved.real, self._workspace):
            return None
        real, pointer = resolved.real, f"{self._place}/.git" if folder else ""
        common, between, name = real.rpartition("/worktrees/")
        if between and "/" not in name:
            own = f"worktrees/{name}"
            outside = GitOutside(common, own, folder, pointer, resolved.links)
            return self._opened(outside, lambda fd: self._is_worktree(fd, outside))
        outside = GitOutside(real, "", folder, pointer, resolved.links)
        return self._opened(outside, lambda fd: self._is_module(fd, real))

    def _pointer(self) -> str:
        with held_open(os.open(f"{self._place}/.git", READ_FILE | os.O_NOFOLLOW)) as fd:
            self._require_owner(os.fstat(fd))
            content = os.pread(fd, _POINTER_BYTES_MAX, 0)
        text = content.decode("utf-8").removesuffix("\n")
        if not text.startswith("gitdir: ") or not text.isprintable():
            raise ValueError("not a file that points to a git directory")
        return text.removeprefix("gitdir: ")

    def _opened(self, outside: GitOutside, belongs: Callable[[int], bool]) -> HeldGit | None:
        common = outside.common
        if is_below(self._workspace, common):
            return None
        with held_open(os.open("/", PASS_DIRECTORY)) as slash:
            fd = detect_resolution().open(slash, common.strip("/"), PASS_DIRECTORY)
        with held_open(fd):
            self._require_owner(os.fstat(fd))
            for name in _NAMES:
                os.stat(name, dir_fd=fd, follow_symlinks=False)
            if belongs(fd):
                names = "config", outside.beside_index("config.worktree")
                is_sparse = any(_IS_SPARSE.search(_text(fd, name)) for name in names)
                found = replace(outside, is_sparse=is_sparse)
                return HeldGit(found, Beside(GIT, common, os.dup(fd)))
        return None

    def _is_worktree(self, fd: int, outside: GitOutside) -> bool:
        with held_open(detect_resolution().open(fd, outside.own, PASS_DIRECTORY)) as own:
            self._require_owner(os.fstat(own))
        back, common = (_text(fd, f"{outside.own}/{name}") for name in ("gitdir", "commondir"))
        directory = f"{outside.common}/{outside.own}"
        path = _joined(directory, back)
        is_back = path.endswith("/.git") and self._resolves_to(path[: -len("/.git")], self._place)
        return is_back and self._resolves_to(_joined(directory, common), outside.common)

    def _is_module(self, fd: int, real: str) -> bool:
        worktrees = _WORKTREE.findall(_text(fd, "config"))
        return bool(worktrees) and self._resolves_to(_joined(real, worktrees[-1]), self._place)

    def _resolves_to(self, path: str, place: str) -> bool:
        resolved = self._resolver.find(path)
        return resolved is not None and resolved.real == place

    def _require_owner(self, found: os.stat_result) -> None:
        # Threat: another user's repository would be read with Paddock's rights.
        if found.st_uid != self._owner or os.geteuid() not in (0, found.st_uid):
            raise ValueError("owned by another user")


def _joined(directory: str, text: str) -> str:
    line = text.removesuffix("\n")
    return line if line.startswith("/") else f"{directory}/{line}"


def _text(fd: int, name: str) -> str:
    return os.fsdecode(read_content(fd, name, _CONFIG_BYTES_MAX) or b"")


_LISTING_BYTES_MAX: Final = 1 << 20
_TIME_S: Final = 5.0
_PASSED: Final = lazy_pattern(
    r"HOME|XDG_CONFIG_HOME|GIT_CONFIG_(?:GLOBAL|SYSTEM|NOSYSTEM|PARAMETERS|COUNT|(?:KEY|VALUE)_\d+)"
)
"""Variables that say where git's configuration is; none that starts or writes anything."""
_ADDED: Final = {
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
    "PATH": "/usr/bin:/bin",
}
_TEXT_BYTES_MAX: Final = 65_536
_CHARS_MAX: Final = 200
_LINE_CHARS_MAX: Final = 1024
_FILTERS_MAX: Final = 64
_SYSTEM_ATTRIBUTES: Final = "/etc/gitattributes"

PLAIN_KEYS: Final = frozenset(
    (
        # Conversion between a file's bytes and its blob.
        "core.autocrlf core.eol core.safecrlf core.whitespace core.checkroundtripencoding "
        "i18n.commitencoding apply.whitespace "
        # Git's assumptions about the file system's names and modes.
        "core.filemode core.ignorecase core.precomposeunicode core.symlinks core.protecthfs "
        "core.protectntfs core.trustctime core.checkstat "
        # Author, committer and commit message.
        "user.name user.email user.useconfigonly author.name author.email committer.name "
        "committer.email core.commentchar commit.cleanup commit.status commit.verbose "
        # Branch names, and how histories are merged.
        "init.defaultbranch branch.autosetupmerge branch.autosetuprebase checkout.guess "
        "checkout.defaultremote merge.conflictstyle merge.ff merge.log merge.renames "
        "merge.renamelimit merge.directoryrenames merge.renormalize merge.autostash pull.rebase "
        "pull.ff push.default push.autosetupremote push.followtags fetch.prune fetch.prunetags "
        "rebase.autosquash rebase.autostash rebase.backend rebase.forkpoint rebase.rebasemerges "
        "rebase.updaterefs rebase.missingcommitscheck rebase.abbreviatecommands rebase.stat "
        "rebase.reschedulefailedexec submodule.recurse "
        # Output, which a model reads and imitates.
        "core.quotepath core.abbrev diff.algorithm diff.renames diff.renamelimit diff.context "
        "diff.noprefix diff.mnemonicprefix diff.indentheuristic diff.suppressblankempty "
        "status.showuntrackedfiles status.relativepaths status.renames log.date log.decorate "
        "log.follow branch.sort tag.sort versionsort.suffix"
    ).split()
)
"""Keys whose values git reads as a word, a number, a pattern of names or a person's name."""

_IDENTITY: Final = lazy_pattern(r"EMAIL|GIT_(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL)")
_FILTER: Final = lazy_pattern(r"filter\.(.+)\.(clean|smudge|process|required)", re.DOTALL)
_NAME: Final = lazy_pattern(r"[\w.+@-]{1,64}", re.ASCII)
_NAMED: Final = lazy_pattern(r"(?:^|\s)filter=(\S+)")
_SIGNING: Final = frozenset({"commit.gpgsign", "tag.gpgsign", "tag.forcesignannotated"})


class GitSetting(Struct, frozen=True):
    scope: str
    file: str
    key: str
    value: str


class GitConfigReader(Struct):
    workspace: str
    home: str
    variables: Mapping[str, str]
    search_path: tuple[ResolvedPath, ...]
    changeable: tuple[str, ...]
    """Real paths that a command of this plane can write, or that are closed."""
    secret_places: tuple[str, ...]
    is_secret: Callable[[str], bool]
    resolver: Resolver = field(default_factory=Resolver)
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])

    def read(self) -> GitFacts:
        """Run git once; no program that a repository's configuration names is started."""
        settings = self._settings()
        first = next((each for each in settings if each.scope == "local"), None)
        # git lists the repository's own file first, then its included files.
        own = (self.workspace, os.path.dirname(first.file)) if first is not None else ()
        ours: list[GitSetting] = []
        visible: list[GitSetting] = []
        for each in settings:
            is_seen = each.scope in {"local", "worktree"} and is_covered(each.file, own)
            (visible if is_seen else ours).append(each)
        by_key = {each.key: each for each in ours}
        attributes = self._safe_text(_SYSTEM_ATTRIBUTES) + self._user_file(by_key, "attributes")
        signing = {each.key: each.value for each in settings if each.key in _SIGNING}
        texts = [attributes, *(_plain_text(path) or "" for path in _attribute_files(own))]
        named = dict.fromkeys(name for text in texts for name in _NAMED.findall(text))
        return GitFacts(
            values=self._values(by_key),
            variables=self._identity_variables(),
            filters=self._filters(ours, visible),
            filter_names=tuple(filter(_NAME.fullmatch, named))[:_FILTERS_MAX],
            ignored=self._user_file(by_key, "ignore"),
            attributes=attributes,
            own_keys=tuple(sorted({each.key for each in visible})),
            is_signing=any(map(_is_true, signing.values())),
            left_out=tuple(self.left_out),
        )

    def _settings(self) -> tuple[GitSetting, ...]:
        git = self._find_git()
        if not git or not self._may_have_settings():
            return ()
        variables = {**self.variables, "HOME": self.variables.get("HOME", self.home)}
        found = list_settings(git, self.workspace, variables)
        if found is None:
            why = "git on this host did not list its settings in time: none of them apply"
            self.left_out.append(LeftOut("git config", why))
        return found or ()

    def _find_git(self) -> str:
        """Threat: a command could plant `.venv/bin/git`, which would run here unsandboxed."""
        for resolved in self._programs("git"):
            if not self._is_changeable(resolved) and ".." not in resolved.asked.split("/"):
                return resolved.real
        return ""

    def _may_have_settings(self) -> bool:
        here = self.workspace.rstrip("/")
        above = [here, *(str(each) for each in Path(self.workspace).parents)]
        files = ["/etc/gitconfig", f"{self.home}/.gitconfig", f"{self._config_home()}/config"]
        is_configured = any(name.startswith("GIT_CONFIG_") for name in self.variables)
        repository = [f"{here}/HEAD", *(f"{each.rstrip('/')}/.git" for each in above)]
        return is_configured or any(os.path.lexists(path) for path in (*files, *repository))

    def _config_home(self) -> str:
        return f"{self.variables.get('XDG_CONFIG_HOME') or f'{self.home}/.config'}/git"

    def _values(self, by_key: Mapping[str, GitSetting]) -> tuple[tuple[str, str], ...]:
        found = {key: by_key[key].value for key in sorted(PLAIN_KEYS & by_key.keys())}
        taken = {key: value for key, value in found.items() if _is_plain(value)}
        has_email = "user.email" in taken or "EMAIL" in self.variables
        if has_email and "user.name" not in found and not _is_true(found.get("user.useconfigonly")):
            name = _full_name()
            taken |= {"user.name": name} if name else {}
        return tuple(taken.items())

    def _identity_variables(self) -> tuple[tuple[str, str], ...]:
        found = ((name, text) for name, text in self.variables.items() if _IDENTITY.fullmatch(name))
        return tuple(sorted((name, text) for name, text in found if text and _is_plain(text)))

    def _user_file(self, by_key: Mapping[str, GitSetting], name: str) -> str:
        """Return the user's ignore or attributes file, from its configured or default path."""
        setting = by_key.get("core.excludesfile" if name == "ignore" else "core.attributesfile")
        if setting is None:
            return self._safe_text(f"{self._config_home()}/{name}")
        # Threat: the user's configuration includes, or is, a file that commands can change: a
        # command could name any file of the home directory in it.
        written = self.resolver.find(setting.file) if setting.file else ResolvedPath("", "")
        path = setting.value.removeprefix(":(optional)")
        if written is None or self._is_changeable(written):
            why = f"{setting.file} names it, which commands can change"
            self.left_out.append(LeftOut(path, why))
            return ""
        path = f"{self.home}{path[1:]}" if path.startswith("~/") else path
        return self._safe_text(path) if path.startswith("/") else ""

    def _safe_text(self, path: str) -> str:
        """Threat: a link to a key instead of an ignore file, which every command can read."""
        resolved = self.resolver.find(path)
        if resolved is None:
            return ""
        why = ""
        if self._is_changeable(resolved):
            why = "commands can change it, or a link to it"
        elif is_covered(resolved.real, self.secret_places) or self.is_secret(
            os.path.basename(resolved.real)
        ):
            why = f"it is a secret: {resolved.real}"
        text = "" if why else _plain_text(resolved.real)
        if text is None:
            why = f"it is not a text file of at most {_TEXT_BYTES_MAX} bytes"
        if why:
            self.left_out.append(LeftOut(path, why))
        return f"{text}\n" if text and not text.endswith("\n") else text or ""

    def _is_changeable(self, resolved: ResolvedPath) -> bool:
        return is_changeable(resolved, (self.workspace, *self.changeable))

    def _filters(self, ours: list[GitSetting], visible: list[GitSetting]) -> tuple[GitFilter, ...]:
        """Return the filters with a command line; a repository's own line overrides the user's."""
        lines: dict[str, dict[str, str]] = {}
        for each in (*ours, *visible):
            match = _FILTER.fullmatch(each.key)
            if match is not None and _NAME.fullmatch(match[1]):
                lines.setdefault(match[1], {})[match[2]] = each.value
        owned = {match[1] for each in visible if (match := _FILTER.fullmatch(each.key))}
        found: list[GitFilter] = []
        for name, commands in list(lines.items())[:_FILTERS_MAX]:
            commands.pop("required", None)
            rows = tuple(sorted((kind, line) for kind, line in commands.items() if line))
            programs = tuple(self._programs_of(line) for _, line in rows)
            found.append(GitFilter(name, name in owned, rows, programs))
        return tuple(found)

    def _programs_of(self, line: str) -> tuple[str, ...]:
        if len(line) > _LINE_CHARS_MAX or not line.isprintable():
            return ()
        try:
            words = [word for word in shlex.split(line) if "=" not in word]
        except ValueError:
            return ()
        found = self._programs(words[0]) if words else []
        return tuple(dict.fromkeys(each.real for each in found))

    def _programs(self, word: str) -> list[ResolvedPath]:
        places = [word] if word.startswith("/") else []
        if "/" in word and not places:
            # git runs filters at the top of the work tree.
            places = [f"{self.workspace}/{word}"]
        elif not places:
            places = [f"{each.asked.rstrip('/')}/{word}" for each in self.search_path]
        found = filter(None, map(self.resolver.find, places))
        return [
            each for each in found if os.path.isfile(each.real) and os.access(each.real, os.X_OK)
        ]


def _is_true(value: str | None) -> bool:
    return value is not None and value.lower() in {"true", "yes", "on", "1"}


def _attribute_files(own: tuple[str, ...]) -> list[str]:
    if not own:
        return []
    workspace, git_directory = own
    found = [f"{workspace}/.gitattributes", f"{git_directory}/info/attributes"]
    above = os.path.dirname(git_directory)
    is_inside = above != workspace and is_below(workspace, above)
    return [*found, f"{above}/.gitattributes"] if is_inside else found


def _is_plain(value: str) -> bool:
    # Threat: a value with a line break would add a line to the private configuration.
    return len(value) <= _CHARS_MAX and value.isprintable()


def _plain_text(path: str) -> str | None:
    """Return a file's text, empty if it does not exist, None if it is not a small text."""
    if path == os.devnull:
        return ""
    try:
        text = (read_file(Path(path), _TEXT_BYTES_MAX) or b"").decode()
    except (PaddockError, UnicodeDecodeError):
        return None
    return None if "\0" in text else text


def _full_name() -> str:
    """Return the user's full name from the user database, as git does (ident.c)."""
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return ""
    name = entry.pw_gecos.partition(",")[0].replace("&", entry.pw_name.capitalize())
    return name if _is_plain(name) else ""


def list_settings(
    git: str, directory: str, variables: Mapping[str, str]
) -> tuple[GitSetting, ...] | None:
    """Return all settings in effect in `directory`; None if git fails or exceeds a limit."""
    environment = {name: text for name, text in variables.items() if _PASSED.fullmatch(name)}
    # Another user's workspace, opened by root: reading its configuration runs nothing.
    options = (*GIT_OPTIONS, "-c", "safe.directory=*")
    try:
        process = subprocess.Popen(
            [git, *options, "config", "--null", "--list", "--show-scope", "--show-origin"],
            cwd=directory,
            env=environment | _ADDED,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError):
        # git or the directory has been removed.
        return None
    # Kill its whole session: a child of git that keeps the pipe open would block the read.
    # The pid cannot be reused before `wait`.
    timer = threading.Timer(_TIME_S, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    with process:
        content = process.stdout.read(_LISTING_BYTES_MAX + 1) if process.stdout else b""
        is_whole = len(content) <= _LISTING_BYTES_MAX
        if not is_whole:
            os.killpg(process.pid, signal.SIGKILL)
        timer.cancel()
        timer.join()
        try:
            process.wait(_TIME_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    return parse_listing(content, directory) if is_whole and process.returncode == 0 else None


def parse_listing(content: bytes, directory: str) -> tuple[GitSetting, ...] | None:
    """Parse `git config --null --list --show-scope --show-origin`; a bare key is true."""
    *parts, rest = content.decode("utf-8", "surrogateescape").split("\0")
    if rest or len(parts) % 3:
        return None
    found: list[GitSetting] = []
    for scope, origin, entry in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        key, separator, value = entry.partition("\n")
        kind, _, name = origin.partition(":")
        file = os.path.normpath(os.path.join(directory, name)) if kind == "file" else ""
        found.append(GitSetting(scope, file, key, value if separator else "true"))
    return tuple(found)
