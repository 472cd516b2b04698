//! Alipay's list of transactions.

use encoding_rs::GBK;
use time::macros::{date, datetime};

use super::{ALIPAY, Fault, Format, STRIPE, brief, try_read, zip_of_names};
use crate::channels::StatementKind::{Payment, Refund};
use crate::channels::StatementLine;

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

/// A title without a comma.
const PLAIN_TITLE: (&str, &str) = ("茶，绿, and `more`", "茶");
/// What the payment's shop is called, and the refund's.
const SHOP: (&str, &str) = ("16:01:38,\t,\t", "16:01:38,\t,一店, 东区\t");
const REFUNDS_SHOP: (&str, &str) = ("23:59:59,\t,\t", "23:59:59,\t,一店, 东区\t");
/// The coupon of both.
const COUPON: (&str, &str) = ("0.00,,0.00\t", "0.00,满减, 全场,0.00\t");

/// The list with other words in the places of its own.
fn read_with(words: &[(&str, &str)]) -> Result<Vec<StatementLine>, Fault> {
    let text = words.iter().fold(ALIPAY.to_owned(), |text, (own, other)| {
        assert!(text.contains(own), "{own}");
        text.replace(own, other)
    });
    try_read(Format::Alipay, date!(2026 - 06 - 05), &GBK.encode(&text).0)
}

#[test]
fn commas_in_the_name_of_a_shop_or_of_a_coupon_move_no_column() {
    let plain = read_with(&[]);
    assert_eq!(plain.as_ref().map(Vec::len), Ok(2));
    for words in [
        &[PLAIN_TITLE, SHOP][..],
        &[PLAIN_TITLE, REFUNDS_SHOP],
        &[PLAIN_TITLE, COUPON],
        &[PLAIN_TITLE, SHOP, REFUNDS_SHOP, COUPON],
        // The title has one too.
        &[SHOP],
        &[COUPON],
        &[SHOP, REFUNDS_SHOP, COUPON],
    ] {
        assert_eq!(read_with(words), plain, "{words:?}");
    }
}

#[test]
fn a_line_that_can_be_read_in_two_ways_is_read_where_both_say_the_same_and_refused_where_they_do_not() {
    let plain = read_with(&[]);
    // The blank before the comma may be the last amount before the coupon. Then each of them is the one right of it.
    let coupon = (COUPON.0, "0.00,, 全场,0.00\t");
    let received = ("88.80,88.80,", "88.80,80.00,");
    assert_eq!(read_with(&[PLAIN_TITLE, received]), plain);
    assert_eq!(read_with(&[PLAIN_TITLE, coupon]), plain);
    assert_eq!(read_with(&[PLAIN_TITLE, coupon, received]), Err(Fault::Malformed));
    // A blank cell left of the amount may be the amount.
    let shop = (REFUNDS_SHOP.0, "23:59:59,\t,一店,东区,二楼\t");
    assert_eq!(read_with(&[shop]), Err(Fault::Malformed));
    // Nothing tells where a request number with a comma begins and ends.
    assert_eq!(read_with(&[("rf_1\t", "rf,x\t")]), Err(Fault::Malformed));
}

#[test]
fn a_line_with_more_than_eight_commas_too_many_in_several_columns_is_refused() {
    let read_with_commas = |count| {
        let coupon = format!("-8.80,0.00,0.00,0.00,0.00,0.00,满{},", ",减".repeat(count));
        read_with(&[("-8.80,0.00,0.00,0.00,0.00,0.00,,", coupon.as_str())])
    };
    assert_eq!(read_with_commas(8), read_with(&[]));
    assert_eq!(read_with_commas(9), Err(Fault::Malformed));
}

#[test]
fn a_payment_of_a_negative_amount_is_refused_and_so_it_is_in_stripes_report() {
    let (own, day) = ("88.80,88.80,", date!(2026 - 06 - 05));
    assert_eq!(read_with(&[(own, "-88.80,88.80,")]), Err(Fault::Malformed));
    assert_eq!(read_with(&[(own, "-88.80,-88.80,")]), Err(Fault::Malformed));

    let own = "19.99,0.88,19.11,charge";
    assert!(STRIPE.contains(own));
    let report = STRIPE.replace(own, "-19.99,0.88,-20.87,charge");
    assert_eq!(try_read(Format::Stripe, day, report.as_bytes()), Err(Fault::Malformed));

    // As it was settled, and as the customer saw it.
    let head = "balance_transaction_id,created_utc,currency,gross,fee,net,reporting_category,source_id,\
                customer_facing_amount,customer_facing_currency,payment_intent_id,payment_metadata[payment_id],\
                refund_metadata[refund_id]";
    for (gross, seen, fault) in [
        ("21.37", "19.99", None),
        ("-21.37", "19.99", Some(Fault::Malformed)),
        ("21.37", "-19.99", Some(Fault::Malformed)),
    ] {
        let amounts = format!("usd,{gross},0.00,{gross},charge,ch_1,{seen},eur");
        let report = format!("{head}\ntxn_1,2026-06-05 00:00:01,{amounts},pi_1,po_1,\n");
        assert_eq!(try_read(Format::Stripe, day, report.as_bytes()).err(), fault, "{amounts}");
    }
}
