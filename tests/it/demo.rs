//! `payonce demo`: it says "held" of what held, and nothing else.

use serde_json::Value;

use crate::commands::{errors, fresh_dir, json_of, run};
use crate::support::{SANDBOX_SECRET, TestApp, minutes};

fn held(played: &Value) -> Vec<bool> {
    let lines = played["lines"].as_array().expect("lines");
    lines.iter().map(|line| line["held"].as_bool().expect("a word")).collect()
}

#[tokio::test]
async fn the_demo_plays_the_promises_and_sees_when_one_is_broken() {
    let app = TestApp::start_working().await;
    // The clock of the machine that it plays from is an hour behind.
    app.clock.advance(minutes(60));
    // Its secrets need not stand in the list of processes.
    let dir = fresh_dir();
    let in_file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, format!("{text}\n")).expect("written");
        path.display().to_string()
    };
    let secret = [("SANDBOX_SECRET_FILE", in_file("secret", SANDBOX_SECRET))];
    let strange = [secret[0].clone(), ("PAYONCE_SECRET_KEY_FILE", in_file("key", "sk_unknown"))];
    let output = run(&["demo", "--url", &app.url, "-o", "json"], &strange).await;
    assert!(!held(&json_of(&output))[0], "{:#}", json_of(&output));
    let output = run(&["demo", "--url", &app.url, "-o", "json"], &secret).await;
    let played = json_of(&output);
    assert_eq!((output.status.code(), held(&played)), (Some(0), vec![true; 5]), "{played:#}");
    let seen: Vec<&str> =
        played["lines"].as_array().expect("lines").iter().filter_map(|line| line["seen"].as_str()).collect();
    assert!(seen[0].contains("100 of 100") && seen[0].contains("1 attempts"), "{seen:?}");
    assert!(seen[1].contains("50 of 50") && seen[1].contains("1 payment"), "{seen:?}");
    assert!(seen[3].contains("1990 returned"), "{seen:?}");

    // Somebody has been at the books.
    app.stock("TAMPERED", 5).await;
    app.sql("UPDATE skus SET lock_stock = 3 WHERE sku = 'TAMPERED'").await;
    let output = run(&["demo", "--url", &app.url], &secret).await;
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{table}");
    let broken: Vec<&str> = table.lines().filter(|line| line.starts_with("DID NOT HOLD")).collect();
    assert!(broken.len() == 1 && broken[0].contains("every invariant"), "{table}");
    assert!(table.ends_with("not all of it held\n"), "{table}");
    assert!(errors(&output).contains("… stray money goes back"), "plain lines where there is no terminal");
    app.sql("UPDATE skus SET lock_stock = 0 WHERE sku = 'TAMPERED'").await;
    std::fs::remove_dir_all(&dir).expect("removed");
    app.end().await;
}

#[tokio::test]
async fn nothing_holds_of_an_instance_that_is_not_there() {
    let output = run(&["demo", "--url", "http://127.0.0.1:1", "-o", "json"], &[]).await;
    let played = json_of(&output);
    assert_eq!((output.status.code(), held(&played)), (Some(3), vec![false; 5]), "{played:#}");
    assert!(played["lines"][0]["seen"].as_str().is_some_and(|seen| seen.contains("no answer")), "{played:#}");
}
