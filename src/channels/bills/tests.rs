//! The formats against files as their channels write them, and against the ways in which files go wrong.

use std::io::{Cursor, Write};

use encoding_rs::GBK;
use time::macros::date;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;
use crate::channels::StatementKind;

mod alipay;
mod wechat;

const WECHAT: &str = "\u{feff}交易时间,公众账号ID,商户号,特约商户号,设备号,微信订单号,商户订单号,用户标识,交易类型,交易状态,付款银行,货币种类,应结订单金额,代金券金额,微信退款单号,商户退款单号,退款金额,充值券退款金额,退款类型,退款状态,商品名称,商户数据包,手续费,费率,订单金额,申请退款金额,费率备注\r
`2021-01-28 17:07:11,`wx81be3101902f7cb2,`1601959334,`0,`,`4200000925202101284997714292,`po_1,`ofyak5qR,`NATIVE,`SUCCESS,`OTHERS,`CNY,`0.01,`0.00,`0,`0,`0.00,`0.00,`,`,`tea, `green`,`and more,`cipher code,`0.00600,`1.00%,`12.34,`0.00,`\r
`2021-01-28 18:00:00,`wx81be3101902f7cb2,`1601959334,`0,`,`4200000925202101284997714292,`po_1,`ofyak5qR,`NATIVE,`REFUND,`OTHERS,`CNY,`0.00,`0.00,`5030,`rf_1,`0.00,`0.00,`ORIGINAL,`PROCESSING,`tea,`,`-0.00300,`1.00%,`0.00,`2.00,`\r
总交易单数,应结订单总金额,退款总金额,充值券退款总金额,手续费总金额,订单总金额,申请退款总金额\r
`2,`0.01,`0.00,`0.00,`0.00000,`12.34,`2.00\r
";

const ALIPAY: &str = "#支付宝业务明细查询\r
#账号：[20887226827483540156]\r
#起始日期：[2026年06月05日 00:00:00]   终止日期：[2026年06月06日 00:00:00]\r
#-----------------------------------------业务明细列表----------------------------------------\r
支付宝交易号,商户订单号,业务类型,商品名称,创建时间,完成时间,门店编号,门店名称,操作员,终端号,对方账户,订单金额（元）,商家实收（元）,支付宝红包（元）,集分宝（元）,支付宝优惠（元）,商家优惠（元）,券核销金额（元）,券名称,商家红包消费金额（元）,卡消费金额（元）,退款批次号/请求号,服务费（元）,分润（元）,备注\r
2026060522001419931441931972\t,po_1\t,交易\t,茶，绿, and `more`,2026-06-05 16:01:34,2026-06-05 16:01:38,\t,\t,\t,\t,**博(156******89)\t,88.80,88.80,0.00,0.00,0.00,0.00,0.00,,0.00\t,0.00,\t,-0.53,0.00,a, remark\r
2026060522001419931441931972\t,po_1\t,退款\t,茶,2026-06-05 16:01:34,2026-06-05 23:59:59,\t,\t,\t,\t,**博(156******89)\t,-8.80,-8.80,0.00,0.00,0.00,0.00,0.00,,0.00\t,0.00,rf_1\t,0.05,0.00,\r
#-----------------------------------------业务明细列表结束------------------------------------\r
#交易合计：1笔，订单金额共88.80元，商家实收共88.80元\r
#退款合计：1笔，订单金额共-8.80元\r
#导出时间：[2026年06月06日 09:10:00]\r
";

const STRIPE: &str = "balance_transaction_id,created_utc,available_on,currency,gross,fee,net,reporting_category,source_id,description,payment_intent_id,payment_metadata[payment_id],refund_metadata[refund_id]
txn_1,2026-06-05 00:00:01,2026-06-07,usd,19.99,0.88,19.11,charge,ch_1,\"Order 1, \"\"tea\"\"
on two lines\",pi_1,po_1,
txn_2,2026-06-05 10:00:00,2026-06-07,jpy,-500,0,-500,refund,re_1,,pi_2,po_2,rf_2
txn_3,2026-06-05 11:00:00,2026-06-07,usd,5.00,0.00,5.00,refund_failure,re_3,,pi_3,po_3,rf_3
txn_4,2026-06-05 12:00:00,2026-06-07,kwd,-1.230,0.000,-1.230,payout,po_9,,,,
";

