CREATE TABLE IF NOT EXISTS lockkeeper_bench_floor (name text PRIMARY KEY);
