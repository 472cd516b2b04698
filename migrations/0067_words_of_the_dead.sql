-- Whoever looks for the tasks of one thing that were given up says no word by which a plan could walk all of them by their numbers.

DROP INDEX compensations_dead;
CREATE INDEX compensations_dead ON compensations (id) WHERE coalesce(status, 'id') = 'DEAD';
