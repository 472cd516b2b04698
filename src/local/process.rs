//! Servers as processes: started so that they die with us but not of our Ctrl-C, signalled without `unsafe`.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        LazyLock,
        atomic::{AtomicU16, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use rand::Rng;
use tokio::sync::oneshot;

use super::{
    error::{LocalError, tail},
    find::Finder,
    home::Home,
};

const POLL: Duration = Duration::from_millis(10);
/// A fast shutdown writes a checkpoint; what takes longer than this is killed.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// A signal, as `kill -s` spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Int,
    Term,
    Quit,
    Kill,
    Stop,
    Cont,
}

impl Signal {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Int => "INT",
            Self::Term => "TERM",
            Self::Quit => "QUIT",
            Self::Kill => "KILL",
            Self::Stop => "STOP",
            Self::Cont => "CONT",
        }
    }
}

/// Whose life a server shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// It stops when its handle is dropped, and when this process dies in whatever way.
    WithUs,
    /// It outlives this process; a watchdog stops it when nobody uses it any more.
    Shared,
}

/// What to run.
#[derive(Debug)]
pub(crate) struct Spec<'a> {
    pub(crate) program: &'a Path,
    pub(crate) args: Vec<String>,
    pub(crate) home: &'a Home,
    pub(crate) log: &'a Path,
    pub(crate) lifetime: Lifetime,
    /// Asks the program to stop.
    pub(crate) stop: Signal,
}

/// A running server, ours or found running.
#[derive(Debug)]
pub(crate) struct Process {
    pid: u32,
    /// `None` once it has ended, or when it was not started by this process.
    child: Option<Child>,
    /// Text in the command line of the right process: a pid alone may have been given to another one.
    marks: Vec<String>,
    lifetime: Lifetime,
    stop: Signal,
}

impl Process {
    /// Starts a server, its output appended to its log.
    pub(crate) async fn spawn(spec: Spec<'_>) -> Result<Self, LocalError> {
        let doing = || format!("start {}", spec.program.display());
        let log =
            OpenOptions::new().create(true).append(true).open(spec.log).map_err(LocalError::io(doing()))?;
        let mut command = command(&spec)?;
        command.stdin(Stdio::null()).stderr(log.try_clone().map_err(LocalError::io(doing()))?).stdout(log);

        let child = spawn_on_keeper(command).await.map_err(LocalError::io(doing()))?;
        Ok(Self {
            pid: child.id(),
            child: Some(child),
            marks: Vec::new(),
            lifetime: spec.lifetime,
            stop: spec.stop,
        })
    }

    /// A server that another process started, if it is alive: its command line has one of the `marks`.
    pub(crate) fn find(pid: u32, marks: Vec<String>, stop: Signal) -> Option<Self> {
        let mut found = Self { pid, child: None, marks, lifetime: Lifetime::Shared, stop };
        found.is_alive().then_some(found)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        let Some(child) = &mut self.child else {
            let line = command_line(self.pid).unwrap_or_default();
            return self.marks.iter().any(|mark| line.contains(mark));
        };
        if matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        // Reaped: its pid may be another's from here on.
        self.child = None;
        false
    }

    pub(crate) async fn signal(&mut self, signal: Signal) -> Result<(), LocalError> {
        if !self.is_alive() {
            return Ok(());
        }
        let status = tokio::process::Command::from(kill_command(signal, &[self.pid])).status().await;
        status.map_err(LocalError::io("send a signal"))?;
        Ok(())
    }

    /// Signals the server and its children: PostgreSQL answers through one process per connection.
    pub(crate) async fn signal_all(&mut self, signal: Signal) -> Result<(), LocalError> {
        self.signal(signal).await?;
        let children = children_of(self.pid);
        if self.is_alive() && !children.is_empty() {
            let status = tokio::process::Command::from(kill_command(signal, &children)).status().await;
            status.map_err(LocalError::io("send a signal"))?;
        }
        Ok(())
    }

    /// Asks the server to stop, waits, and kills it if it does not.
    pub(crate) async fn stop(&mut self) -> Result<(), LocalError> {
        self.end(self.stop).await
    }

