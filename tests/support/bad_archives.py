"""Archives that no plane may take: each is a good one, spoiled in one way."""

import functools
import io
import json
import struct
import tarfile
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from paddock.packages.archive import unwrap
from tests.support.packages import (
    Member,
    archive_bytes,
    gzipped,
    manifest_json,
    members_of,
    tar_bytes,
)

FILES: Final = {"HOT/kernel/a.txt": b"a\n", "HOT/kernel/b.txt": b"b\n"}
GOOD: Final = archive_bytes(FILES)
GOOD_TAR: Final = unwrap(GOOD)


def with_members(*more: Member, files: dict[str, bytes] | None = None, **fields) -> bytes:
    """The good archive, and what an attacker adds."""
    return gzipped(tar_bytes([*members_of(files or FILES, **fields), *more]))


def declaring(path: str, member: Member) -> bytes:
    """The attacker's file is declared too, with its right hash."""
    files = {**FILES, path: member.content}
    members = [each for each in members_of(files) if each.name != path]
    return gzipped(tar_bytes([*members, member]))


def named(path: str) -> bytes:
    return declaring(path, Member(path, b"evil\n"))


def of_kind(kind: bytes, link: str = "") -> bytes:
    """A member of another kind under a declared name."""
    return declaring("HOT/kernel/x", Member("HOT/kernel/x", b"", kind, link))


def spoiled(offset: int, piece: bytes, *, mend: bool = True) -> bytes:
    """The good tar with some bytes of its first header replaced, and its checksum made right."""
    tar = bytearray(GOOD_TAR)
    tar[offset : offset + len(piece)] = piece
    if mend:
        tar[148:156] = b" " * 8
        tar[148:156] = b"%06o\0 " % sum(tar[:512])
    return gzipped(bytes(tar))


def with_headers(form: int, headers: dict[str, str]) -> bytes:
    """Extended headers before a file: a second name, a second size."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, pax_headers={}) as tar:
        for member in members_of(FILES):
            info = tarfile.TarInfo(member.name)
            info.size = len(member.content)
            if member.name.endswith("a.txt"):
                info.pax_headers = headers
            tar.addfile(info, io.BytesIO(member.content))
    return gzipped(out.getvalue())


def global_header() -> bytes:
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"path": "../x"}
    ) as tar:
        for member in members_of(FILES):
            info = tarfile.TarInfo(member.name)
            info.size = len(member.content)
            tar.addfile(info, io.BytesIO(member.content))
    return gzipped(out.getvalue())


def long_name() -> bytes:
    name = "HOT/" + "/".join(["d" * 90] * 4)
    return gzipped(
        tar_bytes(
            [*members_of(FILES), Member(name, b"x")],
            tarfile.GNU_FORMAT,
        )
    )


def bomb(size_bytes: int) -> bytes:
    """A file of zeros, declared, that the limits do not allow."""
    compressing = zlib.compressobj(9, zlib.DEFLATED, 31)
    pieces = [compressing.compress(GOOD_TAR[: -len(GOOD_TAR) % 512 or None][:1024])]
    zeros = b"\0" * 1_000_000
    pieces += [compressing.compress(zeros) for _ in range(size_bytes // len(zeros))]
    return b"".join([*pieces, compressing.flush()])


def many_files() -> bytes:
    """More members than any package may have, declared or not."""
    members = [Member(f"HOT/kernel/{number:05}") for number in range(10_050)]
    return gzipped(tar_bytes([*members_of(FILES), *members]))


def manifest_saying(**fields) -> bytes:
    value = manifest_json(FILES) | fields
    text = json.dumps(value).encode()
    members = [
        replace(each, content=text) if each.name == "manifest.json" else each
        for each in members_of(FILES)
    ]
    return gzipped(tar_bytes(members))


def manifest_text(text: bytes) -> bytes:
    members = [
        replace(each, content=text) if each.name == "manifest.json" else each
        for each in members_of(FILES)
    ]
    return gzipped(tar_bytes(members))


def asset_saying(**fields) -> bytes:
    value = manifest_json(FILES)
    value["assets"][0] |= fields
    return manifest_text(json.dumps(value).encode())


def without(name: str) -> bytes:
    return gzipped(tar_bytes([each for each in members_of(FILES) if each.name != name]))


def with_content(name: str, content: bytes) -> bytes:
    members: Sequence[Member] = [
        replace(each, content=content) if each.name == name else each for each in members_of(FILES)
    ]
    return gzipped(tar_bytes(members))


def size_as_base256() -> bytes:
    return spoiled(124, b"\x80" + b"\0" * 10 + b"\x02")


def data_between() -> bytes:
    """Bytes in the padding behind a file's content: no listing shows them."""
    tar = bytearray(GOOD_TAR)
    tar[512 + 2 : 512 + 6] = b"evil"
    return gzipped(bytes(tar))


def wrong_length() -> bytes:
    return GOOD[:-4] + struct.pack("<I", 1)


def wrong_crc() -> bytes:
    return GOOD[:-8] + b"\0\0\0\0" + GOOD[-4:]


