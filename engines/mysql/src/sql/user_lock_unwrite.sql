DELETE FROM lockkeeper_holds WHERE name = ? AND id = ?
