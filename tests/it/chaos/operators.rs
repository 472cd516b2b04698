//! Operators, who let a large refund go or keep it back.

use serde_json::json;

use super::life::Seller;

impl Seller {
    /// Somebody decides over a refund that waits for that; now and then two at once, who do not agree.
    pub async fn decide(&mut self, refund_no: &str) {
        let dice = self.chance.one_of(4);
        let decided = async |verb: &str| {
            let path = format!("/admin/refunds/{refund_no}/{verb}");
            self.post(&path, "", json!({"reason": "the weather"})).await;
        };
        match dice {
            0 => decided("reject").await,
            1 => drop(tokio::join!(decided("approve"), decided("reject"))),
            _ => decided("approve").await,
        }
    }
}