    /// Ends the server by that signal.
    pub(crate) async fn end(&mut self, signal: Signal) -> Result<(), LocalError> {
        self.signal(signal).await?;
        // A paused server hears nothing else.
        self.signal_all(Signal::Cont).await?;
        let asked = Instant::now();
        while self.is_alive() && asked.elapsed() < STOP_WITHIN {
            tokio::time::sleep(POLL).await;
        }

        if self.is_alive() {
            self.signal(Signal::Kill).await?;
            while self.is_alive() {
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(())
    }
}

/// The last resort: `stop().await` does not block a thread and reports errors.
impl Drop for Process {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Shared || !self.is_alive() {
            return;
        }
        let _unheard = kill_command(self.stop, &[self.pid]).status();
        let family: Vec<u32> = children_of(self.pid).into_iter().chain([self.pid]).collect();
        let _unheard = kill_command(Signal::Cont, &family).status();
        let asked = Instant::now();
        while self.is_alive() && asked.elapsed() < STOP_WITHIN {
            thread::sleep(POLL);
        }
        if let Some(child) = &mut self.child {
            let _gone = child.kill();
            let _status = child.wait();
        }
    }
}

/// The command that runs a program as the right user, tied to our life or to nobody's.
///
/// `setpriv` (util-linux, on every Debian) replaces itself by the program, so the pid that we get is the
/// server's. `runuser` would stay between us as a parent of its own, and the server would be sent its signal
/// when `runuser` dies, not when we do.
fn command(spec: &Spec<'_>) -> Result<Command, LocalError> {
    let setpriv = Finder::of_machine().program("setpriv");
    let mut command = match (setpriv, spec.home.owner) {
        (Some(setpriv), owner) => {
            let mut command = Command::new(setpriv);
            command.args(owner.iter().flat_map(|owner| owner.setpriv_args()));
            if spec.lifetime == Lifetime::WithUs {
                command.args(["--pdeathsig", spec.stop.name()]);
            }
            command.arg("--").arg(spec.program);
            command
        }
        // Without it a `kill -9` of this process leaves the server running; the next start clears it away.
        (None, None) => Command::new(spec.program),
        (None, Some(_)) => {
            return Err(LocalError::Missing {
                what: "setpriv".to_owned(),
                reason: "root needs it to run a server as another user".to_owned(),
                command: "apt-get install -y util-linux".to_owned(),
            });
        }
    };

    command
        .args(&spec.args)
        .current_dir(&spec.home.path)
        // Neither PGPORT, PGDATA nor the shell's locale may reach the server.
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("LC_ALL", "C.UTF-8")
        // Ctrl-C goes to the terminal's whole group: the service drains first and then stops its stores.
        .process_group(0);
    Ok(command)
}

/// Runs a short command of a server package (initdb) as the server's user; its output goes into the error.
pub(crate) async fn run(program: &Path, args: Vec<String>, home: &Home) -> Result<(), LocalError> {
    let spec =
        Spec { program, args, home, log: Path::new(""), lifetime: Lifetime::WithUs, stop: Signal::Term };
    let mut command = tokio::process::Command::from(command(&spec)?);
    let doing = format!("run {}", program.display());
    let output =
        command.stdin(Stdio::null()).kill_on_drop(true).output().await.map_err(LocalError::io(doing))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + String::from_utf8_lossy(&output.stderr).as_ref();
    Err(LocalError::Command {
        command: format!("{} {}", program.display(), spec.args.join(" ")),
        output: tail(&text),
    })
}

/// The text of a log from here on, to report only what this start wrote.
#[derive(Debug)]
pub(crate) struct LogMark {
    path: PathBuf,
    from: usize,
}

impl LogMark {
    pub(crate) fn new(path: &Path) -> Self {
        let from = fs::metadata(path).map_or(0, |meta| usize::try_from(meta.len()).unwrap_or(0));
        // A log is for the latest runs; nobody rotates it.
        if from > 16 * 1024 * 1024 && File::create(path).is_ok() {
            return Self { path: path.to_owned(), from: 0 };
        }
        Self { path: path.to_owned(), from }
    }

    pub(crate) fn error(&self, what: &'static str, how: impl Into<String>) -> LocalError {
        let bytes = fs::read(&self.path).unwrap_or_default();
        let text = String::from_utf8_lossy(bytes.get(self.from..).unwrap_or_default());
        LocalError::NotReady { what, how: how.into(), log: self.path.clone(), tail: tail(&text) }
    }
}

/// A free port on loopback: the wanted one if nobody listens there, otherwise one that no client is given for its end of a
/// connection, so that a server that starts again finds its own free. Where there is none, one of the system's choice.
pub(crate) fn free_port(wanted: Option<u16>) -> Result<u16, LocalError> {
    let bind = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port))?.local_addr();
    let free = wanted.into_iter().chain(ports_of_servers()).find_map(|port| bind(port).ok());
    let address = free.map_or_else(|| bind(0), Ok);
    Ok(address.map_err(LocalError::io("find a free port on 127.0.0.1"))?.port())
}

/// Some ports below the ephemeral ones, nothing where those begin further down. Each comes once before any comes again,
/// and two processes begin at different ones.
fn ports_of_servers() -> impl Iterator<Item = u16> {
    /// Ten thousand, of which `.ci/run` takes none for its own.
    const FIRST: u16 = 10_000;
    const COUNT: u16 = 10_000;
    const TRIES: usize = 100;
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(rand::rng().random()));
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first_ephemeral = range.split_whitespace().next().and_then(|first| first.parse::<u16>().ok());
    let has_room = first_ephemeral.is_some_and(|first| first >= FIRST + COUNT);
    let ports = std::iter::repeat_with(|| FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT);
    ports.take(if has_room { TRIES } else { 0 })
}

type Job = (Command, oneshot::Sender<io::Result<Child>>);

/// Linux sends the parent-death signal when the *thread* that started the child ends, and threads of a runtime
/// or of a test come and go. This one lasts as long as the process.
static KEEPER: LazyLock<mpsc::Sender<Job>> = LazyLock::new(|| {
    let (jobs, queue) = mpsc::channel::<Job>();
    thread::spawn(move || {
        for (mut command, answer) in queue {
            if let Err(Ok(mut unwanted)) = answer.send(command.spawn()) {
                let _gone = unwanted.kill();
                let _status = unwanted.wait();
            }
        }
    });
    jobs
});

async fn spawn_on_keeper(command: Command) -> io::Result<Child> {
    let (answer, child) = oneshot::channel();
    KEEPER.send((command, answer)).map_err(io::Error::other)?;
    child.await.map_err(io::Error::other)?
}

/// `kill` is a builtin of every shell; `/bin/kill` is missing in slim images, and std only knows SIGKILL.
fn kill_command(signal: Signal, pids: &[u32]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", r#"kill -s "$@" 2>/dev/null"#, "sh", signal.name()]);
    command.args(pids.iter().map(ToString::to_string));
    command
}

/// Readable for every user, also in a container; empty for a zombie.
fn command_line(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
}

fn children_of(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // `pid (name) state parent …`, and a name may hold anything, also brackets.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        after_name.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}
