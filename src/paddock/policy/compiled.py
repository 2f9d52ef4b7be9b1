"""Match calls against a policy that is compiled into plain tuples and dictionaries.

They can be marshalled, and matching imports nothing: the hook keeps them in a file.

    profile  {name, note, rules, otherwise: rows; by number of a rule: plain: those without a
             target; paths: an index; names: (number, parts); commands: (number, program in lower
             case, empty if it is a pattern, None for any command); when: {number: (conditions,
             whether other arguments are refused)}}
    condition (path to an argument, kind, wanted: an index, pieces, bounds, values)
    row      (category, operation, outcome, text, source, file, line, said, reason)
    guards   (lists, folders): the closed lists of a policy, and the dependency folders in which
             commands may read, and may write, paths that only a file-name pattern closes
    lists    (index, negated, owners, kinds, names, places): by number of a pattern whether it
             is a `!`, its list, whether it is a file name, (text, file, line); by list its kind
    index    (raw, folded, covering): patterns compared with the path as it is, and folded; those
             that match the root
    side     {leading directories, None for any: (names, deep)}
    names    {(length of prefix, of suffix): {(prefix, suffix): (entry, …)}} of one component;
             a prefix length of None means the whole component
    deep     [entry, …] of the segments after the leading directories
    entry    (number, matches directories only, segment or segments)
    segment  pieces: text, RUN, ONE, or (negated, ((low, high), …)); among segments RUN is `**`

One walk over the components of a path, with look-ups: the cost follows the path's length, not
the number of patterns.

Threat: a pattern from a cloned project meets paths that an agent chooses. The text between two
stars has a fixed length, so the leftmost match is the best one, and only the last star is ever
retried. The text after the last `**` has one possible place, at the end.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from paddock.values.calls import Json

ALLOW, CONFINE, ASK, DENY = 0, 1, 2, 3
WORDS = ("allow", "confine", "ask", "deny")
RULE, OTHERWISE, NOTHING = 0, 1, 2
"""Ranks of a profile's answers: among equally strict ones the lowest decides."""
ANY = "*"
VALUE_CHARS_MAX = 200
"""Equal to `limits.message_value_chars_max`."""
OWN, STATE, PROTECTED, GENERATED, SECRET = "own", "state", "protected", "generated", "secret"
WARNED, SAFE = "warned", "safe"
READ_CLOSED = (STATE, SECRET)
WRITE_CLOSED = (OWN, STATE, PROTECTED, GENERATED, SECRET)
CODES = {
    OWN: "policy.protected",
    STATE: "policy.secret",
    PROTECTED: "policy.protected",
    GENERATED: "policy.generated",
    SECRET: "policy.secret",
}
RUN, ONE = 0, 1
_KINDS = ((str, "text"), (bool, "truth"), (int, "number"), (float, "number"))
ELEMENTS_MAX = 10_000
"""Of an array in arguments: a longer one counts as a value of another type."""
HEX = frozenset("0123456789abcdefABCDEF")
_EMPTY: "tuple[Json, Json]" = ({}, [])
Hit = tuple[int, int]
"""(level, number): the component, from 0, up to which the pattern matched; the pattern."""


def find_rules(
    profile: "Json",
    category: str,
    operation: str,
    target: str,
    is_directory: bool = False,
    arguments: "Json" = None,
) -> list[int]:
    """`arguments` None: they are not known, and each counts as missing."""
    rules = profile["rules"]
    matched = list(profile["plain"])
    matched += sorted({number for _, number in find_hits(profile["paths"], target, is_directory)})
    is_vague = (category, operation) == ("mcp", "read") and not _is_plain_uri(target)
    for number, parts in profile["names"]:
        is_exact = rules[number][2] == ALLOW
        if is_exact and is_vague and len(parts) > 1:
            continue
        if matches_text(parts, target if is_exact else target.casefold()):
            matched.append(number)
    matched = [number for number in matched if means(rules[number], category, operation)]
    when = profile["when"]
    if not when:
        return matched
    return [n for n in matched if n not in when or _suits(when[n], arguments, rules[n][2] == ALLOW)]


