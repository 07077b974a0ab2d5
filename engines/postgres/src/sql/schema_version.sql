-- Which version of its tables and functions a style has. A program refuses to work with a newer version than it knows, and
-- replaces an older one.

CREATE TABLE IF NOT EXISTS lockkeeper_schema (
    style text PRIMARY KEY,
    version bigint NOT NULL
);
