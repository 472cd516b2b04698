//! A browser without a window, for stories told on pages.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::FutureExt;
use payonce::local::{Finder, packages};
use thirtyfour::prelude::*;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Root may not use Chromium's sandbox; the rest keeps it from talking to anyone but us.
const ARGUMENTS: [&str; 8] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
];

/// How long a page may take to show what it should.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Tells a story in a browser of its own, which is gone afterwards however the story ends.
pub async fn browse<F: Future<Output = ()>>(story: impl FnOnce(WebDriver) -> F) {
    let browser = Browser::start().await;
    let outcome = AssertUnwindSafe(story(browser.driver.clone())).catch_unwind().await;
    browser.stop().await;
    if let Err(failure) = outcome {
        resume_unwind(failure);
    }
}

/// The element, as soon as the page has it.
pub async fn find(page: &WebDriver, css: &str) -> WebElement {
    let found = page.query(By::Css(css)).wait(PATIENCE, LOOK_EVERY).first().await;
    match found {
        Ok(element) => element,
        Err(error) => panic!("no {css}: {error}\n{}", page.source().await.unwrap_or_default()),
    }
}

/// The element's text.
pub async fn text(page: &WebDriver, css: &str) -> String {
    find(page, css).await.text().await.expect("a text")
}

/// Presses it.
pub async fn press(page: &WebDriver, css: &str) {
    find(page, css).await.click().await.expect("a click");
}

struct Browser {
    driver: WebDriver,
    process: Child,
    profile: PathBuf,
}

impl Browser {
    async fn start() -> Self {
        let program = packages::ensure("chromedriver", &["chromium", "chromium-driver"], || {
            Finder::of_machine().program("chromedriver")
        })
        .await
        .expect("chromedriver");
        let (process, port) = serve(&program).await;

        let name = format!("browser_{}_{port}", std::process::id());
        let profile = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut wishes = DesiredCapabilities::chrome();
        for argument in ARGUMENTS {
            wishes.add_arg(argument).expect("an argument");
        }
        wishes.add_arg(&format!("--user-data-dir={}", profile.display())).expect("an argument");
        let driver = WebDriver::new(format!("http://127.0.0.1:{port}"), wishes).await.expect("a browser");
        Self { driver, process, profile }
    }

    /// The driver ends its Chromium; ending the driver first would leave the Chromium behind.
    async fn stop(mut self) {
        let quit = self.driver.quit().await;
        self.process.kill().await.expect("the driver ends");
        std::fs::remove_dir_all(&self.profile).ok();
        quit.expect("the browser ends");
    }
}

/// Starts the driver on a port of its choice, and reads which one from what it says.
async fn serve(program: &Path) -> (Child, u16) {
    let mut process = Command::new(program)
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("chromedriver starts");
    let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
    while let Some(line) = lines.next_line().await.expect("a line") {
        if let Some((_, port)) = line.rsplit_once("successfully on port ") {
            let port = port.trim_end_matches('.').parse().expect("a port");
            // What it says later is read and forgotten: a closed pipe would end it.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return (process, port);
        }
    }
    panic!("chromedriver ended at once");
}
