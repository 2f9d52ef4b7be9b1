"""Path patterns as an image holds them, matched without a regular expression.

Plain tuples and dictionaries, which can be marshalled. A set of patterns is two sides, compared
with the path as it is and in lower case. The paths here are ASCII.

    side     (names, {directories in front: (names, deep)})
    names    (every, exact, prefixes, suffixes, others): patterns of one component
    deep     ((entry, segments), …): what follows the directories in front
    entry    (number, matches directories only)
    segment  pieces: text, RUN, ONE, or (negated, ((low, high), …)); DEPTH alone
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.values.calls import Json

RUN, ONE, DEPTH = 0, 1, 2


def find_hits(sides: "Json", path: str) -> "list[tuple[int, int]]":
    raw, lowered = sides
    hits: list[tuple[int, int]] = []
    if raw is not None:
        _collect(raw, path, hits)
    if lowered is not None:
        _collect(lowered, path.lower(), hits)
    return hits


def _collect(side: "Json", path: str, hits: "list[tuple[int, int]]") -> None:
    anywhere, nodes = side
    parts = path.split("/")
    last = len(parts) - 1
    node = nodes.get("")
    deep: Json = []
    prefix = ""
    for level, name in enumerate(parts):
        directory = level < last
        if anywhere is not None:
            _names(anywhere, name, directory, level, hits)
        if node is not None:
            names, rests = node
            _names(names, name, directory, level, hits)
            if rests:
                deep.append((rests, level))
        for rests, start in deep:
            below = parts[start : level + 1]
            for entry, segments in rests:
                if (directory or not entry[1]) and matches_parts(segments, below):
                    hits.append((level, entry[0]))
        if nodes and level < last:
            prefix = f"{prefix}/{name}" if level else name
            node = nodes.get(prefix)


def _names(
    names: "Json", name: str, directory: bool, level: int, hits: "list[tuple[int, int]]"
) -> None:
    every, exact, prefixes, suffixes, others = names
    found: Json = list(every)
    found += exact.get(name, ())
    for length, table in suffixes:
        found += table.get(name[-length:], ())
    for length, table in prefixes:
        found += table.get(name[:length], ())
    for entry, segment in others:
        if matches_name(segment, name):
            found.append(entry)
    for number, directory_only in found:
        if directory or not directory_only:
            hits.append((level, number))


def matches_parts(segments: "Json", parts: "list[str]") -> bool:
    at = 0
    for index, segment in enumerate(segments):
        if segment == (DEPTH,):
            rest = segments[index + 1 :]
            if not rest:
                return len(parts) > at
            return any(matches_parts(rest, parts[here:]) for here in range(at, len(parts)))
        if at >= len(parts) or not matches_name(segment, parts[at]):
            return False
        at += 1
    return at == len(parts)


def matches_name(segment: "Json", name: str) -> bool:
    at = piece = 0
    star, resumed = -1, 0
    while True:
        if piece < len(segment):
            wanted = segment[piece]
            if wanted == RUN and type(wanted) is int:
                star, resumed = piece, at
                piece += 1
                continue
            width = _width(wanted, name, at)
            if width:
                at += width
                piece += 1
                continue
        elif at == len(name):
            return True
        if star < 0 or resumed >= len(name):
            return False
        resumed += 1
        at, piece = resumed, star + 1


def _width(wanted: "Json", name: str, at: int) -> int:
    if type(wanted) is str:
        return len(wanted) if name.startswith(wanted, at) else 0
    if at >= len(name):
        return 0
    if type(wanted) is int:
        return 1
    negated, ranges = wanted
    char = name[at]
    return int(any(low <= char <= high for low, high in ranges) is not negated)


def deciding(hits: "list[tuple[int, int]]", listed: int, patterns: "Json") -> int:
    """Return the pattern that decides for a list; -1 for none. `patterns[number]`: list, negated.

    From the top down: the first level whose last match is no negation decides.
    """
    best: dict[int, int] = {}
    for level, number in hits:
        if patterns[number][0] == listed and number > best.get(level, -1):
            best[level] = number
    for level in sorted(best):
        if not patterns[best[level]][1]:
            return best[level]
    return -1


def matches_text(parts: "tuple[str, ...]", text: str) -> bool:
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
