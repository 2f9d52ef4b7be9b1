"""Judge one call. The context (`HookContext`) answers for policy.

  1. Writing outside the project is denied, unless `also_write` names the path.
  2. Writing protected, generated or secret paths, or Paddock's installation, is denied. So is
     reading a secret path anywhere.
  3. With `paranoid`, writing outside `safe` is denied.
  4. The profile denies, or asks if a rule says so. Where only `otherwise` would ask, the client's
     own permission prompt decides, except about a command that can be confined: that is asked.

Every path and every command of the call is judged. The strictest answer decides, and among equals
the first of this list. A warning does not change the answer.

A path is judged by its name and by its target, as the kernel resolves it. For `..` after a symlink
there are two targets: the kernel goes up from the link's target, clients and `cd` from the link's
directory. Nothing is locked: after the answer another process can swap the file.
"""

import posix

from paddock.apps.hook.lean.request import DeclinedError, HookEvent, LeanWanted, ShapeError
from paddock.policy.compiled import ALLOW, DENY, NOTHING, matches_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.apps.hook.lean.image import HookContext

BOUNDARY, GUARD, PARANOID, ALSO = -3, -2, -1, 3
"""Ranks in addition to those of a profile: among equally strict findings the lowest decides."""

HARMLESS = frozenset(
    "/dev/null /dev/stdout /dev/stderr /dev/tty /dev/fd/0 /dev/fd/1 /dev/fd/2".split()
)
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - named, never opened

SERVED = "mcp__paddock__"
"""Prefix of the tools of Paddock's MCP server, which judges each call itself."""
_SERVER_JUDGES = "Paddock's MCP server judges the call"
_SERVED_RULE = (ALLOW, f"{SERVED}*", "hook.served", "built-in", 0)

_LINK = 0o120000
_KIND = 0o170000
HOPS_MAX = 40
PATH_CHARS_MAX = 4096
DIRECTORIES_MAX = 16
"""Directories that one list of `cd` commands may lead to, through symlinks and `..`."""

Rule = tuple[int, str, str, str, int]
"""Outcome, text, source, file and line (0: the rule is not in a file)."""
Place = tuple[str, tuple[str, ...]]
"""The real path, and its names in the project: as given and resolved. None outside it."""
Named = tuple[tuple[str, tuple[str, ...], str], ...]
"""Operation, arguments of the `cd` commands before it, and path."""


class LeanFinding:
    def __init__(
        self,
        outcome: int,
        rank: int,
        reason: str,
        rule: "Rule | None" = None,
        code: str = "",
        remedy: str = "",
    ) -> None:
        self.outcome = outcome
        self.rank = rank
        self.reason = reason
        self.rule = rule
        self.code = code
        self.remedy = remedy


class LeanLine:
    """The policy's findings about a shell line, and the paths that it writes, reads and patches."""

    targets: Named = ()
    patches: Named = ()
    reads: Named = ()
    removes = False
    """A program of the line removes or moves files."""
    is_guess = False
    """The names in `reads` may not be files."""

    def __init__(self, findings: "list[LeanFinding]") -> None:
        self.findings = findings


class LeanVerdict(LeanFinding):
    """The policy's answer to one call. `warned`: paths with the patterns that warn."""

    def __init__(
        self, decides: LeanFinding, actions: "list[str]", warned: "list[tuple[str, str]]"
    ) -> None:
        vars(self).update(vars(decides))
        self.actions = actions
        self.warned = warned
        self.matched: list[Rule] = []

    @property
    def is_granted(self) -> bool:
        return self.outcome == ALLOW and self.rank < NOTHING


