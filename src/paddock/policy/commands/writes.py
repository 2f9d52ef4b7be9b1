"""Find the files that a command writes, removes, copies and reads, as far as its words name them.

One table of programs, one walk over their words; nothing is resolved. For a command in the sandbox
this gives an early refusal with a clear message. Outside it is a check, not a boundary: a program
that is not in the table, or does not name its files, can still write.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Final

from msgspec import Struct

from paddock.pattern import lazy_pattern
from paddock.policy.commands.programs import GIT_BEFORE_VALUED, WRAPPERS, is_plain_sed, listed
from paddock.policy.commands.words import Reading, Sift, Touch, program_name

_UNNAMED: Final = "an option makes names of files that are not in the line"
_UNREAD_SED: Final = "the script does not show clearly what sed writes or runs"
_REWRITES: Final = "git rewrites files that are not named in the line"
_CLEANS: Final = "git clean removes every file that git does not track"
_STASHES: Final = "git stash removes every file that git does not track"


class _Row(Struct, frozen=True):
    """The meaning of the words of `programs`; options with their dashes, separated by blanks.

    `operands` says which are written (`all`, `first`, `second`, `rest` but the first), `removed`,
    `copied` or `moved` into the last, `fetched` (URLs), `packed`; only with one of `only`, not
    with one of `unless`, with `below` also all below them; if none: `default`. A value of `takes`
    is text (with `?`: in the same word), of `writes` a written file, of `into` a directory for
    the operands, of `suffixes` appended to each name. Without an option of `script` the first
    operand is text. `links` (empty: always) makes links; after `doubted` the files are not all
    named; `reads`: it reads its operands.
    """

    programs: str
    operands: str = ""
    takes: str = ""
    writes: str = ""
    into: str = ""
    suffixes: str = ""
    only: str = ""
    unless: str = ""
    below: str = ""
    script: str | None = None
    links: str | None = None
    doubted: str = ""
    default: str = ""
    end: str = ""
    reads: bool = True


_INTO: Final = "-t --target-directory"
_END: Final = "-S --suffix"
_ROWS: Final = (
    _Row("rm rmdir unlink", "removed"),
    _Row("tee", "all"),
    _Row("touch", "all", "-d -r -t --date --reference --time"),
    _Row("mkdir mkfifo", "all", "-m --mode"),
    _Row("truncate shred", "all", "-s -r -n --size --reference --iterations"),
    _Row("setfacl chattr", "all", "-m -M -x -X -v -p --modify --modify-file --remove --remove-file "
         "--set --set-file --restore", below="-R --recursive"),
    _Row("mktemp", "all", writes="-p --tmpdir?", suffixes="--suffix"),
    _Row("zip", "first", "-b -n -P -s -t -Z -x -i", "-O --output-file"),
    _Row("uniq", "second", "-f -s -w --skip-fields --skip-chars --check-chars"),
    # Its options have several letters, so a value may count as an operand, which is safe.
    _Row("xxd", "rest"),
    _Row("patch", "all", "-p -i -D -F -V --strip --input --ifdef --fuzz",
         "-o --output -r --reject-file -d --directory",
         doubted="-B -Y -z --prefix --basename-prefix --suffix"),
    _Row("split", "second", "-a -b -C -l -n -t --suffix-length --bytes --line-bytes --lines "
         "--number --separator", default="xaa", doubted="--filter --additional-suffix"),
    _Row("csplit", "", "-n --digits", "-f --prefix", default="xx00",
         doubted="-b --suffix-format"),
    # A mode such as -w looks like an option.
    _Row("chmod", "all", "--reference", below="-R --recursive",
         script="--reference -r -w -x -X -s -t -u -g -o"),
    _Row("chown chgrp", "all", "--reference --from", below="-R --recursive", script="--reference"),
    _Row("mv", "moved", into=_INTO, suffixes=_END),
    _Row("cp gcp", "copied", into=_INTO, suffixes=_END, links="-s -l --symbolic-link --link"),
    _Row("ln link", "copied", into=_INTO, suffixes=_END, links=""),
    _Row("install", "copied", "-m -o -g --mode --owner --group", into=_INTO, suffixes=_END),
    _Row("scp", "copied", "-P -F -i -l -o -S -c -D -J -X"),
    _Row("rsync", "copied", "-e -f -B -T -M --rsh --filter --exclude --include --files-from "
         "--block-size --temp-dir", "--log-file --backup-dir --write-batch --only-write-batch",
         links="--link-dest"),
    _Row("sort shuf", "", "-k -S -t -T --key --field-separator", "-o --output"),
    _Row("sed gsed", "all", "-e -f -l --expression --file --line-length", only="-i --in-place",
         suffixes="-i? --in-place?", script="-e -f --expression --file"),
    _Row("perl ruby", "all", "-e -E -I -M -m -F", only="-i", suffixes="-i?", script="-e -E -n -p"),
    _Row("curl", "fetched", "-X -H -d -A -u -e -m -x -b -F -r -w -y -Y -z -C -Q -P -U --data "
         "--data-binary --data-raw --data-urlencode --form --header --user --request --url",
         "-o --output -D --dump-header -c --cookie-jar --trace --trace-ascii --stderr --etag-save "
         "--hsts --alt-svc --libcurl", "--output-dir", only="-O --remote-name --remote-name-all",
         doubted="-K --config"),
    _Row("wget", "fetched", "-U -e -t -T -Q -w -A -R -D -I -X -l --header --user-agent --execute "
         "--post-data --tries --timeout", "-o -a --output-file --append-output --save-cookies "
         "-O --output-document", "-P --directory-prefix", unless="-O --output-document --spider"),
    _Row("gcc cc g++ clang c++ ld go rustc", writes="-o -out"),
    _Row("tree strace ltrace time perf", writes="-o --output", reads=False),
    _Row("openssl", writes="-o -out -keyout -writerand -CRLout"),
    _Row("unzip", "rest", "-P", "-d", unless="-l -p -t -v -Z", doubted="-x", reads=False),
    _Row("make ninja", writes="-C --directory", reads=False),
    _Row("gzip gunzip", "packed", suffixes=_END, end=".gz", below="-r --recursive"),
    _Row("bzip2 bunzip2", "packed", end=".bz2"),
    _Row("xz unxz", "packed", "-F -C -T -M", suffixes=_END, end=".xz"),
    _Row("lzma unlzma", "packed", suffixes=_END, end=".lzma"),
    _Row("zstd unzstd", "packed", "-D", "-o", end=".zst", below="-r", doubted="--output-dir-flat"),
    # Their operands are text, or names whose contents they do not read.
    _Row("echo printf ls dir stat test [ cd pushd popd basename dirname realpath readlink seq date "
         "kill pkill pgrep killall man help type which command export declare typeset local unset "
         "alias trap exit return let set expr tr true false sleep du df ssh", reads=False),
    _Row("grep egrep fgrep zgrep rg ag ack", takes="-A -B -C -m -g -t -e --glob --type --regexp "
         "--include --context --max-count", script="-e -f --regexp --file"),
    _Row("awk gawk mawk", takes="-F -v", script="-f --file"),
    _Row("jq yq", script="-f --from-file"),
    # Other subcommands of git name files only in options.
    _Row("git", writes="--output --index-output", reads=False),
    _Row("git archive", writes="-o --output", reads=False),
    _Row("git bundle create", "first", reads=False),
    _Row("git checkout-index", "all", "--stage", "--prefix", doubted="-a --all --stdin --prefix"),
    _Row("git clone|git init", "all", "-b -c -j -u --branch --config --depth --jobs --reference "
         "--template", "--separate-git-dir", reads=False),
    _Row("git diff|git blame|git annotate|git hash-object", writes="--output"),
    _Row("git grep", script="-e -f"),
    _Row("git format-patch", "", "", "-o --output-directory", unless="--stdout", default=".",
         reads=False),
    _Row("git mv", "moved", reads=False),
    _Row("git rm", "removed", unless="--cached", reads=False),
    _Row("git worktree add", "first", "-b -B --reason --orphan", reads=False),
    _Row("git worktree move", "moved", reads=False),
    _Row("git worktree remove", "removed", reads=False),
)  # fmt: skip


_TABLE: Final = {name: row for row in _ROWS for name in listed(row.programs)}
PROGRAMS: Final = frozenset(
    name for name, row in _TABLE.items() if row.operands or row.default or row.writes
) | {"dd", "find", "git", "tar", "bsdtar"}
BY_OPTION: Final = frozenset(
    name for name, row in _TABLE.items() if row.writes and not (row.operands or row.default)
)
_PARTS: Final = {
    "": slice(0),
    "all": slice(None),
    "rest": slice(1, None),
    "first": slice(1),
    "second": slice(1, 2),
}
_DIRECTORY: Final = lazy_pattern(r"/$|(?:^|/)(?:\.{1,2}|[^./]+)$")
"""A target that counts as a directory: a name with an extension counts as a file."""
_ELSEWHERE: Final = lazy_pattern(r"[^/]*:")
_TEXT_OPTION: Final = lazy_pattern(r"--(?:ex|ig|not|message|title|body|desc|subject|comment|name)")
"""Options of any program whose value is text, or names excluded files."""
_URL: Final = lazy_pattern(r"(?!file:)\w+://")
_FOUND: Final = "{}"
"""The text that find replaces with the name of a file."""


def find_touch(readings: Sequence[Reading], starts: Iterable[int] = ()) -> Touch:
    whole, sure = Touch(), frozenset(starts)
    plain: list[tuple[Reading, Touch]] = []
    # A reading with a `head` guesses at options, so its writes would be guesses.
    for reading in (each for each in readings if not each.head):
        name = program_name(reading.first(1)[0].text)
        # The program that a wrapper starts has its own reading.
        is_sure = reading.start in sure and name not in WRAPPERS
        touch = Touch()
        if is_sure or name in _TABLE or name in _BY_HAND:
            touch = _touch(name, [word.text for word in reading.all_words()[1:]])
            touch.reads = touch.reads if is_sure else []
        plain.append((reading, touch))
    for reading, touch in plain:
        words = [word.text for word in reading.all_words()]
        if program_name(words[0]) == "find":
            behind = (each for each in plain if reading.start < each[0].start < reading.end)
            inner = (each for other, each in behind if other.words is reading.words)
            touch.add(_find(words[1:], inner))
        whole.add(touch)
    whole.written = [each for each in whole.written if each != _FOUND]
    whole.removed = [each for each in whole.removed if each != _FOUND]
    return whole


def all_below(directory: str) -> tuple[str, str]:
    return (f"{directory.rstrip('/')}/.", directory)


class _Words(Struct):
    operands: list[str] = []
    given: list[tuple[str, str]] = []

    def has(self, spec: str) -> bool:
        return any(_is_named(option, spec) for option, _ in self.given)

    def holds(self, spec: str) -> bool:
        return self.has(spec) and not any(option[:5] == "--no-" for option, _ in self.given)

    def of(self, spec: str) -> list[str]:
        return [value for option, value in self.given if value and _is_named(option, spec)]


def _is_named(option: str, spec: str) -> bool:
    # A long option may be abbreviated.
    is_long = len(option) > 2 and option.startswith("--")
    names = (each.removesuffix("?") for each in listed(spec))
    return any(each == option or (is_long and each.startswith(option)) for each in names)


def _split(words: Sequence[str], row: _Row) -> _Words:
    found = _Words()
    valued = f"{row.takes} {row.writes} {row.into} {row.suffixes}".split()
    left = list(reversed(words))
    while left:
        word = left.pop()
        if word == "--":
            found.operands += reversed(left)
            break
        if word == "-" or not word.startswith("-"):
            found.operands.append(word)
            continue
        for option, value, is_missing in _options(word, valued):
            found.given.append((option, left.pop() if is_missing and left else value))
    return found


def _options(word: str, valued: list[str]) -> Iterator[tuple[str, str, bool]]:
    name, equals, value = word.partition("=")
    known = [each for each in valued if _is_named(name, each)] if len(name) > 2 else []
    if word.startswith("--") or known:
        is_valued = bool(known) or _TEXT_OPTION.match(name) is not None
        is_apart = not equals and not any(each.endswith("?") for each in known)
        yield name, value, is_valued and is_apart
        return
    for place, letter in enumerate(word[1:], 2):
        option, rest = f"-{letter}", word[place:]
        if option in valued or f"{option}?" in valued:
            yield option, rest, not rest and option in valued
            return
        if place == 2 and rest and rest[0] in "./~@":
            yield option, rest, False
            return
        yield option, "", False


def _touch(name: str, words: Sequence[str]) -> Touch:
    own = _BY_HAND.get(name)
    return own(words) if own is not None else _of_row(name, words, _TABLE.get(name, _Row("")))


def _of_row(name: str, words: Sequence[str], row: _Row) -> Touch:
    found = _split(words, row)
    touch = Touch(found.of(row.writes), doubts=[_UNNAMED] if found.has(row.doubted) else [])
    touch.makes_link = row.links is not None and (not row.links or found.has(row.links))
    if name in ("sed", "gsed") and not _is_plain_sed(found):
        touch.doubts.append(_UNREAD_SED)
    if row.script is not None and not found.has(row.script):
        del found.operands[:1]
    chosen: list[str] = []
    if not found.holds(row.unless) and (not row.only or found.has(row.only)):
        chosen = _chosen(name, row, found, touch)
        if row.default and not (touch.written or chosen):
            chosen = [row.default]
    touch.written += chosen
    for suffix in found.of(row.suffixes):
        touch.written += [f"{each}{suffix}" for each in chosen]
        # A star in it means the file's name.
        touch.doubts += [_UNNAMED] * ("*" in suffix)
    if found.has(row.below):
        touch.copied += [all_below(each) for each in chosen]
    touch.reads = list(_reads(row, found, touch))
    return touch


def _chosen(name: str, row: _Row, found: _Words, touch: Touch) -> list[str]:
    operands, places = found.operands, found.of(row.into)
    match row.operands:
        case "removed":
            touch.removed += operands
            return []
        case "fetched":
            return places + [_inside((places or ["."])[-1], url) for url in operands]
        case "packed":
            return _packed(name, row, found, touch)
        case "copied" | "moved":
            return _brought(name, row, found, touch)
        case _:
            return operands[_PARTS[row.operands]]


def _brought(name: str, row: _Row, found: _Words, touch: Touch) -> list[str]:
    operands, directories = found.operands, found.of(row.into)
    if name == "install" and found.has("-d --directory"):
        return operands
    sources = operands if directories else operands[:-1]
    targets = directories or operands[-1:]
    if name in ("scp", "rsync"):
        targets = [target for target in targets if not _ELSEWHERE.match(target)]
    if row.operands == "moved":
        touch.removed += sources
    is_hard = not found.has("-s --symbolic") if row.links == "" else found.has("-l --link")
    if row.links is not None and is_hard and name != "rsync":
        # Threat: a later write to the new name changes this file, and no symlink shows it.
        touch.written += sources or operands
        touch.copied += [all_below(each) for each in sources if row.links]
    if row.links == "" and not sources:
        return [place for each in operands for place in (_inside(".", each), each)]
    if found.has("--parents"):
        targets = targets + [f"{to.rstrip('/')}/{each}" for to in targets for each in sources]
    touch.copied += [(source, target) for target in targets for source in sources]
    # A caller with access to the disk can decide better: see `copied`.
    wide = [to for to in targets if directories or len(sources) > 1 or _DIRECTORY.search(to)]
    return targets + [_inside(target, source) for target in wide for source in sources]


def _packed(name: str, row: _Row, found: _Words, touch: Touch) -> list[str]:
    operands = found.operands
    if found.has("-c --stdout --to-stdout"):
        return operands
    if "un" not in name and not found.has("-d --decompress --uncompress"):
        return operands + [f"{each}{row.end}" for each in operands]
    is_odd = any(re.search(r"[*?\[]|\.t\w+$", each) for each in operands)
    if is_odd or found.has("-N -r --name --recursive"):
        touch.doubts.append(_UNNAMED)
    return operands + [re.sub(r"[-._][^-._/]+$", "", each) for each in operands]


def _inside(target: str, source: str) -> str:
    return f"{target.rstrip('/')}/{program_name(source.rstrip('/'))}"


def _reads(row: _Row, found: _Words, touch: Touch) -> Iterator[str]:
    """Yield possible names of files that it reads: words that are not text, and `@file` in text."""
    known = f"{row.takes} {row.writes} {row.into} {row.suffixes}"
    gone = {*touch.written, *touch.removed}
    texts = [
        (value, not row.reads or _is_named(option, known) or bool(_TEXT_OPTION.match(option)))
        for option, value in found.given
    ]
    texts += [(each, False) for each in found.operands if row.reads and each not in gone]
    for text, is_text in texts:
        for each in (text, text.partition("=")[2]):
            if each.startswith("@"):
                yield each[1:]
            elif each and not is_text and not _URL.match(each):
                yield each.removeprefix("file://")


def _dd(words: Sequence[str]) -> Touch:
    written, read = ([word[3:] for word in words if word[:3] == each] for each in ("of=", "if="))
    return Touch(written, reads=read)


SCRIPT_CHARS_MAX: Final = 2_000
"""A longer script is asked about: a line may run sed, with its script, a thousand times."""


def _is_plain_sed(found: _Words) -> bool:
    scripts = found.of("-e --expression")
    if not found.has("-e -f --expression --file"):
        scripts = found.operands[:1]
    script = "\n".join(scripts)
    return len(script) <= SCRIPT_CHARS_MAX and is_plain_sed(script)


_FIND_FILES: Final = frozenset({"-fprint", "-fprint0", "-fprintf", "-fls"})
_FIND_MIXED: Final = frozenset({"!", "-not", "-o", "-or", "(", ")", ",", "-L", "-follow", "-prune"})
_FIND_TESTS: Final = {
    "-name": "name", "-iname": "iname", "-path": "path", "-ipath": "ipath",
    "-wholename": "path", "-iwholename": "ipath", "-type": "type",
}  # fmt: skip


def _find(words: Sequence[str], executed: Iterable[Touch]) -> Touch:
    touch = Touch([words[at + 1] for at in range(len(words) - 1) if words[at] in _FIND_FILES])
    at = 0
    while at < len(words) and (words[at] in ("-H", "-L", "-P", "-D") or words[at][:2] == "-O"):
        at += 2 if words[at] == "-D" else 1
    starts = list(takewhile(lambda word: word[:1] not in "-(!", words[at:])) or ["."]
    tests = _find_tests(words)
    handed = Touch()
    for each in executed:
        handed.add(each)
    into = dict.fromkeys(
        place for source, place in handed.copied if _FOUND in source and _FOUND not in place
    )
    written = (*handed.written, *(place for _, place in handed.copied))
    acts = {
        "delete": "-delete" in words or any(_FOUND in path for path in handed.removed),
        "create": any(path.startswith(_FOUND) for path in written),
        "view": _FOUND in handed.reads and any(test != "type" for test, _ in tests),
    }
    for start in starts:
        if tests:
            touch.sifted += [Sift(act, start, tests) for act, is_done in acts.items() if is_done]
            touch.sifted += [Sift("create", start, tests, place) for place in into]
            continue
        touch.removed += [start] * acts["delete"]
        touch.written += [start] * acts["create"]
        touch.copied += [all_below(start)] * acts["create"] + [(start, place) for place in into]
    return touch


def _find_tests(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    if not _FIND_MIXED.isdisjoint(words):
        return ()
    own = list(takewhile(lambda word: not word.startswith(("-exec", "-ok")), words))
    pairs = [(_FIND_TESTS.get(word, ""), value) for word, value in pairwise(own)]
    # Patterns that fnmatch(3) reads differently than Python's are ignored.
    return tuple(
        (test, value.replace("[^", "[!"))
        for test, value in pairs
        if test and not re.search(r"\\|\[\[", value) and (test != "type" or value in ("f", "d"))
    )


_TAR: Final = _Row("tar", "", "-b -f -F -H -I -K -L -N -T -V -X --file --exclude",
                   "-g --listed-incremental --one-top-level?", "-C --directory")  # fmt: skip


def _tar(words: Sequence[str]) -> Touch:
    left = list(words)
    if left and not left[0].startswith("-"):
        # Old style: all letters in the first word, their values after it.
        for letter in left.pop(0):
            takes = f"-{letter}" in f"{_TAR.takes} -g -C".split()
            left += [f"-{letter}", *left[:1]] if takes else [f"-{letter}"]
            del left[: 1 if takes else 0]
    found = _split(left, _TAR)
    makes = found.has("-c -r -u -A --create --append --update --concatenate --catenate --delete")
    touch = Touch(found.of(_TAR.writes))
    if makes:
        touch.written += [each for each in found.of("-f --file") if each != "-"]
        touch.removed = found.operands if found.has("--remove-files") else []
        touch.reads = [each for each in found.operands if each not in touch.removed]
        return touch
    places = found.of(_TAR.into)
    members = found.operands if found.has("-x --extract --get") else []
    touch.written += places + [_joined((places or [""])[-1], each) for each in members]
    return touch


_GIT_READING: Final = frozenset(
    "annotate blame cat-file check-attr check-ignore count-objects describe diff diff-files "
    "diff-index diff-tree for-each-ref grep help log ls-files ls-remote ls-tree merge-base "
    "name-rev rev-list rev-parse shortlog show show-ref status var version whatchanged".split()
)
"""Subcommands that change nothing in the repository, only files that an option names."""
_ALL_BUT_GIT: Final = ("*", ".[!g]*", ".g[!i]*", ".gi[!t]*", ".git?*")
"""Patterns for all entries of a directory but `.git`, which `git clean` keeps."""
_UP: Final = lazy_pattern(r"(?:\.{0,2}/)*\.{0,2}")
"""The working directory or one above it, up to the root of the file system."""
_HERE: Final = lazy_pattern(r"(?:\./+)*\.?")
_MAGIC: Final = lazy_pattern(r"^:|[*?\[]")
_HARMLESS_KEY: Final = lazy_pattern(
    r"(?:user|color|advice|pull|push|fetch|rebase|rerere|status|log|commit|tag|gc|branch)\..*"
    r"|init\.defaultbranch|merge\.[^.]*|safe\.directory|remote\..*\.(?:url|fetch|push|prune)"
    r"|core\.(?:autocrlf|eol|filemode|ignorecase|quotepath|longpaths|symlinks)",
    re.IGNORECASE | re.DOTALL,
)
"""Keys of git's configuration that name no program and no further configuration file."""


