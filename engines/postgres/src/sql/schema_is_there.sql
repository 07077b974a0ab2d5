-- Whether a function of this signature, or a table of this name, is there for us to see.
SELECT CASE WHEN strpos($1, '(') > 0 THEN to_regprocedure($1) IS NOT NULL ELSE to_regclass($1) IS NOT NULL END