class _Judging:
    def __init__(self, tool: str, context: "HookContext") -> None:
        self.tool = tool
        self.context = context
        self.findings: list[LeanFinding] = []
        self.actions: list[str] = []
        self.warned: list[tuple[str, str]] = []

    def deny(self, rank: int, reason: str, rule: "Rule | None", code: str) -> None:
        self.findings.append(LeanFinding(DENY, rank, reason, rule, code))

    def judge_path(self, operation: str, text: str, base: str, by_command: bool = False) -> None:
        is_write = operation != "view"
        places = find_places(text, base, self.context)
        for real, names in places:
            if not names:
                self.judge_outside(operation, real, is_write, by_command)
        for name in dict.fromkeys(name for _, names in places for name in names):
            self.actions.append(f"tool:file:{operation} {name}")
            self.deny_closed(name, is_write, by_command)
            if is_write:
                self.judge_write(name)
            self.findings += self.context.profile("file", operation, name)

    def judge_outside(self, operation: str, real: str, is_write: bool, by_command: bool) -> None:
        self.actions.append(f"tool:file:{operation} {real}")
        if is_write:
            is_state = any(relative(real, state) for state in self.context.state)
            is_open = by_command and is_temporary(real, self.context)
            if is_state or not (is_open or self.context.may_write_outside(real)):
                reason = f"Path outside project boundary: {show(real)}"
                self.deny(BOUNDARY, reason, None, "path.escapes_root")
        self.deny_secret_outside(real, is_write)

    def deny_secret_outside(self, real: str, is_write: bool) -> None:
        rule = self.context.find_secret_outside(real)
        if rule is not None:
            self.deny(GUARD, self.guard_reason(show(real), is_write, rule), rule, "policy.secret")

    def deny_closed(self, name: str, is_write: bool, by_command: bool) -> None:
        for found in self.context.denials(name, is_write, by_command):
            if found.rule is not None and found.code != "policy.forbidden":
                found.reason = self.guard_reason(show(name), is_write, found.rule)
            self.findings.append(found)

    def judge_write(self, name: str) -> None:
        context, shown = self.context, show(name)
        if any(relative(f"{context.root}/{name}", place) for place in context.state):
            rule = (DENY, "the installation of the hook", "hook.settings", "built-in", 0)
            self.deny(GUARD, self.guard_reason(shown, True, rule), rule, "policy.protected")
        self.warn(name)
        if context.paranoid and not context.is_safe(name):
            rule = (DENY, "paranoid", "hook.paranoid", "", 0)
            reason = f"Path not listed as safe to write: {shown} (paranoid is on in [hook])"
            self.deny(PARANOID, reason, rule, "policy.denied")

    def warn(self, name: str) -> None:
        pattern = self.context.find_warning(name)
        if pattern:
            self.warned.append((show(name), pattern))

    def judge_line(self, text: str, base: str) -> None:
        home = self.context.home
        said = self.context.line(text, base)
        self.findings += said.findings
        for operation, directories, target in said.targets:
            if target in HARMLESS:
                continue
            starts = resolve_cd(base, directories, home)
            # The kernel resolves a program's paths from the real directory.
            for here in dict.fromkeys(map(real_path, starts)) if directories else starts:
                self.judge_path(operation, target, here, by_command=True)
                if said.removes:
                    self.judge_removal(target, here)
        for _, directories, name in said.reads:
            for here in resolve_cd(base, directories, home):
                if self.judge_read(name, here) and said.is_guess:
                    raise DeclinedError("a word may name a file that is secret")
        for operation, directories, path in said.patches:
            for here in resolve_cd(base, directories, home):
                self.judge_path(operation, path, here)

    def judge_read(self, text: str, base: str) -> bool:
        try:
            places = find_places(text, base, self.context)
        except ShapeError:
            # No program can open such a path.
            return False
        count = len(self.findings)
        for real, names in places:
            if not names:
                self.deny_secret_outside(real, False)
            for name in names:
                if name != ".":
                    self.deny_closed(name, False, True)
        return len(self.findings) > count

    def judge_confined_line(self, text: str, directory: str) -> None:
        """Judge a line in the sandbox, where its writes are confined and its changes judged."""
        said = self.context.confined_line(text, directory)
        self.findings += said.findings
        for operation, _, path in said.targets:
            self.actions.append(f"tool:file:{operation} {path}")
            self.warn(path)

    def judge_removal(self, target: str, base: str) -> None:
        root = self.context.root
        for real, _ in find_places(target, base, self.context):
            if relative(root, real):
                reason = (
                    f"Protected path: {show(real)} cannot be modified via {show(self.tool)}: the "
                    "command could remove the whole project; name the files or folders to remove"
                )
                rule = (DENY, ".", "hook.root", "built-in", 0)
                self.deny(GUARD, reason, rule, "policy.protected")

    def guard_reason(self, shown: str, is_write: bool, rule: Rule) -> str:
        _, text, source, file, line = rule
        where = f'"{show(text)}" in {source}, {file}' + (f":{line}" if line else "")
        lifting = _lifting(shown, text, source)
        if lifting:
            where += f'; a person can lift it: add "{lifting}" last to {source[6:]} in [paths]'
        tool = show(self.tool)
        if is_write:
            return f"Protected path: {shown} cannot be modified via {tool}. Rule: {where}"
        return f"Secret path: {shown} cannot be read via {tool}. Rule: {where}"

    def verdict(self) -> LeanVerdict:
        if not self.findings:
            said = LeanFinding(ALLOW, NOTHING, "outside the project: left to the client")
            return LeanVerdict(said, self.actions, self.warned)
        # `max` returns the first of equals.
        decides = max(self.findings, key=lambda found: (found.outcome, -found.rank))
        verdict = LeanVerdict(decides, self.actions, self.warned)
        rules = (found.rule for found in self.findings if found.rule is not None)
        verdict.matched = list(dict.fromkeys(rules))
        if verdict.outcome == DENY:
            verdict.code = verdict.code or "policy.denied"
            verdict.warned = []
        return verdict