const SANDBOX: &str = "#statement,sandbox,2026-06-05
kind,our_id,channel_id,amount,currency,at,fee
PAYMENT,po_1,txn_1,1990,CNY,2026-06-05T10:00:00Z,7
PAYOUT,wd_1,so_1,10,CNY,2026-06-05T23:59:59Z,0
#end,2,2000
";

/// The lines of a file, or what is wrong with it.
pub(super) fn try_read(format: Format, day: Date, file: &[u8]) -> Result<Vec<StatementLine>, Fault> {
    let mut lines = Vec::new();
    let outcome = read_file(format, day, Cursor::new(file), &mut |line| {
        lines.push(line);
        ControlFlow::Continue(())
    });
    match outcome {
        Ok(()) => Ok(lines),
        Err(ReadError::Bad(bad)) => Err(bad.fault),
        Err(error) => panic!("{error}"),
    }
}

fn brief(lines: &[StatementLine]) -> Vec<(StatementKind, &str, &str, i64, i64, bool)> {
    lines
        .iter()
        .map(|l| (l.kind, l.our_id.as_str(), l.channel_id.as_str(), l.amount, l.fee, l.is_final))
        .collect()
}

#[test]
fn a_zip_of_more_files_than_any_channel_sends_is_refused_before_their_names_are_read() {
    let (day, (gbk, ..)) = (date!(2026 - 06 - 05), GBK.encode(ALIPAY));
    let read = |others: u32| {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        zip.start_file("list.csv", stored).unwrap();
        zip.write_all(&gbk).unwrap();
        for number in 0..others {
            zip.start_file(number.to_string(), stored).unwrap();
        }
        try_read(Format::Alipay, day, &zip.finish().unwrap().into_inner())
    };
    assert_eq!(read(99), try_read(Format::Alipay, day, &gbk));
    // One too many, and so many that their number takes 64 bits.
    for others in [100, 70_000] {
        assert_eq!(read(others), Err(Fault::Malformed), "{others}");
    }
}

#[test]
fn what_is_wrong_is_told_in_words_that_can_be_kept_whatever_they_repeat() {
    let bad =
        BadStatement::new(Fault::Malformed, format!("of kind {:?}{}", "a\u{0}b", "\u{0}\n字".repeat(1_000)));
    assert!(bad.detail.starts_with("of kind") && bad.detail.ends_with('字'), "{bad}");
    assert_eq!((bad.detail.chars().count(), bad.detail.contains(char::is_control)), (500, false));
}

