//! Wall clocks that are off. Debian's libfaketime stands between the service and the machine's clock, and reads by how
//! much from a file, so that the clock of a process that runs can jump too. What is monotonic stays right, as it does
//! where a machine's clock is set.

use std::fs;
use std::path::{Path, PathBuf};

use payonce::infra::clock::Clock;
use payonce::local::packages;
use time::format_description::well_known::Rfc2822;
use time::{Duration, OffsetDateTime};
use tokio::process::Command;

use super::app::metric_at;
use super::service::{LIMIT, Service, Shop};
use super::stores::fresh_name;

/// The wall clock of one instance.
pub struct WallClock {
    library: PathBuf,
    file: PathBuf,
    ahead_secs: i64,
}

impl WallClock {
    /// One that is right.
    pub async fn new() -> Self {
        let library = packages::ensure("libfaketime", &["libfaketime"], library).await;
        let library = library.unwrap_or_else(|error| panic!("{error}"));
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clocks");
        fs::create_dir_all(&dir).expect("a directory");
        let mut clock = Self { library, file: dir.join(fresh_name()), ahead_secs: 0 };
        clock.set(0);
        clock
    }

    /// From now on it is so many seconds ahead of the machine's.
    pub fn set(&mut self, ahead_secs: i64) {
        self.ahead_secs = ahead_secs;
        // Renamed, because a half-written number is a number too.
        let half = self.file.with_extension("half");
        fs::write(&half, format!("{ahead_secs:+}\n")).expect("written");
        fs::rename(half, &self.file).expect("renamed");
    }

    /// The service dates its answers so. A library that cannot be loaded is passed over in silence, and so would be all
    /// that this is for.
    pub async fn assert_goes_by_it(&self, service: &Service) {
        let asked = service.http.get(format!("{}/livez", service.url)).timeout(LIMIT).send().await;
        let answer = match asked {
            Ok(answer) => answer,
            Err(error) if error.is_timeout() && !service.is_dead() => {
                panic!("{} keeps silent: {error:?}", service.url)
            }
            Err(_) => return,
        };
        let date = answer.headers()["date"].to_str().expect("text").replace("GMT", "+0000");
        let shown = OffsetDateTime::parse(&date, &Rfc2822).expect("a date");
        let ahead = shown - Clock::system().now() - Duration::seconds(self.ahead_secs);
        assert!(ahead.abs() < Duration::seconds(10), "{ahead} from what it was set to");
    }

    /// The service as a command that goes by this clock. The shell before it, which does what is asked, does not.
    pub fn command(&self, shop: &Shop, before: &str) -> Command {
        let mut command = shop.command(&format!("{before}\nexport LD_PRELOAD='{}'", self.library.display()));
        command.env("FAKETIME_TIMESTAMP_FILE", &self.file).env("FAKETIME_NO_CACHE", "1");
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
        command
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        fs::remove_file(&self.file).ok();
    }
}

/// Whether an instance has found its machine's clock so many seconds ahead of the database's, or nearly.
pub async fn knows_to_be_ahead(service: &Service, secs: i64) -> bool {
    let ahead = metric_at(&service.http, &service.url, "payonce_clock_ahead_seconds", &[]).await;
    ahead.is_ok_and(|ahead| {
        (Duration::seconds_f64(ahead) - Duration::seconds(secs)).abs() < Duration::seconds(10)
    })
}

/// The one for processes of many threads, in the folder of this kind of machine.
fn library() -> Option<PathBuf> {
    let machines = fs::read_dir("/usr/lib").ok()?.flatten();
    machines.map(|machine| machine.path().join("faketime/libfaketimeMT.so.1")).find(|file| file.is_file())
}

/// Clears away what the library of a killed process left in memory: the next process of that number would stumble on it.
pub fn clear_after(process: u32) {
    for name in [format!("faketime_shm_{process}"), format!("sem.faketime_sem_{process}")] {
        fs::remove_file(Path::new("/dev/shm").join(name)).ok();
    }
}