def _git(words: Sequence[str]) -> Touch:
    directory, places, left = "", list[str](), list(words)
    while left and left[0].startswith("-"):
        word = left.pop(0)
        if word[:2] == "-C":
            directory = _joined(directory, word[2:] or (left.pop(0) if left else ""))
            places.append(directory)
            continue
        value = left.pop(0) if word in GIT_BEFORE_VALUED and left else word.partition("=")[2]
        if word.startswith(("--git-dir", "--work-tree")):
            places.append(value)
    keys = [" ".join(("git", *left[:size])) for size in (2, 1) if left]
    key = next((each for each in keys if each in _TABLE or each in _BY_HAND), "")
    rest = left[key.count(" ") :]
    touch = _touch(key, rest) if key else _of_row("git", rest, _TABLE["git"])
    for name in ("written", "removed", "reads"):
        setattr(touch, name, [_joined(directory, path) for path in getattr(touch, name)])
    touch.copied = [(_joined(directory, a), _joined(directory, b)) for a, b in touch.copied]
    if left and left[0] not in _GIT_READING:
        touch.written[:0] = places
    return touch


def _joined(directory: str, path: str) -> str:
    is_whole = not directory or path.startswith(("/", "~"))
    return path if is_whole else f"{directory.rstrip('/')}/{path}"


