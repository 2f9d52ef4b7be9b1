"""Decide whether the words that a wildcard covered are harmless: the narrow side of an allow.

Each word is *named* (literally in the rule) or covered. What is covered must be a plain word,
and none that makes the program write or run something (`dangers`). All doubt is a no.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from paddock.pattern import lazy_pattern
from paddock.policy.commands.dangers import (
    CAUTIONS_BY_PROGRAM,
    FILTERS_BY_PROGRAM,
    GENERIC,
    READERS,
    SUBCOMMANDS,
    TRUSTED_BY_PROGRAM,
    VALUED,
    WRITERS,
    Caution,
    Trusted,
    is_plain_awk,
    is_plain_sed,
)
from paddock.policy.commands.words import Word, exact_program, program_name
from paddock.policy.commands.wrappers import (
    ASSIGNMENT,
    GIT_BEFORE,
    GIT_BEFORE_VALUED,
    WRAPPERS,
)

_GLOB: Final = lazy_pattern(r"[*?\[]")
_SEEN_THROUGH: Final = lazy_pattern(
    r"time|nice(?: -n \d+)?|g?timeout(?: -k [\d.]+[smhd]?| -s \w+)* [\d.]+[smhd]?"
)
"""What an allow sees through, too: all of it stands in the line, and it changes nothing else."""
Way = tuple[tuple[Word, ...], tuple[int, ...], bool]
"""The words of a command, the places of programs, and whether it runs in another directory."""
_NOTHING: Final = frozenset({"true", "false", ":"})


def find_loose_word(words: Sequence[Word]) -> str:
    for index, word in enumerate(words):
        if word.unknown or word.inexact:
            return f"{word.source!r}: {word.unknown or word.inexact}"
        if word.glob and (index == 0 or not _is_tame_glob(word.text)):
            # Threat: a file named like an option, which an unquoted pattern becomes.
            return f"{word.source!r} may become anything"
        if word.glob and _takes_operands_seriously(program_name(words[0].text), index):
            return f"{word.source!r} may become more than one operand"
    return ""


def find_directory(words: Sequence[Word]) -> str:
    named = [word.text for word in words[1:] if word.text != "--"]
    is_plain = all(word.is_literal for word in words) and words[0].text == "cd"
    return named[0] if is_plain and len(named) == 1 and is_inside(named[0]) else ""


def is_inside(directory: str) -> bool:
    return directory[:1] not in ("", "-", "+", "/", "~") and ".." not in directory.split("/")


def is_neutral(words: Sequence[Word], *, is_piped: bool) -> bool:
    """Whether a command adds nothing to what the others of its line do: no rule has to name it."""
    if not all(word.is_literal for word in words):
        return False
    program, *_ = texts = [word.text for word in words]
    covered = [""] * len(texts)
    if program in ("test", "["):
        return not find_danger(texts, (0,), 0, [None, *covered[1:]])
    row = FILTERS_BY_PROGRAM.get(program) if is_piped else None
    is_filter = row is not None and not _find_untrusted(texts, 0, covered, row)
    return is_filter or program in _NOTHING or bool(find_directory(words))


def see_exactly(way: Way) -> Iterator[Way]:
    """Yield a command, and what it starts by words that an allow knows, all spelt out here."""
    words: tuple[Word, ...] = way[0]
    starts: tuple[int, ...] = way[1]
    is_moved = way[2]
    yield way
    while len(words) > 1:
        texts = [word.text if word.is_literal else "" for word in words]
        program = exact_program(texts[0])
        if len(starts) > 1 and _SEEN_THROUGH.fullmatch(" ".join([program, *texts[1 : starts[1]]])):
            words, starts = words[starts[1] :], tuple(at - starts[1] for at in starts[1:])
        elif program == "git" and texts[1] in ("--no-pager", "-P"):
            words = (words[0], *words[2:])
        elif program == "git" and texts[1:2] == ["-C"] and is_inside("".join(texts[2:3])):
            words, is_moved = (words[0], *words[3:]), True
        else:
            return
        yield words, starts, is_moved


def _is_tame_glob(text: str) -> bool:
    return not _GLOB.match(text) and not text.startswith("-") and ".." not in text


def _takes_operands_seriously(program: str, index: int) -> bool:
    rows = CAUTIONS_BY_PROGRAM.get(program, ())
    return (
        program in TRUSTED_BY_PROGRAM
        or program in WRAPPERS
        or (program in SUBCOMMANDS and index < 2)
        or any(row.holding or any(p[0] != "-" for p in row.prefixes) for row in rows)
    )


def find_danger(
    words: Sequence[str], starts: Sequence[int], start: int, named: Sequence[str | None]
) -> str:
    """Return what the program at `start` would do by a word that no rule names; else empty.

    `starts`: all programs, each judged by itself. `named[i]` is None where the rule has word `i`
    literally, else the literal beginning of the pattern that covers it.
    """
    program = program_name(words[start])
    if start and named[start] is not None:
        return f"{program!r} is started by {words[0]!r}, and no word of the rule names it"
    name = exact_program(words[start])
    if "/" in name and named[start] is not None:
        return f"{words[start]!r} is no program of a system directory"
    is_covered = named[start] is not None and any(each is not None for each in named[start + 1 :])
    if is_covered and program not in READERS:
        return f"no word of the rule names {program!r}"
    if program in READERS or program in WRITERS:
        return ""
    if program in WRAPPERS:
        stop = min((later for later in starts if later > start), default=len(words))
        return _find_wrapper_danger(words, start, stop, named)
    if program in TRUSTED_BY_PROGRAM:
        return _find_untrusted(words, start, named, TRUSTED_BY_PROGRAM[program])
    rows: tuple[Caution, ...] = CAUTIONS_BY_PROGRAM.get(program, ())
    if program in SUBCOMMANDS:
        place = find_subcommand(words, start)
        problem = _find_subcommand_danger(words, start, place, named)
        if problem:
            return problem
        if place < len(words):
            rows += CAUTIONS_BY_PROGRAM.get(f"{program} {words[place]}", ())
    for index in range(start + 1, len(words)):
        beginning = named[index]
        if beginning is None:
            continue
        for row in rows or GENERIC:
            if is_caught(words[index], row, program) and not is_caught(beginning, row, program):
                return f"{words[index]!r} {row.does}, and no word of the rule names it"
    return ""


def _find_wrapper_danger(
    words: Sequence[str], start: int, stop: int, named: Sequence[str | None]
) -> str:
    for index in range(start + 1, stop):
        word = words[index]
        if named[index] is not None and (word.startswith("-") or ASSIGNMENT.match(word)):
            return f"{word!r} is an option of {words[start]!r}, and no word of the rule names it"
    return ""


def find_subcommand(words: Sequence[str], start: int) -> int:
    index = start + 1
    while index < len(words) and words[index].startswith(("-", "+")):
        index += 2 if words[index] in GIT_BEFORE_VALUED else 1
    return min(index, len(words))


def _find_subcommand_danger(
    words: Sequence[str], start: int, place: int, named: Sequence[str | None]
) -> str:
    program = program_name(words[start])
    for index in range(start + 1, place):
        if program == "git" and named[index] is not None and words[index] not in GIT_BEFORE:
            return f"{words[index]!r} before the subcommand, and no word of the rule names it"
    if place < len(words) and named[place] is not None:
        if words[place] not in SUBCOMMANDS[program]:
            return f"{program} {words[place]!r} must be named by the rule"
        return ""
    return ""


def is_caught(word: str, row: Caution, program: str) -> bool:
    if not word.startswith("-") and any(_is_held(part, word) for part in row.holding):
        return True
    if word.startswith(row.prefixes) or (
        # One dash or two are the same to some programs.
        word.startswith("--") and len(word) > 2 and word[1:].startswith(row.prefixes)
    ):
        return True
    if word.startswith("--"):
        name = word[2:].partition("=")[0]
        return bool(name) and any(option.startswith(name) for option in row.long)
    return word.startswith("-") and _has_letter(word[1:], row.short, VALUED.get(program, ""))


def _is_held(part: str, word: str) -> bool:
    text = word.casefold()
    if not part.isidentifier():
        return part in re.sub(r"[ \t]+", "", text)
    return re.search(rf"(?<!\w){part}(?!\w)", text) is not None


def _has_letter(cluster: str, wanted: str, valued: str) -> bool:
    for letter in cluster:
        if letter in wanted:
            return True
        if letter in valued:
            return False
    return False


def _find_untrusted(
    words: Sequence[str], start: int, named: Sequence[str | None], row: Trusted
) -> str:
    program = program_name(words[start])
    scripts: list[int] = []
    operands: list[int] = []
    index = start + 1
    while index < len(words):
        word = words[index]
        if word == "--":
            # Threat: what follows has the look of an option, and is a script or a file.
            operands.extend(range(index + 1, len(words)))
            break
        if not word.startswith("-") or word == "-":
            if index == start + 1 and row.programs[0] == "tar":
                # tar's first word is a cluster of options, with a dash or without.
                if named[index] is not None and not _allowed_option("-" + word, row)[0]:
                    return f"{word!r} is more than listing: {row.why}"
                index += 1
                continue
            operands.append(index)
            index += 1
            if row.stops:
                break
            continue
        allowed, takes_next, value = _allowed_option(word, row)
        if named[index] is not None and not allowed and "=" not in (named[index] or ""):
            return f"{word!r} is not covered by a wildcard: {row.why}"
        if value and row.script == "sed" and named[index] is not None:
            return f"{word!r} is not covered by a wildcard: {row.why}"
        if takes_next and row.script == "sed":
            scripts.append(index + 1)
        index += 2 if takes_next else 1
    return _find_operand_danger(words, named, row, operands, scripts, program)


def _find_operand_danger(
    words: Sequence[str],
    named: Sequence[str | None],
    row: Trusted,
    operands: list[int],
    scripts: list[int],
    program: str,
) -> str:
    covered = [index for index in operands if named[index] is not None]
    if covered and len(operands) > row.operands_max:
        return f"{program!r} with {len(operands)} operands: {row.why}"
    for index in covered:
        if any(part in words[index] for part in row.holding):
            return f"{words[index]!r}: {row.why}"
    if row.script and not scripts:
        scripts = operands[:1]
    judge = is_plain_sed if row.script == "sed" else is_plain_awk
    for index in scripts:
        if index < len(words) and named[index] is not None and not judge(words[index]):
            return f"{words[index]!r} is more than reading: {row.why}"
    return ""


def _allowed_option(word: str, row: Trusted) -> tuple[bool, bool, str]:
    if word.startswith("--"):
        name, _, value = word[2:].partition("=")
        return name in row.long, False, value
    for place, letter in enumerate(word[1:], 2):
        if letter in row.valued:
            return True, len(word) == place, word[place:]
        if letter not in row.short:
            return False, False, ""
    return True, False, ""