def judge(
    event: HookEvent, wanted: LeanWanted, context: "HookContext", base: str, directory: str = ""
) -> LeanVerdict:
    """Judge one call; paths are relative to `base`. `directory`: where it runs in the sandbox.

    Raises: ShapeError: an invalid path, or a call without operations.
    """
    judging = _Judging(event.tool, context)
    for operation, text in wanted.paths:
        judging.judge_path(operation, text, base)
    if wanted.line is not None:
        judging.actions.append(f"tool:shell:run {wanted.line}")
        if directory:
            judging.judge_confined_line(wanted.line, directory)
        else:
            judging.judge_line(wanted.line, base)
    if wanted.name is not None:
        category, operation, target = wanted.name
        judging.actions.append(f"tool:{category}:{operation} {target}".rstrip())
        if target.startswith(SERVED) and context.is_served:
            judging.findings.append(LeanFinding(ALLOW, ALSO, _SERVER_JUDGES, _SERVED_RULE))
        else:
            judging.findings += context.profile(category, operation, target, event.input)
    if not judging.actions:
        raise ShapeError("the call has no operation to judge")
    return judging.verdict()


def is_temporary(real: str, context: "HookContext") -> bool:
    for place in TEMPORARY:
        name = relative(real, place)
        if name not in ("", "."):
            folder = f"{place}/{name.partition('/')[0]}"
            return not relative(context.root, folder) and not relative(context.home, folder)
    return False


def _lifting(shown: str, text: str, source: str) -> str:
    is_name = not any(char in text for char in "/?[\\")
    if source not in ("paths.secret", "paths.protected") or not is_name:
        return ""
    parts = tuple(text.lower().split("*"))
    named = (name for name in shown.split("/") if matches_text(parts, name.lower()))
    return next((f"!{name}" for name in named), "")


