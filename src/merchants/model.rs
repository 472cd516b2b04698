//! The words and rows of merchants.

use time::OffsetDateTime;

use crate::ids::MerchantId;
use crate::infra::words::words;
use crate::refunds::StrayPolicy;

words! {
    /// What a key allows.
    pub enum KeyKind {
        /// `sk_…`: everything of its merchant.
        Secret = "SECRET",
        /// `pk_…`: to ask for a pay URL, and to look at it.
        Publishable = "PUBLISHABLE",
    }
}

/// A merchant to create.
#[derive(Clone, Debug)]
pub struct NewMerchant {
    /// Its id.
    pub merchant_id: MerchantId,
    /// Its name, for people.
    pub name: String,
    /// What it wants done with stray money.
    pub stray_money: StrayPolicy,
    /// Where its events go.
    pub notify_url: Option<String>,
    /// Refunds above this many minor units wait for approval.
    pub refund_approval_above: Option<i64>,
}

/// A merchant as it stands.
#[derive(Clone, Debug)]
pub struct Merchant {
    /// Its id.
    pub merchant_id: MerchantId,
    /// Its name.
    pub name: String,
    /// What it wants done with stray money.
    pub stray_money: StrayPolicy,
    /// Where its events go.
    pub notify_url: Option<String>,
    /// Refunds above this many minor units wait for approval.
    pub refund_approval_above: Option<i64>,
    /// When it was created.
    pub created_at: OffsetDateTime,
}

/// A key of a merchant's, as far as it can be told after it was shown.
#[derive(Clone, Debug, serde::Serialize, utoipa::ToSchema)]
pub struct ApiKey {
    /// Its number; a page starts after one.
    #[schema(example = 7)]
    pub key_id: i64,
    /// What it allows.
    pub kind: KeyKind,
    /// Its first characters, to tell it from others.
    #[schema(example = "sk_8QJ2")]
    pub hint: String,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it ends, or has ended, since it was replaced.
    #[serde(with = "time::serde::rfc3339::option")]
    pub expires_at: Option<OffsetDateTime>,
    /// Whether it works now.
    pub works: bool,
}

/// A thing on sale and how many there are.
#[derive(Clone, Debug, serde::Serialize, utoipa::ToSchema)]
pub struct SkuStock {
    /// Whose.
    pub merchant_id: String,
    /// Its name.
    pub sku: String,
    /// How many there are, those held for pending orders included.
    pub stock: i64,
    /// How many are held for pending orders.
    pub lock_stock: i64,
}
