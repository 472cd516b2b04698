//! Who may use a directory of stores, told by file locks: the kernel gives them back however a process ends.
//!
//! * `lock`: exclusive for the one process that owns the stores ([`own`]), shared by all that use stores
//!   which outlive them ([`join`]).
//! * `start.lock`: held while shared stores are looked for and started, so that one process does it.
//!
//! A watchdog (a shell and `flock`, nothing of ours to keep alive) stops shared stores when it could have had
//! `lock` for itself for a while, and keeps it while it does, so that who comes then waits and starts anew.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{Read as _, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    error::LocalError,
    home::{blocking, random_token},
    process::Signal,
};

/// Longer than the watchdog takes to stop the stores.
const JOIN_WITHIN: Duration = Duration::from_secs(45);

/// The lock of a process that wants the directory for itself.
pub(crate) async fn own(dir: &Path) -> Result<File, LocalError> {
    let dir = dir.to_owned();
    blocking("lock the stores", move || {
        let mut file = open(&dir)?;
        let mut tries = 0;
        // The watchdog asks for the lock now and then, for a moment.
        while let Err(error) = file.try_lock() {
            tries += 1;
            if tries > 10 {
                return Err(refused(&dir, &mut file, error));
            }
            thread::sleep(Duration::from_millis(30));
        }
        sign(&mut file)?;
        Ok(file)
    })
    .await
}

/// The lock of a process that shares the stores, and the one that it holds while it looks for them.
pub(crate) async fn join(dir: &Path) -> Result<(File, File), LocalError> {
    let dir = dir.to_owned();
    blocking("lock the stores", move || {
        let mut file = open(&dir)?;
        let asked = Instant::now();
        while let Err(error) = file.try_lock_shared() {
            if asked.elapsed() > JOIN_WITHIN {
                return Err(refused(&dir, &mut file, error));
            }
            thread::sleep(Duration::from_millis(20));
        }

        let start = dir.join("start.lock");
        let doing = || format!("lock {}", start.display());
        let alone =
            OpenOptions::new().create(true).append(true).open(&start).map_err(LocalError::io(doing()))?;
        alone.lock().map_err(LocalError::io(doing()))?;
        sign(&mut file)?;
        Ok((file, alone))
    })
    .await
}

fn open(dir: &Path) -> Result<File, LocalError> {
    let path = dir.join("lock");
    let doing = || format!("open {}", path.display());
    fs::create_dir_all(dir).map_err(LocalError::io(doing()))?;
    let file = OpenOptions::new().create(true).read(true).append(true).open(&path);
    file.map_err(LocalError::io(doing()))
}

/// Leaves our pid for the message that another process may have to write.
fn sign(file: &mut File) -> Result<(), LocalError> {
    let signed = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    signed.map_err(LocalError::io("write the lock file"))
}

fn refused(dir: &Path, file: &mut File, error: TryLockError) -> LocalError {
    if let TryLockError::Error(source) = error {
        return LocalError::io(format!("lock the stores in {}", dir.display()))(source);
    }
    let mut pid = String::new();
    let _unreadable = file.read_to_string(&mut pid);
    let pid = if pid.is_empty() { "?".to_owned() } else { pid };
    LocalError::AlreadyRunning { dir: dir.to_owned(), pid }
}

/// What the watchdog knows of a server.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) pid_file: String,
    /// For when the pid file was deleted.
    pub(crate) pid: u32,
    /// What the command line of the right process shows.
    pub(crate) mark: String,
    pub(crate) stop: Signal,
    /// What is deleted when it has stopped.
    pub(crate) scratch: Option<PathBuf>,
}

/// Starts the watchdog over stores. It is the only one: an older one sees that the token in `watchdog` is not
/// its own, and ends.
pub(crate) fn watch(dir: &Path, idle_secs: u64, stores: [Trace; 2]) -> Result<(), LocalError> {
    let token = random_token();
    let sign = dir.join("watchdog");
    fs::write(&sign, &token).map_err(LocalError::io(format!("write {}", sign.display())))?;

    let mut command = Command::new("sh");
    command.args(["-c", WATCH, "payonce-watchdog"]).arg(dir.join("lock")).arg(&sign).arg(token);
    command.args([idle_secs.to_string(), STOP.to_owned()]);
    for Trace { pid_file, pid, mark, stop, scratch } in stores {
        command.args([pid_file, pid.to_string(), mark, stop.name().to_owned()]);
        command.arg(scratch.unwrap_or_default());
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .current_dir("/");
    let mut watchdog = command.spawn().map_err(LocalError::io("start the watchdog"))?;
    // It outlives us or ends first; either way somebody must take its exit status.
    thread::spawn(move || watchdog.wait());
    Ok(())
}

/// Tells a watchdog to end, without having it stop anything.
pub(crate) fn unwatch(dir: &Path) {
    let _absent = fs::remove_file(dir.join("watchdog"));
}

/// lock, sign, token, idle seconds, the script that stops, and five words per store.
const WATCH: &str = r#"
lock=$1 sign=$2 token=$3 limit=$4 stop=$5; shift 5
idle=0
while sleep 2; do
  # The whole directory was deleted (`cargo clean`): nobody can find these stores any more.
  [ -d "${sign%/*}" ] || exec sh -c "$stop" sh "$@"
  [ "$(cat "$sign" 2>/dev/null)" = "$token" ] || exit 0
  if flock -n "$lock" true; then idle=$((idle + 2)); else idle=0; fi
  [ "$idle" -ge "$limit" ] || continue
  # Somebody may have come since: then go on watching.
  flock -n "$lock" sh -c "$stop" sh "$@" && exit 0
  idle=0
done
"#;

/// A pid alone may be another's by now: its command line must show the mark.
const STOP: &str = r#"
alive() { tr '\0' ' ' < "/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$mark"; }
while [ $# -ge 5 ]; do
  pid=$(head -n 1 "$1" 2>/dev/null) mark=$3 signal=$4 scratch=$5
  [ -n "$pid" ] || pid=$2
  shift 5
  if alive; then
    kill -s "$signal" "$pid"
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do alive || break; sleep 1; done
    alive && kill -s KILL "$pid"
  fi
  [ -z "$scratch" ] || rm -rf -- "$scratch"
done
exit 0
"#;