def show(text: str) -> str:
    """Return the text on one line, with unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"
        for c in text
    )


def find_places(text: str, base: str, context: "HookContext") -> list[Place]:
    """Return every target of a path: as the kernel resolves it, and with `..` folded as text.

    Threat: `link/../../../x` stays inside the project one way and leaves it the other way.
    Raises: ShapeError: empty, NUL, too long, `~name`.
    """
    path = absolute(text, base, context.home)
    places = [_place(path, context)]
    if "/.." in path:
        by_text = _place(folded(path), context)
        places += [by_text] * (by_text[0] != places[0][0])
    return places


def resolve_cd(base: str, directories: "tuple[str, ...]", home: str) -> "tuple[str, ...]":
    """Return a shell's possible directories after `cd` to these in order. Raises: ShapeError.

    `cd` folds `..` as text; with `-P`, or if that path does not exist, it resolves as the kernel.
    """
    found = (base,)
    for directory in directories:
        paths = [absolute(directory, here, home) for here in found]
        both = (each for path in paths for each in (folded(path), real_path(path)))
        found = tuple(dict.fromkeys(both))
        if len(found) > DIRECTORIES_MAX:
            raise ShapeError(f"the line may lead to more than {DIRECTORIES_MAX} directories")
    return found


def _place(path: str, context: "HookContext") -> Place:
    real = real_path(path, context.root)
    inside = relative(real, context.root) or _relative_by_identity(real, context.root)
    if not inside:
        return real, ()
    by_name = folded(path)
    named = relative(by_name, context.root) or relative(by_name, context.given_root)
    return real, ((named, inside) if named and named != inside else (inside,))


def absolute(text: str, base: str, home: str) -> str:
    if not text or "\0" in text or len(text) > PATH_CHARS_MAX:
        raise ShapeError("a path is empty, too long or contains a NUL character")
    if text[0] == "/":
        return text
    if text[0] == "~":
        if text == "~" or text.startswith("~/"):
            return home + text[1:]
        raise ShapeError("a path begins with ~name, the home of another user")
    return f"{base}/{text}"


def folded(path: str) -> str:
    if "//" not in path and "/." not in path and path[-1] != "/":
        return path
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if parts:
                parts.pop()
        elif part and part != ".":
            parts.append(part)
    return "/" + "/".join(parts)


def relative(path: str, root: str) -> str:
    """Return the path relative to `root`, `.` for the root itself, empty if it is not inside."""
    if path == root:
        return "."
    # Threat: a sibling with the same prefix (/root-evil beside /root).
    base = root if root == "/" else root + "/"
    return path[len(base) :] if path.startswith(base) else ""


def real_path(path: str, known: str = "/") -> str:
    """Resolve symlinks up to a missing entry; `known` is already real. Raises: ShapeError."""
    real, rest = "", path
    if known != "/" and path.startswith(known + "/"):
        real, rest = known, path[len(known) :]
    pending = rest.split("/")
    pending.reverse()
    hops = 0
    while pending:
        part = pending.pop()
        if not part or part == ".":
            continue
        if part == "..":
            real = real.rpartition("/")[0]
            continue
        here = f"{real}/{part}"
        try:
            is_link = posix.lstat(here).st_mode & _KIND == _LINK
            target = posix.readlink(here) if is_link else ""
        except (OSError, ValueError):
            # Missing or not accessible, for the client as well.
            real = here
            continue
        if not is_link:
            real = here
            continue
        hops += 1
        if hops > HOPS_MAX:
            raise ShapeError(f"a path follows more than {HOPS_MAX} symlinks")
        if target.startswith("/"):
            real = ""
        parts = target.split("/")
        parts.reverse()
        pending += parts
    return real or "/"


def _relative_by_identity(real: str, root: str) -> str:
    """Like `relative`, by inode: a bind mount or letter case must not hide the root."""
    wanted = _identity(root)
    if wanted is None:
        return ""
    rest: list[str] = []
    here = real
    while here:
        if _identity(here) == wanted:
            rest.reverse()
            return "/".join(rest) or "."
        here, _, name = here.rpartition("/")
        rest.append(name)
    return ""


def _identity(path: str) -> "tuple[int, int] | None":
    try:
        status = posix.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