def _suits(when: "Json", arguments: "Json", is_allow: bool) -> bool:
    conditions, only = when
    for way, kind, wanted in conditions:
        if not argument_holds(kind, wanted, find_argument(arguments, way), is_allow):
            return False
    return not only or has_only(arguments, [way for way, _, _ in conditions])


def find_argument(arguments: "Json", way: "tuple[str, ...]") -> "Json":
    """Return the value at a JSON pointer, None for none."""
    for step in way:
        if _is(arguments, dict):
            arguments = arguments.get(step)
        elif _is(arguments, list):
            arguments = next((each for name, each in _members(arguments) if name == step), None)
        else:
            return None
    return arguments


def argument_holds(kind: str, wanted: "Json", value: "Json", is_allow: bool) -> bool:
    """Test one argument. An allow never matches a missing value or another type; a deny does."""
    values = [each for _, each in _members(value)] if value and _is(value, list) else [value]
    if len(values) > ELEMENTS_MAX:
        # Threat: an agent makes us compare millions of elements.
        return not is_allow
    held: list[bool] = [_value_holds(kind, wanted, each, not is_allow) for each in values]
    return all(held) if is_allow else any(held)


def _value_holds(kind: str, wanted: "Json", value: "Json", otherwise: bool) -> bool:
    is_a = kind_of(value)
    if kind == "path":
        return find_hits(wanted, value) != [] if is_a == "text" and is_place(value) else otherwise
    if kind == "glob":
        return matches_name(wanted, value) if is_a == "text" else otherwise
    if kind == "range":
        low, high = wanted
        return low <= value <= high if is_a == "number" else otherwise
    alike = [each for each in wanted if kind_of(each) == is_a]
    return value in alike if alike else otherwise


def kind_of(value: "Json") -> str:
    """Return the kind of one value; empty for null, a number that is not finite, and all else."""
    kind = next((word for each, word in _KINDS if _is(value, each)), "")
    # Threat: 1e999 is read as infinity; infinity minus itself is NaN.
    return "" if kind == "number" and value - value != 0 else kind


def is_place(text: str) -> bool:
    """Return True if every reader resolves a text to the same relative path."""
    parts = text.split("/")
    if parts[0][:1] == "~" or not {"", ".", ".."}.isdisjoint(parts) or "\\" in text or "\0" in text:
        return False
    return not any(len(each) > 1 and HEX.issuperset(each[:2]) for each in text.split("%")[1:])


def _is_plain_uri(target: str) -> bool:
    """Threat: `docs/file:///docs/../.env`, or a form that a server decodes to it."""
    text = target.lower()
    parts = text.replace("?", "/").replace("#", "/").split("/")
    is_plain = text.isprintable() and "\\" not in text and {".", ".."}.isdisjoint(parts)
    return is_plain and not any(each in text for each in ("%2e", "%2f", "%5c", "%25"))


def has_only(arguments: "Json", ways: "Sequence[tuple[str, ...]]") -> bool:
    """Return True if every given argument is at one of `ways`, or below it."""
    if () in ways:
        return True
    if not (_is(arguments, dict) or _is(arguments, list)):
        return False
    for name, value in _members(arguments):
        below = [way[1:] for way in ways if way[0] == name]
        if not below or not has_only(value, below):
            return False
    return True


def _members(value: "Json") -> "Iterable[tuple[str, Json]]":
    if _is(value, dict):
        return value.items()
    return ((str(number), each) for number, each in enumerate(value))


def _is(value: object, kind: type) -> bool:
    return type(value) is kind


def means(row: "Json", category: str, operation: str) -> bool:
    wanted, named = row[0], row[1]
    if wanted != category and (wanted != ANY or (category == "net" and row[2] != DENY)):
        return False
    if named in (ANY, operation):
        return True
    # A client chooses its tools' names: another letter case must not open what is closed.
    is_wide = category == "client" and row[2] != ALLOW
    return is_wide and named.casefold() == operation.casefold()


