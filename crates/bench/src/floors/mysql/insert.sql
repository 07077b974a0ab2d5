INSERT INTO lockkeeper_bench_floor (name) VALUES (?)
