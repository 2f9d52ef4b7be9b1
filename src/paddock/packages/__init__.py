"""Governed packages: bundles of files that a plane accepts only exactly as declared.

    rows            packages as people and models see them, and refusals
    manifest        what a package declares: names, versions, places, dependencies
    archive         the archive format: read it, create it, hash a source
    signing         operators' keys, signatures, approvals
    installed       receipts and registries; the owner of a file; whether configuration loads
    ledger          the packages ledger, and where the plane deviates from it
    change          one set of changes: planned, committed, completed after a crash; its lock
    statements      approve a package, sign the set; G5 and G2 before an install
    install         install, upgrade, uninstall, list
    bootstrap       the packages of a new plane; install all of them at once

A change that a killed command left is completed first. Then the archive is read into a value, every
check passes before anything is written, and the plane changes as one set of its journal. The
packages ledger decides what counts only once (an approval) or never again (an older version).

Nothing is imported here: a runtime that uses no packages loads only `rows`.

Dangers: a package governs the plane, so one extra file is a hole. No package may contain a key, an
approval, a receipt or a ledger; no archive may mean two things to two readers; and a killed
install must not leave half a package.
"""
