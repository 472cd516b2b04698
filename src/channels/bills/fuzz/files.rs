//! Statements printed as their channels do, from what is to stand in them.

use encoding_rs::GBK;
use proptest::prelude::*;

use super::*;

/// One movement, with words of the customer's own.
#[derive(Clone, Debug)]
pub(super) struct Said {
    is_refund: bool,
    number: u32,
    minor: i64,
    fee: i64,
    title: String,
    currency: &'static str,
    second: u32,
}

/// The largest amount whose fee still fits beside it in a net amount.
const MOST: i64 = MAX_MINOR - 500;

/// A line as it is compared: kind, ours, theirs, amount, currency, fee.
pub(super) type Printed = (StatementKind, String, String, i64, String, i64);

pub(super) fn printed(line: &StatementLine) -> Printed {
    let StatementLine { kind, our_id, channel_id, amount, currency, fee, .. } = line;
    (*kind, our_id.clone(), channel_id.clone(), *amount, currency.to_string(), *fee)
}

/// Some movements. Titles may hold whatever parts cells, but no ends of lines, and nothing that GBK cannot write.
pub(super) fn said() -> impl Strategy<Value = Vec<Said>> {
    let title = prop_oneof![
        "[a-z ,`\"#.0-9-]{0,20}",
        "[茶绿，a,`]{0,10}",
        // What parts the files themselves.
        "#?(业务明细列表结束|业务明细查询|总交易单数|交易合计：1笔)[a,]{0,3}",
        Just(",`".to_owned()),
        Just("1.00,2.00".to_owned())
    ];
    let currency = prop_oneof![Just("CNY"), Just("USD"), Just("JPY"), Just("KWD")];
    let minor = prop_oneof![1..=100_000_i64, 1..=MOST, Just(MOST)];
    let line = (any::<bool>(), 1..1_000_u32, minor, 0..=500_i64, title, currency, 0..86_400_u32);
    let line = line.prop_map(|(is_refund, number, minor, fee, title, currency, second)| {
        let fee = fee.min(minor);
        Said { is_refund, number, minor, fee, title, currency, second }
    });
    prop::collection::vec(line, 1..6)
}

impl Said {
    /// As it must be read.
    pub(super) fn as_read(&self, format: Format) -> Printed {
        let Self { is_refund, number, minor, fee, .. } = self;
        let kind = if *is_refund { StatementKind::Refund } else { StatementKind::Payment };
        let (ours, theirs) = match (is_refund, format) {
            (true, Format::Alipay) => (format!("rf_{number}"), format!("T{number}:rf_{number}")),
            (true, _) => (format!("rf_{number}"), format!("R{number}")),
            (false, _) => (format!("po_{number}"), format!("T{number}")),
        };
        let currency = if matches!(format, Format::Alipay | Format::Wechat) { "CNY" } else { self.currency };
        (kind, ours, theirs, *minor, currency.to_owned(), *fee)
    }

    fn clock(&self) -> String {
        format!("{:02}:{:02}:{:02}", self.second / 3_600, self.second / 60 % 60, self.second % 60)
    }
}

/// A decimal of so many places.
fn decimal(minor: i64, places: usize) -> String {
    let one = 10_i64.pow(u32::try_from(places).expect("few"));
    let (sign, minor) = (if minor < 0 { "-" } else { "" }, minor.abs());
    if places == 0 {
        format!("{sign}{minor}")
    } else {
        format!("{sign}{}.{:0places$}", minor / one, minor % one)
    }
}

pub(super) fn file(format: Format, said: &[Said]) -> Vec<u8> {
    match format {
        Format::Sandbox => sandbox(said),
        Format::Alipay => GBK.encode(&alipay(said)).0.into_owned(),
        Format::Wechat => wechat(said).into_bytes(),
        Format::Stripe => stripe(said),
    }
}

fn sandbox(said: &[Said]) -> Vec<u8> {
    let mut file =
        String::from("#statement,sandbox,2026-06-05\nkind,our_id,channel_id,amount,currency,at,fee\n");
    for line in said {
        let (kind, ours, theirs, minor, currency, fee) = line.as_read(Format::Sandbox);
        file += &format!("{kind},{ours},{theirs},{minor},{currency},2026-06-05T{}Z,{fee}\n", line.clock());
    }
    let sum: i64 = said.iter().map(|line| line.minor).sum();
    file += &format!("#end,{},{sum}\n", said.len());
    file.into_bytes()
}

fn sums(said: &[Said]) -> [(usize, i64); 2] {
    [false, true].map(|is_refund| {
        let lines = said.iter().filter(|line| line.is_refund == is_refund);
        (lines.clone().count(), lines.map(|line| line.minor).sum())
    })
}

