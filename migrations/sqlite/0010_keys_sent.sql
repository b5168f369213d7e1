-- Nothing to do: on SQLite the index on what is in process costs a step little, so there is no list of what was sent.
SELECT 1;
