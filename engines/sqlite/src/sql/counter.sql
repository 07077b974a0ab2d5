SELECT horizon, base, boot, layout FROM lockkeeper_counter WHERE style = ?1;
