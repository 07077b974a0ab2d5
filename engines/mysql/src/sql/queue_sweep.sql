CALL lockkeeper_sweep(?)
