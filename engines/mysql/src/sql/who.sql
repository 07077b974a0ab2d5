SELECT CONNECTION_ID() AS connection, @@global.read_only AS read_only
