(?, {key}, ?, ?, ?, SYSDATE(6) - INTERVAL ? MICROSECOND, ?)
