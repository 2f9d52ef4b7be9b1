"""Governed packages: bundles of files that a plane takes only as they were declared.

    names        what packages and files may be called    versions   semantic versions
    manifest     what a package declares, and its identity
    tarformat, gzipformat   the one form of an archive    archive    reading it whole, in memory
    packing      making an archive, writing hashes        hashing    `compute_sha256`
    keys         operators' Ed25519 keys                  signatures, approvals, approving
    registries   specs and frameworks                     receipts   what an install left
    installed    what is installed                        order      what stands on what
    ownership    whose a file becomes (pure)              checking   is it still as it was brought
    judging      the gates before an install: G5, G2      log        what the ledger says
    swapping     from acts to one set of changes          contents   bytes as such a set takes them
    transaction, attic      a change on its way, on disk  changing   one change at a time
    finishing    completing it, undoing it                install, uninstall, reports
    depot        what they work with                      acceptance the port of a package's tests
    listing      what people and models see               refusals   gate and ownership

The idea: an archive is read into a value before anything is asked, every question is
answered before anything is written, and then the plane changes as one set of its journal.
What decides that something happens once, or never again, is the packages ledger.

The face: `load_archive`, `pack`, `write_hashes`, `install`, `uninstall`, `approve`,
`recover_packages`, `PlanePackages`, `find_owner`; for gates `read_installed`,
`check_package`, `find_graph_problems`, `read_approvals`, `approval_problem`, `read_keys`,
`verify_signature`, `read_registries` and `PackageLedger`.

Dangers: a package governs the plane, so a file too many is a hole. No package may bring a
key, an approval, a receipt or a ledger; no archive may say two things to two readers; and
whoever kills an install must not get half of one.
"""

from paddock.packages.acceptance import AcceptanceResult, AcceptanceRunner
from paddock.packages.approving import Approved, approve
from paddock.packages.archive import Archive, load_archive, read_archive
from paddock.packages.changing import recover_packages
from paddock.packages.depot import Depot
from paddock.packages.hashing import compute_sha256
from paddock.packages.install import InstallWish, install
from paddock.packages.installed import InstalledPackage, InstalledSet, read_installed
from paddock.packages.manifest import Acceptance, Asset, Manifest, parse_manifest
from paddock.packages.order import find_graph_problems, install_order
from paddock.packages.packing import pack, write_hashes
from paddock.packages.refusals import (
    ArchiveRefusedError,
    Failure,
    GateRefusedError,
    OwnershipRefusedError,
)
from paddock.packages.reports import Report
from paddock.packages.uninstall import uninstall

__all__ = [
    "Acceptance",
    "AcceptanceResult",
    "AcceptanceRunner",
    "Approved",
    "Archive",
    "ArchiveRefusedError",
    "Asset",
    "Depot",
    "Failure",
    "GateRefusedError",
    "InstallWish",
    "InstalledPackage",
    "InstalledSet",
    "Manifest",
    "OwnershipRefusedError",
    "Report",
    "approve",
    "compute_sha256",
    "find_graph_problems",
    "install",
    "install_order",
    "load_archive",
    "pack",
    "parse_manifest",
    "read_archive",
    "read_installed",
    "recover_packages",
    "uninstall",
    "write_hashes",
]
