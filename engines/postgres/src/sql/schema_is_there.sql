-- Whether a function of this signature is there, for us to see.
SELECT to_regprocedure($1) IS NOT NULL
