-- Who holds for longer than a moment. What is older than what is there comes too late.
INSERT INTO lockkeeper_holds (name, user_lock, id, holder, connection, since, token)
VALUES {rows}
ON DUPLICATE KEY UPDATE
    user_lock = IF(VALUES(token) > token, VALUES(user_lock), user_lock),
    id = IF(VALUES(token) > token, VALUES(id), id),
    holder = IF(VALUES(token) > token, VALUES(holder), holder),
    connection = IF(VALUES(token) > token, VALUES(connection), connection),
    since = IF(VALUES(token) > token, VALUES(since), since),
    token = GREATEST(token, VALUES(token))
