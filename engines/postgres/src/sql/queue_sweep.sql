SELECT lockkeeper_sweep(name) FROM unnest($1::text[]) AS name
