SELECT last, boot, layout FROM lockkeeper_counter WHERE style = ?1;
