-- An order is paid when we hear of it or before, and after it was made, whatever its channel's clock says: by that age it is
-- settled. What was heard by instances of the version before stays as the channel said, but for what a run would settle yet.

UPDATE orders SET paid_at = least(greatest(paid_at, created_at), updated_at)
WHERE settle_status = 'UNSETTLED' AND kind = 'SALE' AND status IN ('PAID', 'PARTIALLY_REFUNDED')
  AND (paid_at < created_at OR paid_at > updated_at);