/// A zip whose members have these bytes for names, and that does not say how they are written.
fn zip_of_names(members: &[(&[u8], &[u8])]) -> Vec<u8> {
    let stand_in = |place: usize, name: &[u8]| place.to_string().repeat(name.len()).into_bytes();
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (place, (name, content)) in members.iter().enumerate() {
        let stand_in = String::from_utf8(stand_in(place, name)).unwrap();
        zip.start_file(stand_in, SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    let mut zipped = zip.finish().unwrap().into_inner();
    for (place, (name, _)) in members.iter().enumerate() {
        let stand_in = stand_in(place, name);
        let is_it = |at: &usize| zipped[*at..].starts_with(&stand_in);
        let places: Vec<usize> = (0..zipped.len()).filter(is_it).collect();
        // Before its content, and in the table at the end.
        assert_eq!(places.len(), 2);
        for at in places {
            zipped[at..at + name.len()].copy_from_slice(name);
        }
    }
    zipped
}

#[test]
fn stripes_report_is_read_by_the_places_of_each_currency() {
    use StatementKind::{Other, Payment, Refund, RefundReversal};
    let lines = try_read(Format::Stripe, date!(2026 - 06 - 05), STRIPE.as_bytes()).unwrap();
    assert_eq!(
        brief(&lines),
        [
            (Payment, "po_1", "pi_1", 1999, 88, true),
            (Refund, "rf_2", "re_1", 500, 0, true),
            (RefundReversal, "rf_3", "re_3", 500, 0, true),
            (Other, "po_9", "txn_4", -1230, 0, true),
        ]
    );
    let codes: Vec<_> = lines.iter().map(|line| line.currency.as_str()).collect();
    assert_eq!(codes, ["USD", "JPY", "USD", "KWD"]);
}

#[test]
fn a_debit_that_a_bank_turned_down_goes_back_under_no_number_of_ours() {
    let back = "usd,5.00,0.00,5.00,refund_failure,re_3,,pi_3,po_3,rf_3";
    let failed = "usd,-5.00,0.00,-5.00,charge_failure,pyr_3,,pi_3,po_3,";
    assert!(STRIPE.contains(back));
    let report = STRIPE.replace(back, failed);
    let lines = try_read(Format::Stripe, date!(2026 - 06 - 05), report.as_bytes()).unwrap();
    assert_eq!(brief(&lines)[2], (StatementKind::Refund, "", "pyr_3", 500, 0, true));
}

#[test]
fn what_a_stripe_customer_paid_in_another_currency_is_ours_and_what_it_was_settled_for_is_not() {
    use StatementKind::{Other, Payment, Refund};
    let report = "\
balance_transaction_id,created_utc,currency,gross,fee,net,reporting_category,source_id,customer_facing_amount,customer_facing_currency,payment_intent_id,payment_metadata[payment_id],refund_metadata[refund_id]
txn_1,2026-06-05 00:00:01,usd,21.37,0.92,20.45,charge,ch_1,19.99,eur,pi_1,po_1,
txn_2,2026-06-05 10:00:00,usd,-3.30,0.00,-3.30,refund,re_1,-500,jpy,pi_2,po_2,rf_2
txn_3,2026-06-05 11:00:00,usd,5.00,0.30,4.70,charge,ch_3,5.00,usd,pi_3,po_3,
txn_4,2026-06-05 12:00:00,usd,5.00,0.30,4.70,charge,ch_4,,,pi_4,po_4,
txn_5,2026-06-05 13:00:00,usd,-40.00,0.00,-40.00,payout,bank_5,,,,,
";
    let lines = try_read(Format::Stripe, date!(2026 - 06 - 05), report.as_bytes()).unwrap();
    assert_eq!(
        brief(&lines),
        [
            (Payment, "po_1", "pi_1", 1999, 0, true),
            (Other, "po_1", "txn_1", 0, 92, true),
            (Refund, "rf_2", "re_1", 500, 0, true),
            (Payment, "po_3", "pi_3", 500, 30, true),
            (Payment, "po_4", "pi_4", 500, 30, true),
            (Other, "bank_5", "txn_5", -4000, 0, true),
        ]
    );
    let codes: Vec<_> = lines.iter().map(|line| line.currency.as_str()).collect();
    assert_eq!(codes, ["EUR", "USD", "JPY", "USD", "USD", "USD"]);
    let unknown = report.replace(",eur,", ",euro,");
    assert_eq!(try_read(Format::Stripe, date!(2026 - 06 - 05), unknown.as_bytes()), Err(Fault::Currency));
}

#[test]
fn a_stripe_charge_without_an_intent_is_a_payment_by_its_charge_and_spoils_no_other() {
    use StatementKind::Payment;
    let report = STRIPE.replace(
        "txn_2,",
        "txn_5,2026-06-05 09:00:00,2026-06-07,usd,7.00,0.30,6.70,charge,ch_5,an invoice of before,,,
txn_2,",
    );
    let lines = try_read(Format::Stripe, date!(2026 - 06 - 05), report.as_bytes()).unwrap();
    let payments = &brief(&lines)[..2];
    assert_eq!(payments, [(Payment, "po_1", "pi_1", 1999, 88, true), (Payment, "", "ch_5", 700, 30, true)]);
    assert_eq!(lines.len(), 5);
    // Without either there is nothing that it could be told by.
    let nameless = report.replace("charge,ch_5,", "charge,,");
    assert_eq!(try_read(Format::Stripe, date!(2026 - 06 - 05), nameless.as_bytes()), Err(Fault::Malformed));
}

#[test]
fn a_title_with_times_of_its_own_moves_no_column_and_one_that_is_a_whole_line_is_refused() {
    let day = date!(2026 - 06 - 05);
    let read_with = |title: &str| {
        let text = ALIPAY.replace("茶，绿, and `more`", title);
        try_read(Format::Alipay, day, &GBK.encode(&text).0)
    };
    let plain = read_with("茶").unwrap();
    let times = "2026-06-05 10:00:00,2026-06-05 10:00:01";
    for title in
        [format!("茶,{times}"), format!("{times},茶"), format!("{times},{times}"), format!("茶,{times},,")]
    {
        assert_eq!(read_with(&title), Ok(plain.clone()), "{title}");
    }
    // Nor do those that no calendar has.
    for year in ["-9999", "9999", "-2026", "+2026"] {
        let title = format!("茶,{year}-01-01 00:00:00,{year}-12-31 23:59:59");
        assert_eq!(read_with(&title), Ok(plain.clone()), "{title}");
    }
    // The amounts that would count are the customer's own words.
    let whole = format!("茶,{times},,,,,x,0.01,0.01,0.00,0.00,0.00,0.00,0.00,,0.00,0.00,,0.00,0.00");
    assert_eq!(read_with(&whole), Err(Fault::Malformed));
}

#[test]
fn a_title_that_says_that_the_list_ends_does_not_end_it() {
    let day = date!(2026 - 06 - 05);
    let list = ALIPAY.split("#交易合计").next().expect("a list without totals");
    for text in [ALIPAY, list] {
        let read_with = |title: &str| {
            let text = text.replace("茶，绿, and `more`", title);
            try_read(Format::Alipay, day, &GBK.encode(&text).0)
        };
        let plain = read_with("茶");
        assert_eq!(plain.as_ref().map(Vec::len), Ok(2));
        assert_eq!(read_with("业务明细列表结束"), plain);
        assert_eq!(read_with("#----业务明细列表结束----,"), plain);
    }
}

#[test]
fn of_several_lists_in_a_zip_the_one_with_the_transactions_is_read() {
    let day = date!(2026 - 06 - 05);
    let (gbk, ..) = GBK.encode(ALIPAY);
    let (flow, ..) = GBK.encode("#支付宝账务明细查询\r\n#账号：[2088]\r\n");
    let (sums, ..) = GBK.encode("#支付宝业务汇总查询\r\n");
    let zip = |members: &[(&str, &[u8])]| {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in members {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.finish().unwrap().into_inner()
    };
    let plain = try_read(Format::Alipay, day, &gbk);
    let (details, account, summary) = (("a.csv", &*gbk), ("b.csv", &*flow), ("c.csv", &*sums));
    for members in [[details, account, summary], [summary, account, details], [account, details, summary]] {
        assert_eq!(try_read(Format::Alipay, day, &zip(&members)), plain, "{members:?}");
    }
    let twice = zip(&[details, ("d.csv", &gbk)]);
    assert_eq!(try_read(Format::Alipay, day, &twice), Err(Fault::OtherChannel), "one of them must be wrong");
    assert_eq!(try_read(Format::Alipay, day, &zip(&[account, summary])), Err(Fault::OtherChannel));
}

#[test]
fn the_sandboxs_csv_is_read() {
    use StatementKind::{Payment, Payout};
    let lines = try_read(Format::Sandbox, date!(2026 - 06 - 05), SANDBOX.as_bytes()).unwrap();
    assert_eq!(
        brief(&lines),
        [(Payment, "po_1", "txn_1", 1990, 7, true), (Payout, "wd_1", "so_1", 10, 0, true)]
    );
}

#[test]
fn whoever_has_enough_stops_the_reading() {
    let mut count = 0;
    let outcome = read(Format::Sandbox, date!(2026 - 06 - 05), SANDBOX.as_bytes(), &mut |_| {
        count += 1;
        ControlFlow::Break(())
    });
    assert!(matches!(outcome, Err(ReadError::Stopped)) && count == 1);
}

#[test]
fn what_is_wrong_with_a_file_has_a_name() {
    let (wechat_day, day) = (date!(2021 - 01 - 28), date!(2026 - 06 - 05));
    let gbk = |text: &str| GBK.encode(text).0.into_owned();
    let cases: Vec<(Format, Date, Vec<u8>, Fault)> = vec![
        (Format::Wechat, wechat_day, b"".to_vec(), Fault::OtherChannel),
        (Format::Wechat, wechat_day, gbk(WECHAT), Fault::Encoding),
        (Format::Wechat, wechat_day, STRIPE.into(), Fault::OtherChannel),
        (
            Format::Wechat,
            wechat_day,
            WECHAT.replace("`12.34,`2.00", "`12.35,`2.00").into(),
            Fault::WrongTotal,
        ),
        (Format::Wechat, wechat_day, WECHAT.replace("`2,`0.01,", "`3,`0.01,").into(), Fault::WrongTotal),
        (Format::Wechat, wechat_day, WECHAT.split("总交易单数").next().unwrap().into(), Fault::Truncated),
        (Format::Wechat, wechat_day, WECHAT.replace("`CNY", "`YUAN").into(), Fault::Currency),
        (Format::Wechat, wechat_day, WECHAT.replace("`CNY", "`USD").into(), Fault::Currency),
        (
            Format::Wechat,
            wechat_day,
            WECHAT.replace("`12.34,`0.00,", "`12,34,`0.00,").into(),
            Fault::Malformed,
        ),
        (Format::Wechat, day, WECHAT.into(), Fault::OtherDay),
        (Format::Alipay, day, ALIPAY.into(), Fault::Encoding),
        (Format::Alipay, day, gbk(&ALIPAY.replace("06月05日", "06月04日")), Fault::OtherDay),
        (
            Format::Alipay,
            day,
            gbk(ALIPAY.split("#-----------------------------------------业务明细列表结束").next().unwrap()),
            Fault::Truncated,
        ),
        (Format::Alipay, day, gbk(&ALIPAY.replace("#交易合计：1笔", "#交易合计：2笔")), Fault::WrongTotal),
        (Format::Alipay, day, gbk(&ALIPAY.replace("共88.80元", "共88.81元")), Fault::WrongTotal),
        (Format::Alipay, day, gbk(&ALIPAY.replace(",88.80,88.80,", ",8x,88.80,")), Fault::Malformed),
        (Format::Stripe, day, STRIPE.replace("0.88,19.11", "0.88,19.12").into(), Fault::WrongTotal),
        (Format::Stripe, day, STRIPE.replace(",usd,", ",usdt,").into(), Fault::Currency),
        (Format::Stripe, day, STRIPE.replace("-500,0,-500", "-500.5,0,-500.5").into(), Fault::Malformed),
        (Format::Stripe, day, STRIPE[..STRIPE.len() - 8].into(), Fault::Truncated),
        (Format::Stripe, day, STRIPE[..STRIPE.len() - 1].into(), Fault::Truncated),
        // Each cell is there, and the last one would be another refund.
        (Format::Stripe, day, STRIPE.split("_2\ntxn_3").next().unwrap().into(), Fault::Truncated),
        (Format::Stripe, date!(2026 - 06 - 07), STRIPE.into(), Fault::OtherDay),
        (Format::Sandbox, day, SANDBOX.replace("#end,2,2000\n", "").into(), Fault::Truncated),
        (Format::Sandbox, day, SANDBOX.replace("#end,2,2000", "#end,2").into(), Fault::Truncated),
        (Format::Sandbox, day, SANDBOX.replace("2000", "2001").into(), Fault::WrongTotal),
        (Format::Sandbox, day, SANDBOX.replace("PAYOUT", "GIFT").into(), Fault::Malformed),
        (Format::Sandbox, day, SANDBOX.replace("1990", "0").into(), Fault::Malformed),
        (Format::Sandbox, date!(2026 - 06 - 06), SANDBOX.into(), Fault::OtherDay),
        (Format::Sandbox, day, SANDBOX.replace("sandbox", "stripe").into(), Fault::OtherChannel),
        (Format::Sandbox, day, SANDBOX.replace("1990", "1000000000001").into(), Fault::Malformed),
        (Format::Sandbox, day, SANDBOX.replace("1990", "9223372036854775807").into(), Fault::Malformed),
        (Format::Sandbox, day, SANDBOX.replace("txn_1", "txn\0").into(), Fault::Malformed),
        (Format::Sandbox, day, SANDBOX.replace("txn_1", &"x".repeat(129)).into(), Fault::Malformed),
        (Format::Sandbox, day, SANDBOX.replace("txn_1", "").into(), Fault::Malformed),
        (Format::Sandbox, day, [SANDBOX.as_bytes(), b"\xff"].concat().replace_end(), Fault::Encoding),
    ];
    for (format, day, file, fault) in cases {
        let shown: String = String::from_utf8_lossy(&file).chars().take(60).collect();
        assert_eq!(try_read(format, day, &file), Err(fault), "{format}: {shown}");
    }
}

/// A source that never ends; its second part is how much of it was read.
struct Endless<'a>(&'a [u8], usize);

impl std::io::Read for Endless<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if !self.0.is_empty() {
            return self.0.read(into);
        }
        into.fill(b'x');
        self.1 += into.len();
        assert!(self.1 < 1 << 20, "it takes more and more");
        Ok(into.len())
    }
}

