"""The order in which a call is judged. What policy says comes from an engine.

  1. writing outside the project is denied, unless `also_write` names the place;
  2. writing what is protected, generated or secret, or what holds this fence itself, is
     denied, and so is reading what is secret, wherever it lies;
  3. with `paranoid`, writing outside `safe` is denied;
  4. the profile: a deny always, an ask where a rule says so. Where only `otherwise`
     would ask, the client's own permission flow is there for that.

All of it is asked for every path and every command of the call; the strictest answer
decides, and among equals the first of this list. A warning changes nothing.
"""

from paddock.apps.hook.lean.asked import Asked, DeclinedError, LeanWanted, ShapeError
from paddock.apps.hook.lean.places import (
    LeanPlace,
    Scene,
    find_places,
    find_stands,
    real_path,
    relative,
)
from paddock.policy.compiled import ALLOW, DENY, NOTHING, matches_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.apps.hook.lean.engine import Engine

BOUNDARY, GUARD, PARANOID, ALSO = -3, -2, -1, 3
"""Ranks of findings beside those of a profile: among equally strict ones the lowest decides."""

HARMLESS = frozenset(
    {
        *("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"),
        *("/dev/fd/0", "/dev/fd/1", "/dev/fd/2"),
    }
)
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - named, never opened


SERVED = "mcp__paddock__"
"""Before the names of tools that our own server serves, which judges each call itself."""
_OURS_JUDGES = "Paddock's own server judges it"
_SERVED_RULE = (ALLOW, f"{SERVED}*", "hook.served", "built-in", 0)

Rule = tuple[int, str, str, str, int]
"""Outcome, text, source, file and line, which is 0 where it stands in no line."""


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
    """What an engine says about a line of shell.

    `targets`: the operation, the directories that the line changes to before, and the path;
    `patches`: the same of patches; `removes`: a program removes or moves what it is given;
    `reads`: directories and files, `is_guess`: maybe no file.
    """

    def __init__(
        self,
        findings: "list[LeanFinding]",
        targets: "tuple[tuple[str, tuple[str, ...], str], ...]" = (),
        patches: "tuple[tuple[str, tuple[str, ...], str], ...]" = (),
        removes: bool = False,
        reads: "tuple[tuple[tuple[str, ...], str], ...]" = (),
        is_guess: bool = False,
    ) -> None:
        self.reads = reads
        self.is_guess = is_guess
        self.findings = findings
        self.targets = targets
        self.patches = patches
        self.removes = removes


class LeanVerdict:
    """The answer of policy to one call. `warned` are paths with the patterns that warn."""

    outcome = ALLOW
    rank = NOTHING
    reason = code = remedy = ""
    rule: "Rule | None" = None

    def __init__(self, actions: "list[str]", warned: "list[tuple[str, str]]") -> None:
        self.actions = actions
        self.warned = warned
        self.matched: list[Rule] = []

    @property
    def is_granted(self) -> bool:
        return self.outcome == ALLOW and self.rank < NOTHING


class _Judging:
    def __init__(self, tool: str, scene: Scene, engine: "Engine") -> None:
        self.tool = tool
        self.scene = scene
        self.engine = engine
        self.findings: list[LeanFinding] = []
        self.actions: list[str] = []
        self.warned: list[tuple[str, str]] = []

    def path(self, operation: str, text: str, base: str, by_command: bool = False) -> None:
        is_write = operation != "view"
        places = find_places(text, base, self.scene)
        for place in places:
            if not place.names:
                self.outside(operation, place, is_write, by_command)
        for name in dict.fromkeys(name for place in places for name in place.names):
            self.inside(operation, name, is_write, by_command)

    def outside(self, operation: str, place: LeanPlace, is_write: bool, by_command: bool) -> None:
        shown = show(place.real)
        self.actions.append(f"tool:file:{operation} {place.real}")
        if is_write:
            is_state = any(relative(place.real, state) for state in self.scene.state)
            is_open = by_command and is_temporary(place.real, self.scene)
            if is_state or not (is_open or self.engine.may_write_outside(place.real)):
                reason = f"Path outside project boundary: {shown}"
                self.findings.append(LeanFinding(DENY, BOUNDARY, reason, None, "path.escapes_root"))
        self.secret_outside(place, is_write)

    def secret_outside(self, place: LeanPlace, is_write: bool) -> None:
        rule = self.engine.find_secret_outside(place.real)
        if rule is not None:
            reason = _guarded(self.tool, show(place.real), is_write, rule)
            self.findings.append(LeanFinding(DENY, GUARD, reason, rule, "policy.secret"))

    def inside(self, operation: str, name: str, is_write: bool, by_command: bool) -> None:
        self.actions.append(f"tool:file:{operation} {name}")
        self.closed(name, is_write, by_command)
        if is_write:
            self.writing(name, show(name))
        self.findings += self.engine.profile("file", operation, name)

    def closed(self, name: str, is_write: bool, by_command: bool) -> None:
        for found in self.engine.denials(name, is_write, by_command):
            if found.rule is not None and found.code != "policy.forbidden":
                found.reason = _guarded(self.tool, show(name), is_write, found.rule)
            self.findings.append(found)

    def writing(self, name: str, shown: str) -> None:
        engine = self.engine
        real = f"{self.scene.root}/{name}"
        if any(relative(real, place) for place in self.scene.state):
            rule = (DENY, "the installation of the hook", "hook.settings", "built-in", 0)
            reason = _guarded(self.tool, shown, True, rule)
            self.findings.append(LeanFinding(DENY, GUARD, reason, rule, "policy.protected"))
        pattern = engine.find_warning(name)
        if pattern:
            self.warned.append((shown, pattern))
        if engine.paranoid and not engine.is_safe(name):
            rule = (DENY, "paranoid", "hook.paranoid", "", 0)
            reason = f"Path outside what is safe to write: {shown} (paranoid is on in [hook])"
            self.findings.append(LeanFinding(DENY, PARANOID, reason, rule, "policy.denied"))

    def line(self, text: str, base: str) -> None:
        self.actions.append(f"tool:shell:run {text}")
        said = self.engine.line(text, base)
        self.findings += said.findings
        for operation, directories, target in said.targets:
            if target in HARMLESS:
                continue
            stands = find_stands(base, directories, self.scene.home)
            # A program's own path is the kernel's to walk.
            for here in dict.fromkeys(map(real_path, stands)) if directories else stands:
                self.path(operation, target, here, by_command=True)
                if said.removes:
                    self.removing(target, here)
        for directories, name in said.reads:
            for here in find_stands(base, directories, self.scene.home):
                if self.reading(name, here) and said.is_guess:
                    raise DeclinedError("a word may name a file that is secret")
        for operation, directories, path in said.patches:
            for here in find_stands(base, directories, self.scene.home):
                self.path(operation, path, here)

    def reading(self, text: str, base: str) -> bool:
        try:
            places = find_places(text, base, self.scene)
        except ShapeError:
            # No program opens it either.
            return False
        count = len(self.findings)
        for place in places:
            if not place.names:
                self.secret_outside(place, False)
            for name in place.names:
                if name != ".":
                    self.closed(name, False, True)
        return len(self.findings) > count

    def held_line(self, text: str, directory: str) -> None:
        """Judge a line whose writing the kernel and the judge of changes hold."""
        self.actions.append(f"tool:shell:run {text}")
        said = self.engine.held_line(text, directory)
        self.findings += said.findings
        for operation, _, path in said.targets:
            self.actions.append(f"tool:file:{operation} {path}")
            pattern = self.engine.find_warning(path)
            if pattern:
                self.warned.append((show(path), pattern))

    def removing(self, target: str, base: str) -> None:
        for place in find_places(target, base, self.scene):
            if not relative(self.scene.root, place.real):
                continue
            rule = (DENY, ".", "hook.root", "built-in", 0)
            tool, shown = show(self.tool), show(place.real)
            reason = (
                f"Protected path: {shown} cannot be modified via {tool}: the command could "
                "remove anything in the project; name the files or folders that are to go"
            )
            self.findings.append(LeanFinding(DENY, GUARD, reason, rule, "policy.protected"))


