-- What a channel lists of a stranger (a refund or a payout whose number is none of ours) is told apart by the channel's own number,
-- too: whoever gives money back at its console numbers what he gives back anew for each trade, and two of them were one
-- difference.
UPDATE reconciliation_items SET subject = concat_ws(' ', our_id, channel_id)
WHERE class = 'MISSING_HERE' AND kind <> 'PAYMENT' AND our_id <> '' AND channel_id <> '';
