"""The tables of a collector, and what a host that pushes may do to them.

Entries, checkpoints, enrolled keys and refusals are only ever added: a trigger refuses all
else, for everybody who does not own the tables and take the trigger away. A role that pushes
may lay offers down, for any host, and look at the progress of every host: that of its own
offers, and how far each chain was taken in. It reads nothing else, and it cannot say in whose
name an offer came: `sender` is the database's word.

Threat: such a role may keep a transaction open, and with it locks on `offers`, `parts` and
`progress`. What is there already is therefore not touched, with no lock that they stop; all
else has a limit (`lock_timeout`).
"""

from typing import Final, LiteralString

SCHEMA: Final[LiteralString] = """
CREATE SCHEMA IF NOT EXISTS paddock_collector;
SET LOCAL search_path TO paddock_collector, pg_temp;

CREATE TABLE IF NOT EXISTS chains (
    host text NOT NULL,
    ledger text NOT NULL,
    tier text NOT NULL,
    origin text NOT NULL,
    key text NOT NULL,
    PRIMARY KEY (host, ledger)
);
CREATE TABLE IF NOT EXISTS entries (
    host text NOT NULL,
    ledger text NOT NULL,
    seq bigint NOT NULL CHECK (seq >= 0),
    line bytea NOT NULL,
    PRIMARY KEY (host, ledger, seq),
    FOREIGN KEY (host, ledger) REFERENCES chains
);
CREATE TABLE IF NOT EXISTS checkpoints (
    host text NOT NULL,
    ledger text NOT NULL,
    size bigint NOT NULL CHECK (size > 0),
    root bytea NOT NULL,
    leaf text NOT NULL,
    edge bytea NOT NULL,
    note text NOT NULL,
    accepted timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (host, ledger, size),
    FOREIGN KEY (host, ledger) REFERENCES chains
);
CREATE TABLE IF NOT EXISTS offers (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch uuid NOT NULL,
    sender text NOT NULL DEFAULT session_user,
    host text NOT NULL,
    ledger text NOT NULL,
    start bigint NOT NULL,
    stop bigint NOT NULL,
    note text NOT NULL CHECK (octet_length(note) <= 16384),
    UNIQUE (sender, batch)
);
CREATE TABLE IF NOT EXISTS parts (
    sender text NOT NULL DEFAULT session_user,
    batch uuid NOT NULL,
    part bigint NOT NULL,
    lines bytea NOT NULL CHECK (octet_length(lines) <= 8388608),
    PRIMARY KEY (sender, batch, part),
    FOREIGN KEY (sender, batch) REFERENCES offers (sender, batch) ON DELETE CASCADE
);
CREATE TABLE IF NOT EXISTS refusals (
    number bigint PRIMARY KEY,
    sender text NOT NULL,
    host text NOT NULL,
    ledger text NOT NULL,
    start bigint NOT NULL,
    stop bigint NOT NULL,
    note text NOT NULL,
    code text NOT NULL,
    message text NOT NULL,
    refused timestamptz NOT NULL DEFAULT clock_timestamp()
);

DO $$
BEGIN
-- Threat: an index has no room for a long name, so an offer with one could be neither refused
-- nor taken. No host and no ledger is enrolled under one.
IF NOT EXISTS (SELECT FROM pg_constraint WHERE conname = 'offers_names'
        AND conrelid = 'offers'::regclass) THEN
    DELETE FROM offers WHERE octet_length(host) > 63 OR octet_length(ledger) > 63;
    ALTER TABLE offers ADD CONSTRAINT offers_names
        CHECK (octet_length(host) <= 63 AND octet_length(ledger) <= 63);
END IF;
IF NOT EXISTS (SELECT FROM pg_attribute WHERE attname = 'edge'
        AND attrelid = 'offers'::regclass) THEN
    ALTER TABLE offers ADD COLUMN edge bytea NOT NULL DEFAULT ''
        CHECK (octet_length(edge) <= 2048);
END IF;
IF to_regclass('refusals_of') IS NULL THEN
    CREATE INDEX refusals_of ON refusals (host, ledger, code, number);
END IF;
IF to_regclass('offers_of') IS NULL THEN
    CREATE INDEX offers_of ON offers (host, ledger, stop);
END IF;
IF to_regclass('progress') IS NULL THEN
CREATE VIEW progress AS
SELECT chain.host, chain.ledger,
    coalesce(newest.size, 0) AS accepted,
    coalesce((
        SELECT max(stop) FROM offers
        WHERE (host, ledger, sender) = (chain.host, chain.ledger, session_user)
    ), 0) AS waiting,
    coalesce((
        SELECT code FROM refusals
        WHERE (host, ledger, sender) = (chain.host, chain.ledger, session_user)
            AND refused > coalesce(newest.accepted, '-infinity')
        ORDER BY number DESC LIMIT 1
    ), '') AS refused
FROM chains AS chain
LEFT JOIN LATERAL (
    SELECT size, accepted FROM checkpoints
    WHERE (host, ledger) = (chain.host, chain.ledger)
    ORDER BY size DESC LIMIT 1
) AS newest ON true;
END IF;
END
$$;

CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are only ever added', TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON chains
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON checkpoints
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON refusals
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
"""
"""PostgreSQL 14 or newer. Again over what is there already it changes nothing."""

GRANTS: Final[tuple[LiteralString, ...]] = (
    "GRANT USAGE ON SCHEMA paddock_collector TO {}",
    "GRANT SELECT ON paddock_collector.progress TO {}",
    "GRANT INSERT (batch, host, ledger, start, stop, note, edge) ON paddock_collector.offers TO {}",
    "GRANT INSERT (batch, part, lines) ON paddock_collector.parts TO {}",
)
"""What a role that pushes gets, and nothing else."""
