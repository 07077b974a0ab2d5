SELECT lockkeeper_leave($1, $2, $3)
