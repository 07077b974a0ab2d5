SELECT lockkeeper_shrink($1, $2, $3, $4, $5)