def one_byte_turned() -> bytes:
    """In a file's stored content: gzip's own checksum sees it."""
    at = GOOD.index(b"a\n" + b"\0" * 510)
    return GOOD[:at] + b"X" + GOOD[at + 1 :]


BAD: Final[dict[str, tuple[Callable[[], bytes], str]]] = {
    # Names that lead out
    "an absolute name": (lambda: named("/etc/cron.d/x"), "absolute"),
    "a name with ..": (lambda: with_members(Member("HOT/../../x", b"x")), "component"),
    "a name that begins with ..": (lambda: with_members(Member("../x", b"x")), "component"),
    "a name that is ..": (lambda: with_members(Member("..", b"x")), "component"),
    "a name that begins with ./": (
        lambda: with_members(Member("./HOT/kernel/c", b"x")),
        "component",
    ),
    "a doubled slash": (lambda: with_members(Member("HOT//kernel/c", b"x")), "component"),
    "an absolute name, undeclared": (lambda: with_members(Member("/tmp/x", b"x")), "absolute"),
    "a backslash": (lambda: with_members(Member("HOT\\kernel\\c", b"x")), "backslash"),
    "a drive letter with backslash": (lambda: with_members(Member("C:\\x", b"x")), "backslash"),
    "a control character": (lambda: with_members(Member("HOT/a\x1b[2J", b"x")), "control"),
    "a line break": (lambda: with_members(Member("HOT/a\nb", b"x")), "control"),
    "a direction override": (lambda: with_members(Member("HOT/\u202etxt.exe", b"x")), "control"),
    "a zero-width space": (lambda: with_members(Member("HOT/a\u200bb", b"x")), "control"),
    "a temporary name of Paddock's": (
        lambda: with_members(Member("HOT/.paddock-" + "0" * 32 + ".set", b"x")),
        "temporary",
    ),
    # Names that are one
    "a file twice": (lambda: with_members(Member("HOT/kernel/a.txt", b"a\n")), "twice"),
    "the manifest twice": (
        lambda: with_members(members_of(FILES)[0]),
        "twice",
    ),
    "two letter cases": (lambda: with_members(Member("HOT/kernel/A.txt", b"a\n")), "the same name"),
    "two letter cases of a directory": (
        lambda: with_members(Member("HOT/Kernel/c", b"a\n")),
        "the same name",
    ),
    "another manifest by letter case": (
        lambda: with_members(Member("MANIFEST.json", b"{}")),
        "manifest",
    ),
    "two Unicode forms": (
        lambda: with_members(Member("HOT/e\u0301", b"x"), Member("HOT/\u00e9", b"x")),
        "NFC",
    ),
    "a decomposed name alone": (lambda: with_members(Member("HOT/e\u0301", b"x")), "NFC"),
    "two Unicode cases": (
        lambda: with_members(Member("HOT/stra\u00dfe", b"x"), Member("HOT/STRASSE", b"x")),
        "the same name",
    ),
    "a file that is a directory too": (
        lambda: with_members(Member("HOT/kernel/a.txt/b", b"x")),
        "the same name",
    ),
    "a name that is not UTF-8": (lambda: spoiled(0, b"HOT/\xff\xfe\0"), "UTF-8"),
    # Members that are no files
    "a symbolic link out": (lambda: of_kind(tarfile.SYMTYPE, "/etc/passwd"), "symbolic link"),
    "a symbolic link inside": (lambda: of_kind(tarfile.SYMTYPE, "a.txt"), "symbolic link"),
    "a hard link": (lambda: of_kind(tarfile.LNKTYPE, "HOT/kernel/a.txt"), "hard link"),
    "a hard link out": (lambda: of_kind(tarfile.LNKTYPE, "/etc/shadow"), "hard link"),
    "a character device": (lambda: of_kind(tarfile.CHRTYPE), "device"),
    "a block device": (lambda: of_kind(tarfile.BLKTYPE), "device"),
    "a FIFO": (lambda: of_kind(tarfile.FIFOTYPE), "FIFO"),
    "a directory": (lambda: with_members(Member("HOT/kernel", b"", tarfile.DIRTYPE)), "directory"),
    "a contiguous file": (lambda: of_kind(tarfile.CONTTYPE), "contiguous"),
    "a file of the oldest format": (lambda: of_kind(tarfile.AREGTYPE), "oldest"),
    "a sparse file": (lambda: of_kind(tarfile.GNUTYPE_SPARSE), "sparse"),
    "a volume label": (lambda: of_kind(b"V"), "volume"),
    "an unknown kind": (lambda: of_kind(b"Z"), "unknown"),
    # Two readings of one header
    "a pax name": (lambda: with_headers(tarfile.PAX_FORMAT, {"path": "../../x"}), "pax"),
    "a pax size": (lambda: with_headers(tarfile.PAX_FORMAT, {"size": "0"}), "pax"),
    "a pax sparse map": (lambda: with_headers(tarfile.PAX_FORMAT, {"GNU.sparse.name": "x"}), "pax"),
    "a global pax header": (global_header, "pax"),
    "a long name of GNU tar": (long_name, "long|ustar"),
    "a base-256 size": (size_as_base256, "header"),
    "a size with spaces": (lambda: spoiled(124, b"         2 \0"), "header"),
    "the magic of GNU tar": (lambda: spoiled(257, b"ustar  \0"), "ustar"),
    "no magic": (lambda: spoiled(257, b"\0" * 8), "ustar"),
    "bytes behind the name's NUL": (lambda: spoiled(60, b"\0evil"), "header"),
    "a link target in a file's header": (lambda: spoiled(157, b"/etc/passwd"), "header"),
    "an owner": (lambda: spoiled(108, b"0001750\0"), "header"),
    "an owner's name": (lambda: spoiled(265, b"root\0"), "header"),
    "a time": (lambda: spoiled(136, b"00000000001\0"), "header"),
    "a device number": (lambda: spoiled(329, b"0000001\0"), "header"),
    "a prefix without need": (lambda: spoiled(345, b"HOT\0"), "header|declare|component"),
    "a setuid bit": (lambda: spoiled(100, b"0004755\0"), "mode"),
    "a mode for everybody": (lambda: spoiled(100, b"0000777\0"), "mode"),
    "a wrong checksum": (lambda: spoiled(148, b"000001\0 ", mend=False), "checksum"),
    "a header that is no header": (lambda: gzipped(b"evil" * 4000), "checksum"),
    # Where the archive begins and ends
    "no gzip": (lambda: GOOD_TAR, "gzip"),
    "nothing": (lambda: b"", "cut off|gzip"),
    "half a gzip": (lambda: GOOD[: len(GOOD) // 2], "cut off"),
    "gzip without its trailer": (lambda: GOOD[:-8], "cut off"),
    "a second gzip member": (lambda: GOOD + GOOD, "follow"),
    "bytes behind the gzip": (lambda: GOOD + b"evil", "follow"),
    "a zero byte behind the gzip": (lambda: GOOD + b"\0", "follow"),
    "a wrong CRC": (wrong_crc, "damaged"),
    "a wrong length": (wrong_length, "damaged"),
    "a byte turned": (one_byte_turned, "damaged"),
    "a tar without its end": (lambda: gzipped(tar_bytes(members_of(FILES))[:2560]), "cut off"),
    "a tar cut off in a file": (lambda: gzipped(GOOD_TAR[:515]), "cut off"),
    "half an end": (lambda: gzipped(GOOD_TAR.rstrip(b"\0").ljust(0) + b""), "cut off"),
    "a second tar behind the end": (lambda: gzipped(GOOD_TAR + GOOD_TAR), "follow"),
    "bytes behind the tar's end": (lambda: gzipped(GOOD_TAR + b"evil".ljust(512, b"\0")), "follow"),
    "bytes between files": (data_between, "follow"),
    "megabytes of padding": (lambda: gzipped(GOOD_TAR + b"\0" * 1_000_000), "follow"),
    # Too much
    "a bomb by ratio": (lambda: bomb(60_000_000), "bomb"),
    "a bomb by size": (lambda: bomb(140_000_000), "bomb"),
    "a bomb by count": (many_files, "more than"),
    # Not what is declared
    "an undeclared file": (lambda: with_members(Member("HOT/kernel/c.txt", b"c\n")), "declare"),
    "an undeclared hidden file": (lambda: with_members(Member("HOT/.c", b"c\n")), "declare"),
    "a declared file that is missing": (lambda: without("HOT/kernel/b.txt"), "missing"),
    "no manifest": (lambda: without("manifest.json"), "not in the archive"),
    "a manifest in a folder": (
        lambda: gzipped(tar_bytes([replace(members_of(FILES)[0], name="x/manifest.json")])),
        "not in the archive",
    ),
    "other content than declared": (lambda: with_content("HOT/kernel/a.txt", b"A\n"), "digest"),
    "a hash without prefix": (lambda: asset_saying(sha256="0" * 64), "digest"),
    "a hash in upper case": (lambda: asset_saying(sha256="sha256:" + "A" * 64), "digest"),
    "an empty hash": (lambda: asset_saying(sha256=""), "digest"),
    "a manifest that is no JSON": (lambda: manifest_text(b"{"), "JSON"),
    "a manifest with a key twice": (
        lambda: manifest_text(
            json.dumps(manifest_json(FILES))
            .replace('"layer": 1', '"layer": 1, "layer": 1')
            .encode()
        ),
        "twice",
    ),
    "a manifest with an unknown key": (lambda: manifest_saying(run="sh"), "unknown"),
    "a manifest that declares a path outside": (lambda: asset_saying(path="../x"), "component"),
    "a package id with a slash": (lambda: manifest_saying(package_id="PKG-A/../B"), "package id"),
    "an executable manifest": (
        lambda: gzipped(
            tar_bytes([replace(members_of(FILES)[0], mode=0o755), *members_of(FILES)[1:]])
        ),
        "mode",
    ),
}
"""What is wrong → how it is made, and what the refusal says."""


@functools.cache
def made() -> dict[str, bytes]:
    """All of them; two take half a second each."""
    return {what: make() for what, (make, _) in BAD.items()}
