SELECT o_place, o_ahead, o_free_in_ms, o_ruling FROM lockkeeper_join($1, $2, $3, $4, $5, $6, $7, $8, $9)
