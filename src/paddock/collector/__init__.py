"""Collect the ledgers of many hosts in one PostgreSQL database, and verify them on acceptance.

    chains      values stored per host, and judging whether an offer continues them. Pure. The store
                port, implemented by `PostgresStore`
    postgres    the tables, their permissions, and every query
    accept      accept each offer completely or not at all; verify the whole store again

Each host and ledger has one chain, and nothing spans two chains, so hosts never wait for each
other. A host can only send an *offer*; a process of the collector (`paddock collector accept`)
verifies it with the key that a person enrolled.

Threat: a compromised host would skip a check that ran on it. Only accepting an offer writes
entries; hosts have no permissions on the tables of entries.
"""
