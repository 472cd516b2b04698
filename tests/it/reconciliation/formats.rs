//! Files of channels that have no adapter here yet: their money is nobody's until a person says whose.

use std::io::{Cursor, Write};

use encoding_rs::GBK;
use serde_json::json;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::start;
use crate::support::statements::assert_explained;

#[tokio::test]
async fn alipays_zip_is_compared_like_any_statement() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    app.sleep_over();
    let (year, month, date) = (day.year(), u8::from(day.month()), day.day());
    let list = format!(
        "#支付宝业务明细查询\r\n#起始日期：[{year}年{month:02}月{date:02}日 00:00:00]   终止日期：[{year}年{month:02}月{date:02}日 23:59:59]\r\n\
         支付宝交易号,商户订单号,业务类型,商品名称,创建时间,完成时间,订单金额（元）,退款批次号/请求号,服务费（元）,备注\r\n\
         2026\t,po_gone\t,交易\t,茶,绿茶,{day} 16:01:34,{day} 16:01:38,88.80,\t,-0.53,\r\n\
         2027\t,po_gone\t,退款\t,茶,{day} 16:01:34,{day} 16:01:38,-8.80,rf_gone\t,0.05,\r\n\
         #----业务明细列表结束----\r\n#交易合计：1笔\r\n"
    );
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("2088_业务明细.csv", SimpleFileOptions::default()).expect("a member");
    zip.write_all(&GBK.encode(&list).0).expect("written");
    let zip = zip.finish().expect("a zip").into_inner();
    let run = app.reconcile_file("alipay", day, &zip).await;
    assert_explained(&run);
    assert_eq!(
        (&run["format"], &run["lines"], &run["status"]),
        (&json!("alipay"), &json!(2), &json!("DONE")),
        "{run:#}"
    );
    assert_eq!(run["differences"], json!({"MISSING_HERE APPLIED": 1, "MISSING_HERE ESCALATED": 1}));
    let payments = run["totals"].as_array().expect("totals").iter().find(|line| line["kind"] == "PAYMENT");
    assert_eq!(payments.expect("payments")["fees"], 53);
    // Held for a person: there is no merchant whose policy could be followed.
    let stray = app.stray().await;
    assert_eq!(
        (&stray["reason"], &stray["amount"], &stray["status"]),
        (&json!("UNKNOWN_ORDER"), &json!(8880), &json!("HELD"))
    );
    // Nobody can be asked to give it back.
    let open = app.exceptions("status=OPEN").await;
    let about = open.iter().find(|one| one["kind"] == "UNKNOWN_ORDER").expect("shown");
    assert_eq!(app.resolve(about, "REFUND").await.problem(409), "UNKNOWN_CHANNEL");
    app.resolve(about, "KEEP").await.expect(200);
    assert_eq!(app.stray().await["status"], "KEPT");
    let csv = app
        .admin_get(&format!(
            "/admin/reconciliations/{}/items.csv",
            run["reconciliation_id"].as_str().expect("an id")
        ))
        .await;
    let csv = csv.expect(200).text;
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(csv.starts_with("item_id,class,kind,our_id,") && csv.contains(",po_gone,2026,"), "{csv}");
    app.end().await;
}
