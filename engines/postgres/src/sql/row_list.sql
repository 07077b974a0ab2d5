SELECT name, id, who, host, process, token,
    (extract(epoch FROM clock_timestamp() - locked_at) * 1000)::bigint AS age_ms,
    (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint AS left_ms
FROM lockkeeper_rows
WHERE name >= $1::text AND starts_with(name, $1) AND expires_at > clock_timestamp()
ORDER BY name LIMIT $2::bigint
