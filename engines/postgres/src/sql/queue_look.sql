-- One look for all claims of a keeper that wait ($1 their locks, $2 their ids).
SELECT id, name, ahead, ceil(extract(epoch FROM first_expiry - clock_timestamp()) * 1000)::bigint AS free_in_ms
FROM (
    SELECT id, name, coalesce(sum(weight) OVER queue, 0)::bigint AS ahead, min(expires_at) OVER queue AS first_expiry
    FROM lockkeeper_claims WHERE name = ANY ($1::text[])
    WINDOW queue AS (PARTITION BY name ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
) AS queues
WHERE id = ANY ($2::text[])
