//! WeChat Pay's trade bill.

use time::macros::{date, datetime};

use super::{Format, WECHAT, brief, try_read};
use crate::channels::StatementKind::{Other, Payment, Refund};

#[test]
fn wechats_bill_is_read_whatever_its_titles_hold() {
    let lines = try_read(Format::Wechat, date!(2021 - 01 - 28), WECHAT.as_bytes()).unwrap();
    assert_eq!(
        brief(&lines),
        [
            (Payment, "po_1", "4200000925202101284997714292", 1234, 1, true),
            (Refund, "rf_1", "5030", 200, 0, false),
        ]
    );
    assert_eq!(lines[0].at, datetime!(2021-01-28 09:07:11 UTC));
}

#[test]
fn a_refund_that_wechat_did_not_make_is_no_movement_and_stands_in_its_total() {
    for (state, kind, is_final) in [
        ("SUCCESS", Refund, true),
        ("PROCESSING", Refund, false),
        ("FAIL", Other, false),
        ("CLOSED", Other, false),
        ("ABNORMAL", Other, false),
    ] {
        let bill = WECHAT.replace("`PROCESSING", &format!("`{state}"));
        assert_eq!(bill == WECHAT, state == "PROCESSING");
        let lines = try_read(Format::Wechat, date!(2021 - 01 - 28), bill.as_bytes()).unwrap();
        assert_eq!(brief(&lines)[1], (kind, "rf_1", "5030", 200, 0, is_final), "{state}");
    }
}
