-- A hold whose work passes what can be set aside: who only writes reports to the broker hears it as an event, once.

-- Whether more was once wanted than there was; its event is told with the first such report.
ALTER TABLE usage_holds ADD COLUMN exhausted boolean NOT NULL DEFAULT false;
