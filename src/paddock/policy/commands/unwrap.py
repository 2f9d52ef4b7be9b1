"""Collect all readings of a command, and the programs and scripts that it would start.

Threat: `git push` as `env -i git push`, `/usr/bin/git -C . push`, `{git,push}`, `xargs git
push`, `sh -c 'git push'`, `git -c alias.x=push x`. A deny must catch each of them, so readings
are added freely; an allow never uses them.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.pattern import lazy_pattern
from paddock.policy.commands.pattern import find_subcommand, is_caught
from paddock.policy.commands.programs import (
    ASSIGNMENT,
    CAUTIONS_BY_PROGRAM,
    CHANGERS,
    GIT_BEFORE,
    GIT_BEFORE_VALUED,
    INTEGER,
    INTERPRETERS,
    LOADERS,
    NESTING,
    READERS,
    RUNNING_INPUT,
    SHELLS,
    STARTS,
    TAME,
    WRAPPERS,
    Wrapper,
    change_by,
    listed,
)
from paddock.policy.commands.words import Reading, Word, bare_word, program_name

WINDOW_WORDS: Final = 100
"""Half of the words that are read as one command."""

_CONTINUATION: Final = lazy_pattern(r"\\\r?\n")
_QUOTING: Final = lazy_pattern(r"""\$?['"]|\\|\x00""")
_ENDS: Final = lazy_pattern(r"[;&|<>(){}`\n\r]+|\$\(|\b(?:then|do|else|elif|if|while|until)\b|!")
_WRITES: Final = lazy_pattern(r">[>|&]*\s*(!?)\s*([^\s;&|<>()]+)")

ENVIRONMENT: Final = "the environment decides which program runs"
STARTING_ENVIRONMENT: Final = lazy_pattern(
    rf"(?!{TAME}\Z)(?:"
    r"(?:PATH|ENV|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|PS4|CDPATH|GCONV_PATH|LESSOPEN|LESSCLOSE"
    r"|PAGER|MANPAGER|EDITOR|VISUAL|BROWSER|SHELL|TAR_OPTIONS|MAKEFLAGS|GNUMAKEFLAGS|MAKEFILES"
    r"|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|CLASSPATH|GOFLAGS|HOME|CC|CXX|SSH_ASKPASS|SUDO_ASKPASS)"
    r"(?:\[.*\])?\+?="
    # `.*` after a family of names includes a subscript: a separate pattern would backtrack.
    r"|(?:BASH_|LD_|DYLD_|GIT_|PYTHON|PERL|RUBY|npm_|NPM_|RIPGREP_|RSYNC_|RUSTC|CARGO_|PIP_|PYTEST_"
    r"|XDG_|NODE_(?!(?:ENV|DEBUG|NO_WARNINGS|DISABLE_COLORS|PENDING_DEPRECATION)\+?=)).*=)",
    re.DOTALL,
)

LOOKING_UP: Final = lazy_pattern(
    r"(?:PATH|CLASSPATH|_?JAVA_(?:TOOL_)?OPTIONS|PYTHON\w*|PERL\w*|RUBY\w*|PYTEST_\w*"
    r"|PIP_(?!EDITOR)\w*)\+?=",
)
"""Of these, those that say where programs and modules are, and whose values name no program."""

_HASHED: Final = lazy_pattern(r"(?:^| )-\w*p|=")
_REPLACING: Final = lazy_pattern(r"-[A-Za-z0-9]*[Ii].*|--replace.*|\{.*\}", re.DOTALL)
"""Options with which xargs puts its input into other places than the end of the command."""
_BRACES: Final = lazy_pattern(r"(?:(?:-[0rt]+|-[nPL] ?\d+|-I ?\{\}) ?)+", re.ASCII)
"""Options of xargs with which it replaces only `{}` by its input."""
_STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_FED: Final = lazy_pattern(
    r"-|/+(?:dev|proc)(?:/.*)?|/.*/\.\./.*"
    r"|(?:.*/)?(?:std(?:in|out|err)|tty|environ|cmdline|comm|\d+)/*",
    re.DOTALL,
)
"""Paths of a shell's input or environment, from whatever directory: `cd /; . dev/stdin`."""
_MOVING: Final = {
    "env": lazy_pattern(r"-[iv0]*C.*|--c[hdir]*(=.*)?", re.DOTALL),
    "sudo": lazy_pattern(r"-[A-Za-z]*[DR].*|--ch[a-z]*(=.*)?", re.DOTALL),
}
_PYTHON_CLUSTER: Final = lazy_pattern(r"-[^\-cmWXQ]*([cmWXQ])(.*)|-[^\-cmWXQ][^cmWXQ]*", re.DOTALL)
"""A word of Python's options: up to the first that takes a value, and the start of its value."""
_ANSWERS: Final = lazy_pattern(r"-[A-Za-z]*[cemrvVhf]|--\w[\w-]*(=.*)?")

_SUBSCRIPTING: Final = frozenset(
    "let unset test [ read printf declare typeset local readonly export mapfile readarray exit"
    " return break continue shift logout bye limit ulimit integer float wait print sched getopts"
    " compgen complete".split()
)
"""Builtins of bash or zsh that evaluate `a[…]`, even quoted, as arithmetic, which runs `$(…)`."""
_EVALUATING: Final = {
    **dict.fromkeys(("let", "integer", "float"), lazy_pattern(r".*", re.DOTALL)),
    **dict.fromkeys(("declare", "typeset", "local", "readonly"), lazy_pattern(r"-\w*[inEF]\w*")),
    **dict.fromkeys(("compgen", "complete"), lazy_pattern(r"-\w*W.*", re.DOTALL)),
    "print": lazy_pattern(r"-\w*P\w*"),
}
"""Words after which a builtin, or each later assignment, evaluates text."""
_NAMING: Final = {
    **dict.fromkeys(("test", "[", "printf"), lazy_pattern(r"(?!-v).*", re.DOTALL)),
    **dict.fromkeys(("print", "wait"), lazy_pattern(r"(?!-\w*[vp]).*", re.DOTALL)),
    "read": lazy_pattern(r"-\w*[dinNptu]"),
    **dict.fromkeys(("mapfile", "readarray"), lazy_pattern(r"-\w*[dnOsuCc]")),
    **dict.fromkeys("unset getopts declare typeset local readonly".split(), lazy_pattern(r"(?!)")),
}
"""Builtins that take names, which may have subscripts; words that no name follows."""
_NO_PROGRAM: Final = lazy_pattern(
    r"(?:user|author|committer|color|advice|i18n|init)\.", re.IGNORECASE
)
"""Settings of git that cannot hold a command; all others may."""
OPTIONS_MAX: Final = 64
"""Words after a program's name that are read as its options before a subcommand."""


class SeenCommand(Struct):
    readings: list[Reading] = []
    starts: list[int] = []
    documents: tuple[str, ...] = ()
    scripts: list[str] = []
    texts: list[str] = []
    """Scripts whose commands are readings of this one: no allow has to name them."""
    input: list[Reading] = []
    """Possible commands in its input, in any language."""
    run_time: dict[str, None] = {}
    changes: dict[str, None] = {}
    obstacles: dict[str, None] = {}
    may_be_any: bool = False
    hiding: dict[str, None] = {}
    is_open: bool = False
    words: tuple[Word, ...] = ()
    queue: list[tuple[int, int, bool]] = []
    known: dict[str, list[int]] = {}
    done: set[tuple[str, int, int]] = set()

    def read(self, words: tuple[Word, ...], *, is_line: bool) -> None:
        self.words, self.known, self.done = words, {}, set()
        self.queue = [(0, len(words), True)]
        visited: set[tuple[int, int]] = set()
        while self.queue:
            at, end, sure = self.queue.pop()
            if at >= end or (at, end) in visited:
                continue
            visited.add((at, end))
            self.readings.append(Reading(words, at, end))
            if is_line and sure:
                self.starts.append(at)
            self.look(at, end, sure=sure)

    def look(self, at: int, end: int, *, sure: bool) -> None:
        word = self.words[at]
        name = program_name(word.text)
        if bare := word.source.startswith(("=", "!")) and word.text.lstrip("=!"):
            # zsh expands `=git` to the path of git, and a command begins after its operator `&!`.
            self.readings.append(Reading(self.words, at + 1, end, (Word(bare, bare),)))
        if word.unknown or word.glob or bare:
            self.doubt("the program's name is only known at run time")
        if name.startswith("git-"):
            head = (Word("git", "git"), Word(name[4:], name[4:]))
            self.readings.append(Reading(self.words, at + 1, end, head))
        if ASSIGNMENT.match(word.text) and at + 1 < end:
            # A command may follow an assignment that a wrapper passes on.
            self.queue.append((at + 1, end, False))
        if name in CHANGERS:
            self.changes[change_by(name)] = None
        if name in WRAPPERS or LOADERS.fullmatch(name):
            self.wrapper(at, end, name, sure=sure)
        elif name in SHELLS:
            self.shell(at, end)
        elif name == "find":
            self.find(at, end)
        elif name == "git":
            self.git(at, end)
        elif INTERPRETERS.fullmatch(name):
            self.interpreter(at, end, name)
        else:
            self.builtin(at, end, name)
        self.nested(at, end, name)
        self.started(at, end, name)
        if name in RUNNING_INPUT or (at == 0 and any(map(self.is_shell, range(1, end)))):
            self.texts += self.documents
        self.leading_options(at, end)

    def wrapper(self, at: int, end: int, name: str, *, sure: bool) -> None:
        row = WRAPPERS.get(name)
        start, is_known = find_start(self.words, at, end, row) if row else (at + 1, False)
        if not is_known:
            self.obstacles[f"which program {name} starts is not known"] = None
            self.queue.extend((index, end, False) for index in range(start, end))
            start = end
        elif start < end:
            self.queue.append((start, end, sure))
            if row and row.joins:
                self.script(self.text(start, end))
        if name in ("xargs", "gxargs", "parallel"):
            # Threat: `xargs -I{} {} push` replaces any word by its input.
            stop = start if is_known and row and not row.joins else end
            replaces = any(_REPLACING.fullmatch(word.text) for word in self.words[at + 1 : stop])
            is_reader = stop < end and self.words[stop].text in READERS
            if is_reader and _BRACES.fullmatch(self.text(at + 1, stop)):
                # The program is known, and any later word may come from the input.
                replaces = False
                later = (replace(word, unknown="{}") for word in self.words[stop + 1 : end])
                words = (self.words[stop], *later)
                self.readings.append(Reading(words, 0, len(words)))
            self.doubt(f"{name} takes words from its input", may_be_any=replaces)
            self.is_open = True
        if name in _MOVING:
            self.assigned(at, start)
            moving = self.places(f"to move by {name}", _MOVING[name].fullmatch)
            if _holds(moving, at + 1, start):
                # Threat: its relative paths start in a directory that is not known.
                self.doubt(f"{name} starts a program in another directory", may_be_any=False)
        if start == end:
            # `sudo -s <<E`
            self.texts += self.documents
            # Threat: `echo git push | xargs env`.
            self.may_be_any |= self.is_open and name not in ("xargs", "gxargs")

    def shell(self, at: int, end: int) -> None:
        found = find_script(self.words, at, end)
        if found is None:
            return
        place, is_text = found
        word = self.words[place] if place < end else None
        if word is not None and is_text:
            self.script(word.text)
            if word.unknown or "{}" in word.text:
                self.doubt("a shell runs a text that is only known at run time")
        elif word is not None and word.text not in _STDIN:
            self.readings.append(Reading(self.words, place, end))
        else:
            self.doubt("a shell runs its input")
            for document in self.documents:
                self.script(document)

    def interpreter(self, at: int, end: int, name: str) -> None:
        rest = [word.text for word in self.words[at + 1 : end]]
        operands = [text for text in rest if not text.startswith("-") or text in _STDIN]
        if (operands and operands[0] in _STDIN) or (
            not operands and not any(_ANSWERS.fullmatch(text) for text in rest)
        ):
            self.doubt(f"{name} runs its input", may_be_any=False)
            self.input += (
                Reading(words, 0, len(words))
                for document in self.documents
                for words in rough_commands(document)
            )
        if name.startswith(("python", "pypy")):
            self.module(at + 1, end)

    def module(self, at: int, end: int) -> None:
        """Queue the module that `-m` of a Python runs, after the options before it (python(1))."""
        while at < end:
            text = self.words[at].text
            at += 1
            if text == "--check-hash-based-pycs":
                at += 1
                continue
            cluster = _PYTHON_CLUSTER.fullmatch(text)
            if cluster is None:
                if not text.startswith("--"):
                    return
                continue
            letter, value = cluster.groups()
            if letter == "m" and value:
                self.doubt("python runs a module; write -m and its name as two words")
            elif letter == "m":
                self.queue.append((at, end, True))
            if letter in ("c", "m"):
                return
            at += letter in ("W", "X", "Q") and not value

    def find(self, at: int, end: int) -> None:
        for start, stop in find_executed(self.words, at, end):
            self.queue.append((start, stop, True))
            if start < stop and "{}" in self.words[start].text:
                self.doubt("find runs the files that it finds")

    def git(self, at: int, end: int) -> None:
        words = [word.text for word in self.words[at:end]]
        sub = find_subcommand(words, 0)
        for before, word in pairwise(words):
            if before in ("-c", "--config"):
                self.setting(*word.partition("=")[::2])
            elif before.startswith("--config="):
                self.setting(*before[9:].partition("=")[::2])
            elif "config" in words[sub : sub + 1]:
                self.setting(before, word)
        if any(word.text.startswith("--config-env") for word in self.words[at:end]):
            self.doubt("git takes configuration from the environment")

    def setting(self, key: str, value: str) -> None:
        if value.lstrip().startswith("!"):
            self.script(value.lstrip()[1:])
        elif key.lower().startswith("alias."):
            self.script(f"git {value}")
        elif "." in key and not _NO_PROGRAM.match(key):
            self.texts.append(value)

    def builtin(self, at: int, end: int, name: str) -> None:
        if name in _SUBSCRIPTING and _evaluates(name, self.words[at:end]):
            self.doubt(f"{name} evaluates a subscript")
        match name:
            case "eval":
                self.doubt("eval runs a text that is built at run time")
                self.script(self.text(at + 1, end))
            case "source" | ".":
                self.source(name, at + 1, end)
            case "trap" | "alias":
                for word in self.words[at + 1 : end]:
                    self.script(word.text if name == "trap" else word.text.partition("=")[2])
            case "hash" if _HASHED.search(self.text(at + 1, end)):
                # Threat: `hash -p /usr/bin/git x; x push`, and zsh's `hash x=/usr/bin/git`.
                self.doubt("hash changes which program a name runs")
            case "bind":
                self.doubt("bind makes a key run a command")
                for word in self.words[at + 1 : end]:
                    self.script(word.text.partition(":")[2])
            case "export" | "declare" | "typeset" | "local" | "readonly":
                self.assigned(at, end)
            case _:
                pass

    def nested(self, at: int, end: int, name: str) -> None:
        subs = NESTING.get(name)
        if subs is None:
            return
        for index in range(at + 1, end):
            sub = self.words[index].text
            if sub in subs:
                self.obstacles[f"which program {name} {sub} starts is not known"] = None
                self.queue.extend((place, end, False) for place in range(index + 1, end))
                if name == "tmux":
                    self.texts += (word.text for word in self.words[index + 1 : end])
                return

    def started(self, at: int, end: int, name: str) -> None:
        """Read the commands that options and subcommands start: `sort --compress-program`."""
        if name not in CAUTIONS_BY_PROGRAM:
            return
        texts = [word.text for word in self.words[at : at + OPTIONS_MAX]]
        sub = next(iter(texts[find_subcommand(texts, 0) :]), "")
        for key in (name, f"{name} {sub}"):
            for index in (place for place in self.caught(key) if at < place < end):
                if (key, index, end) in self.done:
                    continue
                self.done.add((key, index, end))
                if name == "env":
                    self.doubt("env splits a text into words at run time")
                own = _given(self.words[index].text, key)
                after = (word.text for word in self.words[index + 1 : end])
                given = own or next((text for text in after if not text.startswith("-")), "")
                if own or " " in given:
                    # A separate word may be the program alone: `-x sh -c '…'`.
                    self.texts += (given, f"{given} {self.text(index + 1, end)}")
                self.queue.extend((place, end, False) for place in range(index + 1, end))

    def leading_options(self, at: int, end: int) -> None:
        """Read `git -C x push` as `git push`: an unknown option may take the next word, or not."""
        reach = {at + 1}
        stop = min(end, at + 1 + OPTIONS_MAX)
        if stop < end and all(word.text.startswith("-") for word in self.words[at + 1 : stop]):
            self.doubt("the command has too many options to check")
        for index in range(at + 1, stop):
            if index not in reach:
                if index - 1 not in reach:
                    return
                continue
            text = self.words[index].text
            if text.startswith("-"):
                known = program_name(self.words[at].text) == "git"
                takes = known and text in GIT_BEFORE_VALUED
                alone = known and (text in GIT_BEFORE or "=" in text)
                reach |= {index + 2} if takes else {index + 1}
                reach |= set[int]() if alone else {index + 2}
            elif index > at + 1:
                head = (self.words[at],)
                self.readings.append(Reading(self.words, index, end, head))

    def assigned(self, at: int, end: int) -> None:
        places = self.places("to assign", STARTING_ENVIRONMENT.match)
        if _holds(places, at + 1, end):
            naming = self.places("to name", _names_program)
            self.doubt(ENVIRONMENT, may_be_any=_holds(naming, at + 1, end))
            self.hiding[ENVIRONMENT] = None

    def source(self, name: str, at: int, end: int) -> None:
        # A named file can run anything, as `bash FILE` can; the shell's input is part of this line.
        file = self.words[at] if at < end else None
        is_file = file is not None and file.is_literal and not _FED.fullmatch(file.text)
        why = f"{name} runs a file in this shell"
        self.doubt(why, may_be_any=not is_file)
        self.hiding[why] = None
        self.queue.append((at, end, False))

    def is_shell(self, index: int) -> bool:
        return program_name(self.words[index].text) in SHELLS

    def caught(self, program: str) -> list[int]:
        name = program.partition(" ")[0]
        rows = [row for row in CAUTIONS_BY_PROGRAM.get(program, ()) if row.does == STARTS]
        return self.places(program, lambda text: any(is_caught(text, row, name) for row in rows))

    def places(self, key: str, matches: Callable[[str], object]) -> list[int]:
        """Return the indexes of matching words, cached: a word may be read a thousand times."""
        if key not in self.known:
            found = (index for index, word in enumerate(self.words) if matches(word.text))
            self.known[key] = list(found)
        return self.known[key]

    def script(self, text: str) -> None:
        if text.strip():
            self.scripts.append(text)

    def doubt(self, sentence: str, *, may_be_any: bool = True) -> None:
        self.run_time[sentence] = None
        self.may_be_any |= may_be_any

    def text(self, start: int, end: int) -> str:
        return " ".join(word.text for word in self.words[start:end])


def see_through(words: tuple[Word, ...], documents: Iterable[str]) -> SeenCommand:
    seen = SeenCommand(documents=tuple(documents))
    seen.read(words, is_line=True)
    if any(word.alternatives for word in words):
        expanded = (one for word in words for one in word.alternatives or (word,))
        seen.read(tuple(expanded), is_line=False)
    return seen


def _names_program(text: str) -> bool:
    return bool(STARTING_ENVIRONMENT.match(text)) and not LOOKING_UP.match(text)


def find_start(words: tuple[Word, ...], at: int, end: int, row: Wrapper) -> tuple[int, bool]:
    """Return the command's index (`end`: none) and True, or its first possible index and False."""
    index = at + 1
    while index < end:
        text = words[index].text
        if not words[index].is_literal:
            return index, False
        if text == "--":
            index += 1
            break
        if text == "-":
            index += 1
            continue
        if not text.startswith("-"):
            break
        step = _option_words(text, row)
        if step == 0:
            return index, False
        if step < 0:
            return end, True
        index += step
    while row.assigns and index < end and ASSIGNMENT.match(words[index].text):
        index += 1
    return (index, False) if row.operands < 0 else (min(index + row.operands, end), True)


def _option_words(text: str, row: Wrapper) -> int:
    """Return how many words the option takes; 0: unknown, -1: nothing is started."""
    if text.startswith("--"):
        name, equals, _ = text.partition("=")
        if name in listed(row.settings):
            return 1 if equals else 2
        return 1 if name in listed(row.words) else 0
    for place, letter in enumerate(text[1:], 2):
        if letter in row.prints:
            return -1
        if letter in row.valued:
            return 1 if len(text) > place else 2
        if letter not in row.flags and not letter.isdigit():
            return 0
    return 1


def find_executed(words: tuple[Word, ...], at: int, end: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    index = at + 1
    while index < end:
        if words[index].text in ("-exec", "-execdir", "-ok", "-okdir"):
            start = index + 1
            while index < end and words[index].text not in (";", "+"):
                index += 1
            found.append((start, index))
        index += 1
    return found


def find_script(words: tuple[Word, ...], at: int, end: int) -> tuple[int, bool] | None:
    """Return the index of the script of a shell (`end`: its input), and whether it is a text.

    None: it runs nothing.
    """
    index, takes_text = at + 1, False
    while index < end:
        text = words[index].text
        if text in ("--help", "--version"):
            return None
        if text in ("--", "-"):
            index += 1
            break
        if text[:1] not in ("-", "+") or not text:
            break
        index += 1
        if text in ("--rcfile", "--init-file"):
            index += 1
        elif not text.startswith("--"):
            takes_text = takes_text or (text[0] == "-" and "c" in text)
            # -o NAME and -O NAME, once for each letter.
            index += sum(letter in "oO" for letter in text[1:])
            if "s" in text and text[0] == "-" and not takes_text:
                return end, False
    return min(index, end), takes_text


def _evaluates(name: str, words: Sequence[Word]) -> bool:
    evaluating, no_name = _EVALUATING.get(name), _NAMING.get(name)
    for before, word in pairwise(words):
        if 0 <= word.text.find("[") < max(word.text.rfind("$"), word.text.rfind("`")):
            return True
        if INTEGER.match(word.text):
            return True
        if evaluating is not None and evaluating.fullmatch(word.text):
            return True
        # Threat: `x='a[$(cmd)]'; read "$x"`.
        is_named = word.unknown != "" and ASSIGNMENT.match(word.source) is None
        if is_named and no_name is not None and no_name.fullmatch(before.text) is None:
            return True
    return False


def _given(text: str, key: str) -> str:
    if text.startswith("--"):
        return text.partition("=")[2].removeprefix("exec=")
    rows = (row for row in CAUTIONS_BY_PROGRAM[key] if row.does == STARTS)
    letters = "".join(row.short for row in rows)
    found = [place for place, letter in enumerate(text[1:], 2) if letter in letters]
    return text[found[0] :] if found and text.startswith("-") else ""


def _holds(places: list[int], start: int, end: int) -> bool:
    found = bisect_left(places, start)
    return found < len(places) and places[found] < end


def rough_commands(text: str) -> list[tuple[Word, ...]]:
    """Split a line that does not parse wherever a command could end; no allow uses the result.

    A deny must not become an ask because a line is damaged or too long.
    """
    plain = _QUOTING.sub("", _CONTINUATION.sub("", text))
    if "{" in plain:
        # A brace expansion where a program is expected: `{git,push}`.
        plain += "\n" + plain.replace("{", " ").replace(",", " ").replace("}", " ")
    found: list[tuple[Word, ...]] = []
    for part in _ENDS.split(plain):
        words = [bare_word(word, "the line does not parse") for word in part.split()]
        # Overlapping windows, since unwrapping checks every later word.
        found.extend(
            tuple(words[start : start + 2 * WINDOW_WORDS])
            for start in range(0, len(words), WINDOW_WORDS)
        )
    return found


def rough_writes(text: str) -> list[str]:
    plain = _QUOTING.sub("", _CONTINUATION.sub("", text))
    # `>! f` writes `f` to zsh, and `!` to bash.
    return [text for match in _WRITES.finditer(plain) for text in (match[2], match[1]) if text]
