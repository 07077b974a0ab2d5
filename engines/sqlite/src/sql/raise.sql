UPDATE lockkeeper_counter SET horizon = ?1 WHERE style = ?2;
