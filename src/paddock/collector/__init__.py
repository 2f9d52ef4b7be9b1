"""The collector: the ledgers of many hosts in one PostgreSQL, checked when they are taken in.

    chains      what is kept of a host, and whether an offer goes on from it. Pure. The port that
                keeps it: `PostgresStore`, and the fake `MemoryCollector`
    postgres    the tables, who may do what to them, and every query
    accept      offers, taken in whole or not at all; all that is kept, verified again

One chain for each host and ledger, and nothing that spans two of them: hosts push, and are
taken in, without waiting for each other.

A host can only lay down an *offer*. What an offer says is judged by the collector's own
process (`paddock collector accept`), against the key that a person enrolled.

Threat: a check that ran on the pushing host would be one that a broken-in host leaves out.
Nothing here may write an entry but `accepting`, and hosts get no right to the tables of entries.
"""
