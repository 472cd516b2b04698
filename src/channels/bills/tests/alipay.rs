//! Alipay's list of transactions.

use encoding_rs::GBK;
use time::macros::{date, datetime};

use super::{ALIPAY, Fault, Format, brief, try_read, zip_of_names};
use crate::channels::StatementKind::{Payment, Refund};

#[test]
fn alipays_list_is_read_as_gbk_and_in_its_zip() {
    let day = date!(2026 - 06 - 05);
    let (gbk, ..) = GBK.encode(ALIPAY);
    let lines = try_read(Format::Alipay, day, &gbk).unwrap();
    let trade = "2026060522001419931441931972";
    assert_eq!(
        brief(&lines),
        [(Payment, "po_1", trade, 8880, 53, true), (Refund, "rf_1", &format!("{trade}:rf_1"), 880, -5, true)]
    );
    assert_eq!(lines[1].at, datetime!(2026-06-05 15:59:59 UTC));

    // The member that sums up comes first here, and but for its name it is like the other.
    let names = ["20887_20260605_业务明细(汇总).csv", "20887_20260605_业务明细.csv"];
    let in_gbk = names.map(|name| GBK.encode(name).0.into_owned());
    let in_utf8 = names.map(|name| name.as_bytes().to_vec());
    for [sums, details] in [in_gbk, in_utf8] {
        let zipped = zip_of_names(&[(&sums, &gbk), (&details, &gbk)]);
        assert_eq!(try_read(Format::Alipay, day, &zipped), Ok(lines.clone()), "{details:?}");
        assert_eq!(try_read(Format::Alipay, day, &zipped[..zipped.len() / 2]), Err(Fault::Truncated));
    }
}

#[test]
fn refunds_of_one_trade_that_alipay_lists_without_a_number_of_ours_are_told_apart() {
    let made = ALIPAY.lines().find(|line| line.contains("rf_1")).expect("a refund");
    let blank = made.replace("rf_1", "");
    let list = |amounts: [&str; 2]| {
        let lines = amounts.map(|amount| blank.replace("8.80", amount)).join("\r\n");
        let text = ALIPAY.split("#交易合计").next().expect("a list").replace(made, &lines);
        let lines = try_read(Format::Alipay, date!(2026 - 06 - 05), &GBK.encode(&text).0).unwrap();
        lines
            .into_iter()
            .filter(|line| line.our_id.is_empty())
            .map(|line| line.channel_id)
            .collect::<Vec<_>>()
    };
    let ids = list(["8.80", "3.00"]);
    assert!(ids.len() == 2 && ids[0] != ids[1], "{ids:?}");
    assert_eq!(list(["8.80", "3.00"]), ids);
}
