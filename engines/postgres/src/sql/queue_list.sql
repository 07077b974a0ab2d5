-- The live claims of the first $2 locks whose name begins with $1.
SELECT name, id, demand, holder, place,
    (extract(epoch FROM clock_timestamp() - joined_at) * 1000)::bigint AS age_ms,
    (extract(epoch FROM clock_timestamp() - granted_at) * 1000)::bigint AS held_ms,
    (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint AS left_ms
FROM lockkeeper_claims
WHERE expires_at > clock_timestamp() AND name IN (
    SELECT DISTINCT name FROM lockkeeper_claims
    WHERE name >= $1::text AND starts_with(name, $1) AND expires_at > clock_timestamp()
    ORDER BY name LIMIT $2::bigint
)
ORDER BY name, place
