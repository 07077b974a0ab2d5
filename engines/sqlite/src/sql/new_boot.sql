UPDATE lockkeeper_counter SET boot = ?1, base = ?2 WHERE style = ?3;
