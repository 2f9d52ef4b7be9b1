"""Governed packages: bundles of files that a plane takes only as they were declared.

    names        what packages and files may be called    versions   semantic versions
    manifest     what a package declares, and its identity
    archive      the one form of an archive, read whole, in memory
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
    rows, listing   what people and models see            refusals   gate and ownership
    recorded     what the ledger says is installed        vouching   signing the whole set
    bootstrap    the packages that a plane is made from   founding   all of them at once
    loading      whether the plane can be opened with it  stopped    what is left of one

The idea: an archive is read into a value before anything is asked, every question is
answered before anything is written, and then the plane changes as one set of its journal.
What decides that something happens once, or never again, is the packages ledger.

The face, each in the module that its name says: `load_archive`, `pack`, `write_hashes`,
`install`, `uninstall`, `approve`, `sign_installed_set`, `recover_packages`, `PlanePackages`,
`find_owner`; for gates `read_installed`, `check_package`, `find_graph_problems`,
`read_approvals`, `read_keys`, `verify_signature`, `read_registries`, `PackageLedger`,
`replay`, `find_deviations`, `read_vouched`.
Nothing is imported here: a runtime that asks for no package loads the port alone (`rows`).

Dangers: a package governs the plane, so a file too many is a hole. No package may bring a
key, an approval, a receipt or a ledger; no archive may say two things to two readers; and
whoever kills an install must not get half of one.
"""
