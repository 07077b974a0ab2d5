SELECT CONNECTION_ID(), @@global.read_only, DATABASE(), VERSION()