impl std::io::Seek for Endless<'_> {
    fn seek(&mut self, _: std::io::SeekFrom) -> std::io::Result<u64> {
        Ok(0)
    }
}

#[test]
fn a_quote_that_is_never_closed_takes_no_more_memory() {
    let head = b"    #statement,sandbox,2026-06-05\n\"";
    let outcome = read_file(Format::Sandbox, date!(2026 - 06 - 05), Endless(head, 0), &mut |_| {
        ControlFlow::Continue(())
    });
    assert!(matches!(&outcome, Err(ReadError::Bad(bad)) if bad.fault == Fault::Malformed), "{outcome:?}");
}

/// What fails in that way wherever it is read, as a file does that is read from the database.
struct Failing(std::io::ErrorKind);

impl std::io::Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(self.0.into())
    }
}

impl std::io::Seek for Failing {
    fn seek(&mut self, _: std::io::SeekFrom) -> std::io::Result<u64> {
        Ok(0)
    }
}

#[test]
fn what_is_not_there_or_makes_no_sense_is_malformed_and_what_cannot_be_reached_is_tried_again() {
    let day = date!(2026 - 06 - 05);
    for kind in super::source::BROKEN {
        let outcome = read_file(Format::Sandbox, day, Failing(kind), &mut |_| ControlFlow::Continue(()));
        assert!(matches!(&outcome, Err(ReadError::Bad(_))), "{kind}: {outcome:?}");
    }
    for kind in
        [std::io::ErrorKind::Other, std::io::ErrorKind::TimedOut, std::io::ErrorKind::PermissionDenied]
    {
        let outcome = read_file(Format::Sandbox, day, Failing(kind), &mut |_| ControlFlow::Continue(()));
        assert!(matches!(&outcome, Err(ReadError::Io(error)) if error.kind() == kind), "{kind}: {outcome:?}");
    }
}

