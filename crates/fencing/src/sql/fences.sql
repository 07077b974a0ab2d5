-- A fence per resource: the largest token that has been here. BIGINT holds every token.
CREATE TABLE IF NOT EXISTS lockkeeper_fences (
    resource VARCHAR(255) NOT NULL PRIMARY KEY,
    token    BIGINT       NOT NULL
);
