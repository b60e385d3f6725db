-- The shop's own table, and its outbox.

CREATE TABLE orders (
    order_id     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer     TEXT   NOT NULL,
    amount_cents BIGINT NOT NULL
);

CREATE TABLE outbox (
    row_id   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key      TEXT NOT NULL,
    payload  TEXT NOT NULL,
    -- The relay's number of the row, and the sequence id of its record. Null until the relay has seen the row.
    position BIGINT UNIQUE,
    sent_at  TIMESTAMP WITH TIME ZONE
);

CREATE INDEX outbox_unsent ON outbox (position, row_id) WHERE sent_at IS NULL;

-- One row: the highest position so far. It stays when sent rows are deleted from the outbox.
CREATE TABLE outbox_position (
    only_row      BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (only_row),
    last_position BIGINT NOT NULL
);

INSERT INTO outbox_position (last_position) VALUES (0);
