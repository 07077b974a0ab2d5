UPDATE lockkeeper_counter SET boot = ?1 WHERE style = ?2 AND boot <> ?1;