/// A zip with a statement of forty lines.
fn zip_of_many() -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("report.csv", zip::write::SimpleFileOptions::default()).expect("a member");
    let line = "PAYMENT,po_1,t-1,100,CNY,2026-06-05T10:00:00Z,0\n";
    let head = "#statement,sandbox,2026-06-05\nkind,our_id,channel_id,amount,currency,at,fee\n";
    let text = format!("{head}{}", line.repeat(40));
    std::io::Write::write_all(&mut zip, text.as_bytes()).expect("written");
    zip.finish().expect("a zip").into_inner()
}

#[test]
fn a_zip_whose_bytes_are_broken_is_malformed_and_not_tried_again() {
    let whole = zip_of_many();
    for place in 0..whole.len() {
        let mut bent = whole.clone();
        bent[place] ^= 1;
        let outcome = read_file(Format::Sandbox, date!(2026 - 06 - 05), Cursor::new(bent), &mut |_| {
            ControlFlow::Continue(())
        });
        assert!(matches!(&outcome, Ok(()) | Err(ReadError::Bad(_))), "byte {place}: {outcome:?}");
    }
}

/// What can be read so often, and not again.
struct Lost(Cursor<Vec<u8>>, usize);

impl std::io::Read for Lost {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.1 = self.1.checked_sub(1).ok_or(std::io::ErrorKind::Other)?;
        self.0.read(into)
    }
}

impl std::io::Seek for Lost {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn a_zip_that_is_lost_while_it_is_read_is_tried_again() {
    let read = |times| {
        let source = Lost(Cursor::new(zip_of_many()), times);
        read_file(Format::Sandbox, date!(2026 - 06 - 05), source, &mut |_| ControlFlow::Continue(()))
    };
    let needed = (0..1_000).find(|times| !matches!(read(*times), Err(ReadError::Io(_)))).expect("an end");
    assert!(needed > 3, "its head, its contents and its member are read: {needed}");
    // It has no end, which is its own fault.
    assert!(matches!(read(needed), Err(ReadError::Bad(bad)) if bad.fault == Fault::Truncated));
}

/// Bytes that are no text in the middle of a line.
trait ReplaceEnd {
    fn replace_end(self) -> Vec<u8>;
}

impl ReplaceEnd for Vec<u8> {
    fn replace_end(mut self) -> Vec<u8> {
        let place = self.windows(5).position(|bytes| bytes == b"txn_1").unwrap();
        self[place] = 0xff;
        self
    }
}
