"""Governed packages: bundles of files that a plane takes only as they were declared.

    rows            what people and models see of packages, and why one is refused
    manifest        names, versions, what a package declares, what stands on what
    archive         the one form of an archive: reading it whole, making it, hashing a source
    signing         operators' keys, signatures, approvals
    installed       receipts, what is installed, registries, whose a file becomes; what loads
    ledger          what the packages ledger says, and where the plane says something else
    change          what an act works with; from acts to one set of changes, made or completed
    vouching        approving a package, signing the set; G5 and G2 before an install
    install         install, upgrade, uninstall, list
    bootstrap       the packages that a plane is made from; founding one, of all at once

An archive is read into a value before anything is asked, every question is answered before
anything is written, and then the plane changes as one set of its journal. What decides that
something happens once, or never again, is the packages ledger.

Nothing is imported here: a runtime that asks for no package loads the port alone (`rows`).

Dangers: a package governs the plane, so a file too many is a hole. No package may bring a
key, an approval, a receipt or a ledger; no archive may say two things to two readers; and
whoever kills an install must not get half of one.
"""