def conclude(
    profile: "Json", matched: list[int], category: str, operation: str, asked: str
) -> "tuple[int, int, Json, str]":
    """Return outcome, rank, the row that decides or None, and the reason."""
    note = f" ({profile['note']})" if profile["note"] else ""
    rows = [profile["rules"][number] for number in matched]
    if rows:
        row = max(rows, key=lambda each: each[2])
        return row[2], RULE, row, row[7] + note
    rows = [row for row in profile["otherwise"] if means(row, category, operation)]
    if rows:
        # If keys overlap, the strictest decides.
        row = max(rows, key=lambda each: each[2])
        _, _, outcome, text, source, *_ = row
        said = f"and {quote(text)} in {source} says {WORDS[outcome]}"
        return outcome, OTHERWISE, row, f"no rule matches {quote(asked)}, {said}{note}"
    name = profile["name"]
    reason = (
        f"no rule of the profile {quote(name)} matches {quote(asked)}, "
        f"so it is denied; an operator can allow it in [profiles.{name}]{note}"
    )
    return DENY, NOTHING, None, reason


def quote(value: str) -> str:
    text = repr(value)
    if text.startswith("'"):
        # A policy is written with double quotes; repr prefers single ones.
        text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    missing = len(text) - VALUE_CHARS_MAX
    return text if missing <= 0 else f"{text[:VALUE_CHARS_MAX]}… ({missing} more characters)"


def source_of(kind: str) -> str:
    return f"paths.{OWN if kind == STATE else kind}"


def fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    import unicodedata  # noqa: PLC0415 - most text is ASCII

    # Canonical caseless matching (Unicode 3.13, D145), composed at the end.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


def find_hits(index: "Json", path: str, is_directory: bool = False) -> list[Hit]:
    """`path` is relative and normal; only patterns for everything match the root."""
    raw, folded, covering = index
    if path in ("", "."):
        return [(0, number) for number in covering]
    # Folding can lose a match (a bracket's range, `?` for a letter that folds to two, a combining
    # mark at a wildcard's edge), so the pattern as written is tried as well.
    return _find_hits(raw, path, is_directory) + _find_hits(folded, fold(path), is_directory)


def find_deciding(hits: list[Hit], negated: "Json") -> int:
    """Return the number of the pattern that decides, -1 for none; `negated` by number."""
    best: dict[int, int] = {}
    for level, number in hits:
        if number > best.get(level, -1):
            best[level] = number
    # From the top down: the first level whose last match is not negated decides for everything
    # below.
    for level in sorted(best):
        if not negated[best[level]]:
            return best[level]
    return -1


def permits(hits: list[Hit], negated: "Json") -> bool:
    """Return True if the path is matched, and the last pattern that matches is not a `!`.

    Threat: in `["**", "!secrets/"]` gitignore excludes only the directory itself, and `**`
    matches the files below it again.
    """
    if find_deciding(hits, negated) < 0:
        return False
    return not negated[max(number for _, number in hits)]


def find_listed(lists: "Json", hits: list[Hit], wanted: "Sequence[str]") -> list[tuple[str, int]]:
    _, negated, owners, kinds, _, _ = lists
    found: list[tuple[str, int]] = []
    if not hits:
        return found
    for listed, kind in enumerate(kinds):
        if kind in wanted:
            number = find_deciding([hit for hit in hits if owners[hit[1]] == listed], negated)
            if number >= 0:
                found.append((kind, number))
    return found


def find_closing(
    guards: "Json", path: str, hits: list[Hit], is_write: bool, by_command: bool
) -> list[tuple[str, int]]:
    """Return the kind and the deciding pattern of every list that closes `path`.

    In a dependency folder a file-name pattern closes nothing to a command, except `.git` and
    Paddock's own files.
    """
    lists, folders = guards
    wanted = WRITE_CLOSED if is_write else READ_CLOSED
    if by_command and hits:
        wanted = tuple(kind for kind in wanted if kind != GENERATED)
        hits = _drop_file_names(lists, path, hits, find_dependency(path, folders[is_write]))
    return find_listed(lists, hits, wanted)