fn alipay(said: &[Said]) -> String {
    let mut file = String::from(
        "#支付宝业务明细查询\r\n#账号：[2088]\r\n\
         #起始日期：[2026年06月05日 00:00:00]   终止日期：[2026年06月06日 00:00:00]\r\n#--业务明细列表--\r\n\
         支付宝交易号,商户订单号,业务类型,商品名称,创建时间,完成时间,门店编号,门店名称,操作员,终端号,对方账户,\
         订单金额（元）,商家实收（元）,支付宝红包（元）,集分宝（元）,支付宝优惠（元）,商家优惠（元）,券核销金额（元）,\
         券名称,商家红包消费金额（元）,卡消费金额（元）,退款批次号/请求号,服务费（元）,分润（元）,备注\r\n",
    );
    for line in said {
        let Said { is_refund, number, title, .. } = line;
        let (kind, request) =
            if *is_refund { ("退款", format!("rf_{number}")) } else { ("交易", String::new()) };
        let yuan = decimal(if *is_refund { -line.minor } else { line.minor }, 2);
        let (fee, at) = (decimal(-line.fee, 2), line.clock());
        file += &format!(
            "T{number}\t,po_{number}\t,{kind}\t,{title},2026-06-05 {at},2026-06-05 {at},\t,\t,\t,\t,x\t,\
             {yuan},{yuan},0.00,0.00,0.00,0.00,0.00,,0.00\t,0.00,{request}\t,{fee},0.00,\r\n",
        );
    }
    file += "#--业务明细列表结束--\r\n";
    let [(payments, paid), (refunds, gone)] = sums(said);
    file += &format!("#交易合计：{payments}笔，订单金额共{}元，\r\n", decimal(paid, 2));
    file += &format!("#退款合计：{refunds}笔，订单金额共{}元\r\n", decimal(-gone, 2));
    file
}

fn wechat(said: &[Said]) -> String {
    let mut file = String::from(
        "\u{feff}交易时间,公众账号ID,商户号,特约商户号,设备号,微信订单号,商户订单号,用户标识,交易类型,交易状态,付款银行,货币种类,\
         应结订单金额,代金券金额,微信退款单号,商户退款单号,退款金额,充值券退款金额,退款类型,退款状态,商品名称,商户数据包,\
         手续费,费率,订单金额,申请退款金额,费率备注\r\n",
    );
    for line in said {
        let Said { is_refund, number, title, .. } = line;
        let (amount, fee, at) = (decimal(line.minor, 2), decimal(line.fee, 2), line.clock());
        let (state, refund, [paid, gone]) = match is_refund {
            true => ("REFUND", format!("R{number},`rf_{number}"), ["0.00", &amount]),
            false => ("SUCCESS", "0,`0".to_owned(), [amount.as_str(), "0.00"]),
        };
        file += &format!(
            "`2026-06-05 {at},`wx,`1,`0,`,`T{number},`po_{number},`o,`NATIVE,`{state},`OTHERS,`CNY,`{paid},`0.00,\
             `{refund},`0.00,`0.00,`ORIGINAL,`SUCCESS,`{title},`,`{fee},`1.00%,`{paid},`{gone},`\r\n",
        );
    }
    let [(_, paid), (_, gone)] = sums(said);
    let (count, paid, gone) = (said.len(), decimal(paid, 2), decimal(gone, 2));
    file +=
        "总交易单数,应结订单总金额,退款总金额,充值券退款总金额,手续费总金额,订单总金额,申请退款总金额\r\n";
    file += &format!("`{count},`{paid},`0.00,`0.00,`0.00,`{paid},`{gone}\r\n");
    file
}

fn stripe(said: &[Said]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let head = "balance_transaction_id,created_utc,available_on,currency,gross,fee,net,reporting_category,source_id,\
                description,payment_intent_id,payment_metadata[payment_id],refund_metadata[refund_id]";
    writer.write_record(head.split(',')).expect("a head");
    for line in said {
        let (_, ours, theirs, minor, currency, fee) = line.as_read(Format::Stripe);
        let places = super::super::amounts::places(currency.parse().expect("a currency"));
        let gross = if line.is_refund { -minor } else { minor };
        let amounts = [gross, fee, gross - fee].map(|amount| decimal(amount, places));
        let (category, source, intent) = if line.is_refund {
            ("refund", theirs.as_str(), "pi")
        } else {
            ("charge", "ch", theirs.as_str())
        };
        let (payment, refund) = if line.is_refund { ("po", ours.as_str()) } else { (ours.as_str(), "") };
        let (at, currency) = (format!("2026-06-05 {}", line.clock()), currency.to_lowercase());
        let [gross, fee, net] = &amounts;
        let cells = [
            "txn",
            &at,
            "",
            &currency,
            gross,
            fee,
            net,
            category,
            source,
            &line.title,
            intent,
            payment,
            refund,
        ];
        writer.write_record(cells).expect("a line");
    }
    writer.into_inner().expect("a file")
}
