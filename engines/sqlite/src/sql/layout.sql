SELECT layout FROM lockkeeper_counter WHERE style = ?1;
