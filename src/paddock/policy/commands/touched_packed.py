"""The files that programs make which pack, unpack or dump one file: gzip and its like, xxd.

Their words name the file that is read; what is written has its name with another end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from paddock.policy.commands.touch import Touch, all_below, has_pattern


@dataclass(frozen=True, slots=True)
class Packer:
    """What a program puts behind a name; its letters that take a value; whether it unpacks."""

    suffix: str
    valued: str = ""
    unpacks: bool = False


PACKERS: Final = {
    "gzip": Packer(".gz", "Sb"),
    "gunzip": Packer(".gz", "Sb", unpacks=True),
    "bzip2": Packer(".bz2"),
    "bunzip2": Packer(".bz2", unpacks=True),
    "xz": Packer(".xz", "SFCTM"),
    "unxz": Packer(".xz", "SFCTM", unpacks=True),
    "lzma": Packer(".lzma", "SFCTM"),
    "unlzma": Packer(".lzma", "SFCTM", unpacks=True),
    "zstd": Packer(".zst", "oD"),
    "unzstd": Packer(".zst", "oD", unpacks=True),
}
_PACKING: Final = ("--compress",)
_UNPACKING: Final = ("--decompress", "--uncompress")
_READING: Final = ("--test", "--list")
_TO_OUTPUT: Final = ("--stdout", "--to-stdout")
_LONG_VALUED: Final = ("--suffix", "--output-dir-flat", "--output-dir-mirror")
_UNDASHED: Final = ("-gz", "-z", "_z", "-Z")
"""Ends without a dot that gzip takes off."""
_TARS: Final = ("tgz", "taz", "tbz", "tbz2", "txz", "tlz", "tzst")
_XXD_VALUED: Final[dict[str, tuple[str, ...]]] = {
    "c": ("ols",),
    "g": ("roup",),
    "l": ("en",),
    "n": ("ame",),
    "o": ("ffset",),
    "s": ("kip", "eek"),
    "R": (),
}
"""Letters of xxd that take a word, and what their long names go on with."""
_UNTOLD: Final = "what is packed or unpacked gets names that the words of the line do not tell"


def of_packer(name: str, words: Sequence[str]) -> Touch:
    """What is written for each file: itself, as it goes, and its name with or without the end."""
    packer = PACKERS[name]
    letters, longs, values, operands = _read(words, packer.valued)
    suffixes = [value for option, value in values if option in ("-S", "--suffix")]
    places = [value for option, value in values if option[:3] in ("-o", "--o")]
    touch = Touch(written=[*operands, *places])
    is_recursive = "r" in letters or _has(longs, ("--recursive",))
    if is_recursive:
        touch.copied = [all_below(each) for each in operands]
    # Of several the last holds for some programs: one that only reads does not hold for sure.
    decompresses = "d" in letters or _has(longs, _UNPACKING)
    only_reads = not {"t", "l"}.isdisjoint(letters) or _has(longs, _READING)
    if "c" in letters or _has(longs, _TO_OUTPUT) or (only_reads and not decompresses):
        return touch
    unpacks = packer.unpacks or decompresses
    if not unpacks or "z" in letters or _has(longs, _PACKING):
        for suffix in suffixes or [packer.suffix]:
            touch.written += [f"{each}{suffix}" for each in operands]
    if unpacks:
        touch.written += [path for each in operands for path in _unpacked(each, suffixes)]
    takes_stored_name = "N" in letters or _has(longs, ("--name",))
    is_untold = is_recursive or takes_stored_name or any(map(has_pattern, operands))
    if (unpacks and is_untold) or _has(longs, _LONG_VALUED[1:]):
        touch.doubts.append(_UNTOLD)
    return touch


def of_xxd(words: Sequence[str]) -> Touch:
    """The second operand. Options of xxd have several letters, and some take a word."""
    operands: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            operands += left
            break
        if not word.startswith("-") or word == "-":
            operands.append(word)
            continue
        option = word[2:] if word.startswith("--") else word[1:]
        # As xxd looks at them: the letter, then nothing, or what begins like the long name.
        long = _XXD_VALUED.get(option[:1])
        if long is not None and (option[1:] == "" or option[1:].startswith(long)) and left:
            left.pop(0)
    return Touch(written=operands[1:2])


def _unpacked(operand: str, suffixes: Sequence[str]) -> list[str]:
    """Return the names that a file may have without its end."""
    ends = (*suffixes, *_UNDASHED)
    found = [operand.removesuffix(end) for end in ends if end and operand.endswith(end)]
    stem, dot, end = operand.rpartition(".")
    if dot and "/" not in end:
        found += [stem, f"{stem}.tar"] if end in _TARS else [stem]
    return [each for each in found if each and not each.endswith("/")]


def _read(
    words: Sequence[str], valued: str
) -> tuple[str, list[str], list[tuple[str, str]], list[str]]:
    """Return the letters, the long options, the options with their values, the operands."""
    letters, longs = "", list[str]()
    values, operands = list[tuple[str, str]](), list[str]()
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            operands += left
            break
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            longs.append(name)
            wanted = [each for each in _LONG_VALUED if name[3:] and each.startswith(name)]
            if wanted:
                values.append((wanted[0], value if equals or not left else left.pop(0)))
        elif word.startswith("-") and word != "-":
            for place, letter in enumerate(word[1:], 2):
                letters += letter
                if letter in valued:
                    values.append((f"-{letter}", word[place:] or (left.pop(0) if left else "")))
                    break
        else:
            operands.append(word)
    return letters, longs, values, operands


def _has(longs: Sequence[str], wanted: tuple[str, ...]) -> bool:
    return any(option.startswith(each) for each in longs if each[3:] for option in wanted)
