SELECT connection FROM lockkeeper_holds WHERE name = ? AND id = ? AND IS_USED_LOCK(user_lock) = connection
