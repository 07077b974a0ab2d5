DELETE FROM lockkeeper_bench_floor WHERE name = ?
