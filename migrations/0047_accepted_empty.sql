-- A statement without a line, where something moved here, is compared if an operator says that it is right: the channel has
-- nothing of it.

-- Of the file that the day was begun with last, and of no other: whoever begins it anew says it anew.
ALTER TABLE reconciliations ADD COLUMN accepts_empty boolean NOT NULL DEFAULT false;
