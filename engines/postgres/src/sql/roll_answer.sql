SELECT pg_notify($1, line) FROM unnest($2::text[]) AS line
