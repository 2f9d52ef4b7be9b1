"""The receipt: what an install left, written last, beside the manifest."""

from dataclasses import dataclass
from typing import Final

from paddock.packages.names import FILE_MODE, PROGRAM_MODE, is_digest, path_problem
from paddock.packages.signatures import Signature, parse_signature
from paddock.plane.strict_json import Fields, parse_object, write_object
from paddock.values.calls import Json

FORMAT: Final = 1
_KEYS: Final = frozenset(
    {
        "format",
        "package_id",
        "version",
        "digest",
        "archive",
        "transaction",
        "ledger_entry",
        "installed_at",
        "wo_id",
        "dev",
        "signature",
        "files",
        "handed_over",
    }
)
_MODES: Final = {"644": FILE_MODE, "755": PROGRAM_MODE}


@dataclass(frozen=True, slots=True)
class InstalledFile:
    """One file as the package brought it. Of `config` the content may be another by now."""

    path: str
    sha256: str
    mode: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one package came to in one plane."""

    package_id: str
    version: str
    digest: str
    archive: str
    transaction: str
    ledger_entry: str
    """The id of its entry in the packages ledger; empty in a draft."""
    installed_at: str
    wo_id: str | None
    """The approval that was used; None where the plane, or `--dev`, asked for none."""
    dev: bool
    signature: Signature | None
    files: tuple[InstalledFile, ...]

    def to_bytes(self) -> bytes:
        """As it stands in the plane."""
        return write_object(self.as_json())

    def as_json(self) -> dict[str, Json]:
        """All of it."""
        return {
            "format": FORMAT,
            "package_id": self.package_id,
            "version": self.version,
            "digest": self.digest,
            "archive": self.archive,
            "transaction": self.transaction,
            "ledger_entry": self.ledger_entry,
            "installed_at": self.installed_at,
            "wo_id": self.wo_id,
            "dev": self.dev,
            "signature": None if self.signature is None else self.signature.as_json(),
            "files": [
                {"path": each.path, "sha256": each.sha256, "mode": f"{each.mode:o}"}
                for each in self.files
            ],
            "handed_over": [],
        }


def parse_receipt(content: bytes, file: str) -> Receipt:
    """The receipt that `content` is. Raises: ConfigError."""
    fields = parse_object(content, file)
    fields.require_only(_KEYS)
    if fields.number("format") != FORMAT:
        raise fields.error("format", "the format is not known", f"this version reads {FORMAT}")
    if fields.tables("handed_over"):
        raise fields.error(
            "handed_over",
            "it took a file over from another package, and one file has one package",
            "uninstall it with the version of paddock that installed it",
        )
    signature = fields.members.get("signature")
    return Receipt(
        package_id=fields.text("package_id"),
        version=fields.text("version"),
        digest=_digest(fields, "digest"),
        archive=_digest(fields, "archive"),
        transaction=fields.text("transaction"),
        ledger_entry=fields.text("ledger_entry"),
        installed_at=fields.text("installed_at"),
        wo_id=fields.text_or_null("wo_id"),
        dev=_flag(fields, "dev"),
        signature=None if signature is None else parse_signature(fields.table("signature")),
        files=tuple(map(_file, fields.tables("files"))),
    )


def _file(fields: Fields) -> InstalledFile:
    fields.require_only(frozenset({"path", "sha256", "mode"}))
    return InstalledFile(_path(fields), _digest(fields, "sha256"), _mode(fields))


def _path(fields: Fields) -> str:
    path = fields.text("path")
    problem = path_problem(path)
    if problem:
        raise fields.error("path", problem, "a path of the plane")
    return path


def _digest(fields: Fields, name: str) -> str:
    text = fields.text(name)
    if not is_digest(text):
        raise fields.error(name, f"{name} is no digest", "sha256:…")
    return text


def _mode(fields: Fields) -> int:
    mode = _MODES.get(fields.text("mode"))
    if mode is None:
        raise fields.error("mode", "the mode is neither 644 nor 755", "one of them")
    return mode


def _flag(fields: Fields, name: str) -> bool:
    value = fields.members.get(name)
    if not isinstance(value, bool):
        raise fields.error(name, f"{name} is neither true nor false", "one of them")
    return value
