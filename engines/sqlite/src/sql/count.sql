UPDATE lockkeeper_counter SET last = ?1 WHERE style = ?2;
