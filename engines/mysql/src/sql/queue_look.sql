-- One look for all claims of a keeper that wait.
SELECT id, name, ahead, CAST(TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), first_expiry) AS SIGNED) AS free_in_us
FROM (
    SELECT id, name,
        CAST(COALESCE(SUM(weight) OVER (PARTITION BY name ORDER BY place ROWS UNBOUNDED PRECEDING), 0) - weight
            AS SIGNED) AS ahead,
        MIN(expires_at) OVER (PARTITION BY name ORDER BY place ROWS UNBOUNDED PRECEDING) AS first_expiry
    FROM lockkeeper_claims WHERE name IN ({names})
) AS queues
WHERE id IN ({ids})
