-- Joins of many claims in one commit, in the order of their names.
SELECT joining.id, found.o_place, found.o_ahead, found.o_free_in_ms, found.o_ruling
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $9::bigint[])
    AS joining (name, id, demand, weight, room, permits, holder, ttl_ms),
    LATERAL lockkeeper_join(joining.name, joining.id, joining.demand, joining.weight, joining.room, joining.permits,
        joining.holder, $8::text, joining.ttl_ms) AS found