def _git_stash(words: Sequence[str]) -> Touch:
    """Return the removed paths; tracked files are reset to the committed version."""
    is_bare = not words or words[0].startswith("-")
    verb, rest = ("push", words) if is_bare else (words[0], words[1:])
    if verb not in ("push", "save"):
        return Touch()
    found = _split(rest, _Row("", takes="-m --message"))
    paths = [each for each in found.operands if verb == "push" and not _HERE.fullmatch(each)]
    is_wide = not paths and found.has("-u -a --include-untracked --all")
    return Touch(removed=paths, doubts=[_STASHES] if is_wide else [])


def _git_restore(words: Sequence[str]) -> Touch:
    """Doubt a restore of the working directory or above: git decides which files it rewrites."""
    found = _split(words, _Row(""))
    is_index = all(_is_named(each, "-S --staged -q --quiet") for each, _ in found.given)
    if found.has("-S --staged") and is_index:
        return Touch()
    named = [each for each in found.operands if not _UP.fullmatch(each)]
    is_wide = len(named) < len(found.operands) or any(map(_MAGIC.search, named))
    doubts = [_REWRITES] if is_wide or found.has("--pathspec-from-file") else []
    return Touch(found.operands, copied=[all_below(each) for each in named], doubts=doubts)


def _git_clean(words: Sequence[str]) -> Touch:
    """Doubt a clean without `x` and `X`: git's ignore lists decide which files it removes."""
    found = _split(words, _Row("", takes="-e --exclude"))
    if found.holds("-n --dry-run"):
        return Touch()
    if not found.has("-x -X"):
        return Touch(found.operands, doubts=[_CLEANS])
    removed: list[str] = []
    for path in found.operands or [""]:
        below = [_joined(path, each) for each in _ALL_BUT_GIT]
        removed += below if _HERE.fullmatch(path) else [path]
    # In a git pathspec a star matches slashes, and `:/` is the repository root.
    return Touch(removed=removed, doubts=[_CLEANS] * any(map(_MAGIC.search, found.operands)))


def _git_config(words: Sequence[str]) -> Touch:
    found = _split(words, _Row("", takes="-f --file --type --default --comment --value --url"))
    if found.has("--get --get-all --get-regexp --get-urlmatch --get-colorbool --list -l"):
        return Touch()
    files = found.of("-f --file")
    key = [each for each in found.operands if each != "set"]
    if files or len(key) < 2 or key[0] in ("get", "list") or _HARMLESS_KEY.fullmatch(key[0]):
        return Touch(files)
    return Touch(["~/.gitconfig" if found.has("--global") else ".git/config"])


_BY_HAND: Final[dict[str, Callable[[Sequence[str]], Touch]]] = {
    "dd": _dd,
    "find": lambda _words: Touch(),
    "tar": _tar,
    "bsdtar": _tar,
    "git": _git,
    "git stash": _git_stash,
    "git checkout": _git_restore,
    "git restore": _git_restore,
    "git clean": _git_clean,
    "git config": _git_config,
}
