"""G0A: an archive holds exactly what its manifest declares.

Proves: nothing more and nothing missing; every hash well formed and right; every name safe,
and no two of them one file on some file system; one form of archive, which every reader
reads alike. It runs before every install, on the bytes that are then installed.

Cannot prove: who made the archive (G5), that anybody wants it (G2), or that what it holds is
any good (G4).
"""

from paddock.gates.names import G0A
from paddock.gates.results import GateResult, judged
from paddock.gates.tally import Tally
from paddock.packages.archive import read_archive
from paddock.packages.rows import ArchiveRefusedError

NO_ARCHIVE = "it looks at an archive, when that is installed: paddock package verify ARCHIVE"


def check(content: bytes) -> GateResult:
    """Judge the bytes of an archive. Raises nothing for what stands in them."""
    tally = Tally(G0A)
    try:
        archive = read_archive(content)
    except ArchiveRefusedError as refusal:
        tally.fail((refusal.failure,))
        return tally.result(NO_ARCHIVE)
    return judged(G0A, len(archive.files) + 1, (), NO_ARCHIVE)
