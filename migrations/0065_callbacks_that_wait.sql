-- What waits for its pay order is looked for every few minutes, among 90 days of callbacks of which most neither wait nor were
-- applied: an index of its own, in words of its own, so that nothing else is mistaken for it.

CREATE INDEX webhook_inbox_waiting ON webhook_inbox (received_at) WHERE coalesce(verdict, 'waits') = 'UNMATCHED';
