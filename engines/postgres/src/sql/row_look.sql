-- Who has it, for one who did not get it: its own hold (Law 4: a second attempt finds it), or when it expires.
SELECT CASE WHEN id = $2::text THEN token END AS token,
    ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint AS free_in_ms
FROM lockkeeper_rows WHERE name = $1::text