def is_temporary(real: str, scene: Scene) -> bool:
    for place in TEMPORARY:
        folder = f"{place}/{relative(real, place).partition('/')[0]}"
        if relative(real, place) not in ("", "."):
            return not relative(scene.root, folder) and not relative(scene.home, folder)
    return False


def judge(
    asked: Asked, wanted: LeanWanted, scene: Scene, engine: "Engine", base: str, directory: str = ""
) -> LeanVerdict:
    """Judge one call for someone in `base`; `directory`: where it runs, if in the sandbox.

    Total but for ShapeError: a path that is none.
    """
    judging = _Judging(asked.tool, scene, engine)
    for operation, text in wanted.paths:
        judging.path(operation, text, base)
    if wanted.line is not None and directory:
        judging.held_line(wanted.line, directory)
    elif wanted.line is not None:
        judging.line(wanted.line, base)
    if wanted.name is not None:
        category, operation, target = wanted.name
        judging.actions.append(f"tool:{category}:{operation} {target}".rstrip())
        if target.startswith(SERVED) and engine.is_served:
            judging.findings.append(LeanFinding(ALLOW, ALSO, _OURS_JUDGES, _SERVED_RULE))
        else:
            judging.findings += engine.profile(category, operation, target, asked.input)
    if not judging.actions:
        raise ShapeError("the call does nothing that could be judged")
    return _decided(judging)


def _decided(judging: _Judging) -> LeanVerdict:
    verdict = LeanVerdict(judging.actions, judging.warned)
    findings = judging.findings
    if not findings:
        verdict.reason = "outside the project, and not ours to grant"
        return verdict
    deciding = findings[0]
    for found in findings:
        if (found.outcome, -found.rank) > (deciding.outcome, -deciding.rank):
            deciding = found
    rules = (found.rule for found in findings if found.rule is not None)
    verdict.matched = list(dict.fromkeys(rules))
    verdict.outcome, verdict.rank = deciding.outcome, deciding.rank
    verdict.reason, verdict.rule, verdict.code = deciding.reason, deciding.rule, deciding.code
    verdict.remedy = deciding.remedy
    if deciding.outcome == DENY:
        verdict.code = verdict.code or "policy.denied"
        verdict.warned = []
    return verdict


def _guarded(tool: str, shown: str, is_write: bool, rule: Rule) -> str:
    _, text, source, file, line = rule
    where = f'"{show(text)}" in {source}, {file}' + (f":{line}" if line else "")
    lifting = _lifting(shown, text, source)
    if lifting:
        where += f'; a person lifts it by "{lifting}" as the last of {source[6:]} in [paths]'
    if is_write:
        return f"Protected path: {shown} cannot be modified via {show(tool)}. Rule: {where}"
    return f"Secret path: {shown} cannot be read via {show(tool)}. Rule: {where}"


def _lifting(shown: str, text: str, source: str) -> str:
    is_name = not any(char in text for char in "/?[\\")
    if source not in ("paths.secret", "paths.protected") or not is_name:
        return ""
    parts = tuple(text.lower().split("*"))
    named = (name for name in shown.split("/") if matches_text(parts, name.lower()))
    return next((f"!{name}" for name in named), "")


def show(text: str) -> str:
    """Return text on one line, with nothing in it that could mislead."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"
        for c in text
    )
