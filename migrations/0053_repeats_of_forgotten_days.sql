-- Which day's statement lists the other one of what is there twice, unless its own does: as long as that day is forgotten,
-- nobody can say that it is none any more. Of what was found before it is known once both days are compared again.
ALTER TABLE reconciliation_items
    ADD COLUMN also_listed_by text COLLATE "C",
    ADD CONSTRAINT reconciliation_items_repeats_what_is_listed
        CHECK (also_listed_by IS NULL OR class = 'DUPLICATE') NOT VALID;
