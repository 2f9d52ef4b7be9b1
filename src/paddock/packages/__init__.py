"""Governed packages: bundles of files that a plane takes only as they were declared.

    rows            what people and models see of packages, and why one is refused
    manifest        what a package declares: names, versions, places, dependencies
    archive         the one form of an archive: reading it whole, making it, hashing a source
    signing         operators' keys, signatures, approvals
    installed       receipts and registries, read; who owns a file; whether configuration loads
    ledger          what the packages ledger says, and where the plane says something else
    change          one set of changes: planned, committed, completed after a crash; its lock
    statements      approving a package, signing the set; G5 and G2 before an install
    install         install, upgrade, uninstall, list
    bootstrap       the packages that a plane is made from; founding one, of all at once

What a killed command left is completed first. Then an archive is read into a value, every
check passes before anything is written, and the plane changes as one set of its journal. What
counts once (an approval) or never again (an older version) is decided by the packages ledger.

Nothing is imported here: a runtime that asks for no package loads `rows` alone.

Dangers: a package governs the plane, so a file too many is a hole. No package may bring a
key, an approval, a receipt or a ledger; no archive may say two things to two readers; and
whoever kills an install must not get half of one.
"""
