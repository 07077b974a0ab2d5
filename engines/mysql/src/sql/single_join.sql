-- Takes locks that nobody uses: the claim stands in the lock's own row. For a single one the place comes back as the insert
-- id, and 0 if somebody stands there or in the queue.
--
-- Law 8: on a row that is there the place is raised under its lock; a row that is not there has had no place for a day.
-- Assignments are made from left to right, and `expires_at` decides, so it comes last.
INSERT INTO lockkeeper_locks
    (name, place, last_place, queued, id, demand, weight, room, permits, holder, bell, joined_at, expires_at)
VALUES {rows}
ON DUPLICATE KEY UPDATE
    place = IF(queued OR expires_at > VALUES(joined_at),
        place + LAST_INSERT_ID(0), LAST_INSERT_ID(GREATEST(last_place + 1, VALUES(place)))),
    last_place = IF(queued OR expires_at > VALUES(joined_at), last_place, place),
    id = IF(queued OR expires_at > VALUES(joined_at), id, VALUES(id)),
    demand = IF(queued OR expires_at > VALUES(joined_at), demand, VALUES(demand)),
    weight = IF(queued OR expires_at > VALUES(joined_at), weight, VALUES(weight)),
    room = IF(queued OR expires_at > VALUES(joined_at), room, VALUES(room)),
    permits = IF(queued OR expires_at > VALUES(joined_at), permits, VALUES(permits)),
    holder = IF(queued OR expires_at > VALUES(joined_at), holder, VALUES(holder)),
    bell = IF(queued OR expires_at > VALUES(joined_at), bell, VALUES(bell)),
    joined_at = IF(queued OR expires_at > VALUES(joined_at), joined_at, VALUES(joined_at)),
    expires_at = IF(queued OR expires_at > VALUES(joined_at), expires_at, VALUES(expires_at))
