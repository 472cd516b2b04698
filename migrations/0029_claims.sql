-- Who has a task is named by how often it was taken, which never goes back.
--
-- `attempts` does: a claim that tried nothing counts as none, and a task that a person revives begins anew. A worker that
-- had lost a task could so meet its own number again in the hands of another one.
ALTER TABLE compensations ADD COLUMN claims bigint NOT NULL DEFAULT 0;
