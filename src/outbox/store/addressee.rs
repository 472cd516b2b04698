//! Where merchants are told, and with which secrets.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError};

/// Where a merchant is told, and what proves that it is us.
#[derive(Debug)]
pub(in crate::outbox) struct Addressee {
    pub(in crate::outbox) merchant_id: String,
    pub(in crate::outbox) notify_url: Option<String>,
    /// Moves with every change of it.
    pub(in crate::outbox) version: i32,
    /// Encrypted.
    pub(in crate::outbox) notify_secret: Vec<u8>,
    /// Those that were replaced and still sign, the newest first.
    pub(in crate::outbox) retired: Vec<Vec<u8>>,
    /// Those of the endpoints in question that answered 410.
    pub(in crate::outbox) disabled: Vec<String>,
}

/// These merchants, as they are now, to be told at their own endpoint or at one of these of their orders.
pub(in crate::outbox) async fn find_addressees(
    conn: &mut Conn,
    merchants: &[String],
    urls: &[&str],
    now: OffsetDateTime,
) -> Result<Vec<Addressee>, DbError> {
    let addressees = sqlx::query_as!(
        Addressee,
        r#"SELECT merchant_id, notify_url, version, notify_secret,
                  ARRAY(SELECT sealed FROM retired_notify_secrets AS retired
                        WHERE retired.merchant_id = merchants.merchant_id AND retired.expires_at > $2
                        ORDER BY retired.expires_at DESC LIMIT 4) AS "retired!",
                  ARRAY(SELECT url FROM disabled_endpoints AS disabled
                        WHERE disabled.merchant_id = merchants.merchant_id
                          AND (disabled.url = merchants.notify_url OR disabled.url = ANY($3))) AS "disabled!"
           FROM merchants WHERE merchant_id = ANY($1)"#,
        merchants,
        now,
        urls as &[&str],
    )
    .fetch_all(conn)
    .await?;
    Ok(addressees)
}
