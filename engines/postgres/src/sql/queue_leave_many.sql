-- Leaves of many claims in one commit, in the order of their names and places; returns those that were there.
SELECT id FROM unnest($1::text[], $2::bigint[], $3::text[]) AS leaving (name, place, id)
WHERE lockkeeper_leave(name, place, id)
