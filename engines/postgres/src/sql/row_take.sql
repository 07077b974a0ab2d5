SELECT o_token, o_free_in_ms FROM lockkeeper_row_take($1, $2, $3, $4, $5, $6, $7)
