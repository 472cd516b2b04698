-- Who has a task is named by how often it was taken, which never goes back.
--
-- `attempts` does: a claim that tried nothing counts as none, and a task that a person revives begins anew. A worker that
-- had lost a task could so meet its own number again in the hands of another one.
ALTER TABLE compensations ADD COLUMN claims bigint NOT NULL DEFAULT 0;

-- Instances of the version before count no claims. As long as one of them runs, what it takes is counted here.
CREATE FUNCTION count_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.claims := OLD.claims + 1;
    RETURN NEW;
END
$$;
CREATE TRIGGER compensations_count_claim BEFORE UPDATE OF attempts ON compensations FOR EACH ROW
    WHEN (NEW.status = 'RUNNING' AND NEW.attempts > OLD.attempts AND NEW.claims = OLD.claims)
    EXECUTE FUNCTION count_claim();
