//! Metered work: money is held for it, its usage reported, and in the end charged, let go, or forgotten.

use serde_json::json;

use super::life::Seller;

impl Seller {
    pub async fn meter(&mut self, mark: &str, user: &str) {
        let key = format!("H-{mark}");
        let expires_in = if self.one_in(4) { 1 } else { 900 };
        let hold = json!({"request_id": key, "user_id": user, "product_code": "tokens", "idempotency_key": key,
                          "currency": "CNY", "estimated_units": 1 + self.chance.one_of(40), "expires_in": expires_in});
        let held = self.post("/usage/holds", &key, hold).await.reply();
        let Some(hold_id) = held["hold_id"].as_str() else { return };
        let mut units = 0;
        for part in 0..self.chance.one_of(3) {
            units += self.chance.one_of(30);
            let message = format!("{key}-{part}");
            let report = json!({"message_id": message, "cumulative_units": units});
            self.post(&format!("/usage/holds/{hold_id}/progress"), &message, report).await;
        }
        if units > 0 && self.one_in(4) {
            // Fewer than were reported are not charged.
            let fewer = json!({"units": units - 1});
            self.post(&format!("/usage/holds/{hold_id}/confirm"), &format!("{key}-fewer"), fewer).await;
        }
        let (last, at_the_end) = (format!("{key}-end"), self.chance.one_of(5));
        match at_the_end {
            // It runs out.
            0 => return,
            1 => self.post(&format!("/usage/holds/{hold_id}/release"), &last, json!({})).await,
            2 => self.post(&format!("/usage/holds/{hold_id}/confirm"), &last, json!({})).await,
            _ => {
                let actual = json!({"units": units + self.chance.one_of(10)});
                self.post(&format!("/usage/holds/{hold_id}/confirm"), &last, actual).await
            }
        };
    }
}