def _drop_file_names(lists: "Json", path: str, hits: list[Hit], level: int) -> list[Hit]:
    if level < 0:
        return hits
    _, _, owners, kinds, names, _ = lists
    components = path.split("/")
    return [
        (at, number)
        for at, number in hits
        if at <= level
        or not names[number]
        or components[at].lower() == ".git"
        or kinds[owners[number]] == OWN
    ]


def find_warning(guards: "Json", hits: list[Hit]) -> int:
    found = find_listed(guards[0], hits, (WARNED,))
    return found[0][1] if found and not is_safe(guards, hits) else -1


def is_safe(guards: "Json", hits: list[Hit]) -> bool:
    """Return True if every `safe` list permits the path."""
    _, negated, owners, kinds, _, _ = guards[0]
    return all(
        permits([hit for hit in hits if owners[hit[1]] == listed], negated)
        for listed, kind in enumerate(kinds)
        if kind == SAFE
    )


def find_dependency(path: str, folders: "frozenset[str]") -> int:
    """Return the level of the component of `path` that is a dependency folder; -1 for none.

    Names compare exactly: on a file system that ignores case, `Node_Modules` does not count.
    """
    for level, name in enumerate(path.split("/")[:-1]):
        if name in folders:
            return level
    return -1


def _find_hits(side: "Json", path: str, is_directory: bool) -> list[Hit]:
    hits: list[Hit] = []
    deep: list[tuple[int, Json]] = []
    parts = path.split("/") if side else []
    anywhere, _ = side.get(None, _EMPTY)
    for level, name in enumerate(parts):
        names, longer = side.get("/".join(parts[:level]), _EMPTY)
        if longer:
            deep.append((level, longer))
        found = [
            (number, directory_only)
            for (start, end), table in (*anywhere.items(), *names.items())
            for number, directory_only, segment in table.get(
                (name[:start], name[len(name) - end :]), ()
            )
            if matches_name(segment, name)
        ]
        found += [
            (number, directory_only)
            for first, entries in deep
            for number, directory_only, segments in entries
            if matches_path(segments, parts[first : level + 1])
        ]
        is_file = level == len(parts) - 1 and not is_directory
        hits += [
            (level, number) for number, directory_only in found if not (directory_only and is_file)
        ]
    return hits


def matches_path(segments: "Json", components: list[str]) -> bool:
    last, end = len(segments), len(components)
    while last and segments[last - 1] != RUN:
        last, end = last - 1, end - 1
        if end < 0 or not matches_name(segments[last], components[end]):
            return False
    return _matches(segments[:last], components[:end], _component)


def matches_name(segment: "Json", name: str) -> bool:
    return _matches(segment, name, _width)


def matches_wild(pattern: str, text: str) -> bool:
    return matches_text(tuple(pattern.split(ANY)), text)


def matches_text(parts: tuple[str, ...], text: str) -> bool:
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return text == first
    if len(text) < len(first) + len(last):
        return False
    if not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for part in parts[1:-1]:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _matches(pattern: "Json", subject: "Json", width: "Callable[[Json, Json, int], int]") -> bool:
    at = piece = resumed = 0
    star = -1
    while True:
        if piece < len(pattern):
            wanted = pattern[piece]
            if wanted == RUN:
                star, resumed = piece, at
                piece += 1
                if piece == len(pattern):
                    return True
                continue
            taken = width(wanted, subject, at)
            if taken:
                at += taken
                piece += 1
                continue
        elif at == len(subject):
            return True
        if star < 0 or resumed >= len(subject):
            return False
        resumed += 1
        at, piece = resumed, star + 1


def _component(segment: "Json", components: list[str], at: int) -> int:
    return int(at < len(components) and matches_name(segment, components[at]))


def _width(wanted: "Json", name: str, at: int) -> int:
    if type(wanted) is str:
        return len(wanted) if name.startswith(wanted, at) else 0
    if at >= len(name):
        return 0
    if wanted == ONE:
        return 1
    negated, ranges = wanted
    return int(any(low <= name[at] <= high for low, high in ranges) is not negated)
