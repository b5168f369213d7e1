-- Nothing to do: what `json_valid` accepts, every function of SQLite reads.
SELECT 1;
