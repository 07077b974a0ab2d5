-- The session of another program that has the advisory lock of this name ($1), which is not one of a keeper.
SELECT lock.pid, coalesce(nullif(session.application_name, ''), session.usename, '') AS who,
    coalesce(session.client_hostname, host(session.client_addr), '') AS host
FROM pg_locks AS lock JOIN pg_stat_activity AS session USING (pid)
WHERE lock.locktype = 'advisory' AND lock.objsubid = 1 AND lock.granted
    AND lock.classid::bigint = (hashtextextended($1::text, 0) >> 32) & 4294967295
    AND lock.objid::bigint = hashtextextended($1::text, 0) & 4294967295
    AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND session.application_name IS DISTINCT FROM current_setting('application_name')
LIMIT 1
