-- Which claims of this keeper fit now: all that a wake can mean.
SELECT id, ahead FROM (
    SELECT id, bell, weight, room,
        CAST(SUM(weight) OVER (PARTITION BY name ORDER BY place ROWS UNBOUNDED PRECEDING) - weight AS SIGNED) AS ahead
    FROM lockkeeper_claims WHERE name IN ({names})
) AS queues
WHERE bell = '{bell}' AND ahead + weight <= room
