-- The next place or token: larger than the last one, and than what a power cut may have undone (the clock has moved on).
UPDATE lockkeeper_counter SET last = max(last + 1, ?1) WHERE style = ?2 AND boot = ?3 RETURNING last;
