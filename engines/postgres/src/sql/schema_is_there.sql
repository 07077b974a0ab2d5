-- Whether a function or a table of this name is there, for us to see.
SELECT to_regclass(split_part($1, '(', 1)) IS NOT NULL OR (strpos($1, '(') > 0 AND to_regprocedure($1) IS NOT NULL)
