INSERT INTO floor (lock, holder) VALUES (?1, 'floor')
