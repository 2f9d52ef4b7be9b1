"""Governed packages: bundles of files that a plane takes only as they were declared.

    manifest     what packages and files may be called               semantic versions
    manifest     what a package declares, and its identity
    archive      the one form of an archive, read whole, in memory
                   making an archive, writing hashes                   `compute_sha256`
    signing      operators' Ed25519 keys                  vouching
    installed    specs and frameworks                                what an install left
    installed    what is installed                                   what stands on what
                   whose a file becomes (pure)                         is it still as it was brought
                   the gates before an install: G5, G2      ledger     what the ledger says
    swap         from acts to one set of changes                     bytes as such a set takes them
    transaction             a change on its way, on disk  change     one change at a time
                   completing it, undoing it                install
                   what they work with                      the port of a package s tests
    rows, listing   what people and models see                       gate and ownership
                   what the ledger says is installed        vouching   signing the whole set
    bootstrap    the packages that a plane is made from   founding   all of them at once
                   whether the plane can be opened with it             what is left of one

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
