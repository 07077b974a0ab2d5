DELETE FROM floor WHERE lock = ?1
