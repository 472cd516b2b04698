//! Where a server keeps its files, and as which user it runs.
//!
//! An ordinary user runs servers as himself, in the directory asked for. PostgreSQL refuses to run as root, so
//! root gives the directory to `postgres` (or `nobody`). That user must be able to reach it, which it cannot in
//! a checkout under `/root` or a closed home: then the files go to `/var/lib/payonce/<hash>` and a file `at`
//! in the directory asked for says so. Delete the directory, and the next start begins afresh. A database that
//! is to be kept in memory has its files there in the same way.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

use super::error::LocalError;

const ELSEWHERE: &str = "/var/lib/payonce";
/// A file system in memory, on every Linux.
const MEMORY: &str = "/dev/shm";
/// So much must be free there and in the machine: a whole run of all stories takes up to 1.5 GiB.
const ROOM_IN_MEMORY: u64 = 4 << 30;

/// A directory that a server owns.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    /// Where the files are.
    pub(crate) path: PathBuf,
    /// As whom the server runs; `None` = as this process.
    pub(crate) owner: Option<Owner>,
}

/// An unprivileged user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Home {
    /// The home for a server in `dir`, made when it is missing.
    pub(crate) async fn prepare(dir: &Path) -> Result<Self, LocalError> {
        let dir = dir.to_owned();
        blocking("prepare a directory", move || Self::prepare_now(&dir)).await
    }

    fn prepare_now(dir: &Path) -> Result<Self, LocalError> {
        let doing = || format!("prepare the directory {}", dir.display());
        fs::create_dir_all(dir).map_err(LocalError::io(doing()))?;
        let dir = dir.canonicalize().map_err(LocalError::io(doing()))?;
        let uid = current_uid()?;

        if uid != 0 {
            let path = Self::moved(&dir).map_or(dir, |moved| moved.path);
            let owner = fs::metadata(&path).map_err(LocalError::io(doing()))?.uid();
            if owner != uid {
                return Err(LocalError::NotOurs { dir: path, owner, uid });
            }
            close(&path, None).map_err(LocalError::io(doing()))?;
            return Ok(Self { path, owner: None });
        }

        if let Some(moved) = Self::moved(&dir) {
            return Ok(moved);
        }
        let meta = fs::metadata(&dir).map_err(LocalError::io(doing()))?;
        // Files that another user's run left here stay usable for that user.
        let owner = match meta.uid() {
            0 => unprivileged().ok_or(LocalError::NoUser)?,
            uid => Owner { uid, gid: meta.gid() },
        };
        close(&dir, Some(owner)).map_err(LocalError::io(doing()))?;
        if owner.can_use(&dir) {
            return Ok(Self { path: dir, owner: Some(owner) });
        }
        chown(&dir, Some(0), Some(0)).map_err(LocalError::io(doing()))?;
        Self::move_out(&dir, owner).map_err(LocalError::io(doing()))
    }

    /// Where an earlier run moved the files of `dir` to. In memory only what is one of ours': it may have been deleted since,
    /// and anybody can make such a directory anew.
    fn moved(dir: &Path) -> Option<Self> {
        let path = PathBuf::from(fs::read_to_string(dir.join("at")).ok()?.trim());
        // No link either, wherever it leads.
        let meta = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_dir)?;
        let owner = Owner { uid: meta.uid(), gid: meta.gid() };
        let ours = [
            current_uid().ok(),
            unprivileged().map(|unprivileged| unprivileged.uid),
            fs::metadata(dir).ok().map(|meta| meta.uid()),
        ];
        let is_ours = !path.starts_with(MEMORY) || ours.contains(&Some(owner.uid));
        is_ours.then_some(Self { path, owner: Some(owner) })
    }

    fn move_out(dir: &Path, owner: Owner) -> io::Result<Self> {
        let path = Path::new(ELSEWHERE).join(short_hash(dir));
        // No pointer led here: these are the files of a directory that was deleted since.
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        close(&path, Some(owner))?;
        fs::write(dir.join("at"), format!("{}\n", path.display()))?;
        Ok(Self { path, owner: Some(owner) })
    }

    /// Has a server keep its files in memory, unless there is no room or it has files already. They are gone when
    /// [`Trace::scratch`](super::shared::Trace) is deleted, or the machine is switched off.
    pub(crate) async fn move_into_memory(dir: &Path) -> Result<(), LocalError> {
        let dir = dir.to_owned();
        blocking("prepare a directory in memory", move || {
            let doing = || format!("prepare a directory in {MEMORY} for {}", dir.display());
            fs::create_dir_all(&dir).map_err(LocalError::io(doing()))?;
            let is_settled = dir.join("data/postmaster.pid").exists() || Self::moved(&dir).is_some();
            if is_settled || free_memory().is_none_or(|free| free < ROOM_IN_MEMORY) {
                return Ok(());
            }
            let owner = match current_uid()? {
                0 => Some(unprivileged().ok_or(LocalError::NoUser)?),
                _ => None,
            };
            // Nobody can have made it before: everybody may write there.
            let path = Path::new(MEMORY).join(format!("payonce-{}", random_token()));
            let made = fs::create_dir(&path).and_then(|()| close(&path, owner));
            made.and_then(|()| fs::write(dir.join("at"), format!("{}\n", path.display())))
                .map_err(LocalError::io(doing()))
        })
        .await
    }

    /// What is to be deleted with the server: its files, where they are in memory.
    pub(crate) fn scratch(&self) -> Option<&Path> {
        self.path.starts_with(MEMORY).then_some(self.path.as_path())
    }

    /// A directory for sockets: in the home, or under `/tmp` where that path would be too long (107 bytes) or
    /// could not stand in a URL. Only its owner can enter, which is what makes `trust` safe on these sockets.
    pub(crate) fn socket_dir(&self) -> Result<PathBuf, LocalError> {
        let near = self.path.join("sock");
        let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
        let short = near.as_os_str().len() <= 80 && near.to_str().is_some_and(|path| path.chars().all(plain));
        let dir =
            if short { near } else { Path::new("/tmp").join(format!("payonce-{}", short_hash(&self.path))) };

        let doing = || format!("prepare the socket directory {}", dir.display());
        if let Err(error) = fs::create_dir(&dir)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(LocalError::io(doing())(error));
        }
        // In /tmp anyone could have made it first, or put a link there.
        let meta = fs::symlink_metadata(&dir).map_err(LocalError::io(doing()))?;
        let (us, owner) = (current_uid()?, self.owner.map(|owner| owner.uid));
        if !meta.is_dir() || (meta.uid() != us && Some(meta.uid()) != owner) {
            return Err(LocalError::NotOurs { dir, owner: meta.uid(), uid: us });
        }
        close(&dir, self.owner).map_err(LocalError::io(doing()))?;
        Ok(dir)
    }

    /// Writes a file that only the owner can read.
    pub(crate) fn write_secret(&self, name: &str, text: &str) -> Result<PathBuf, LocalError> {
        use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};

        let path = self.path.join(name);
        let write = || {
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            file.write_all(text.as_bytes())?;
            self.owner.map_or(Ok(()), |owner| chown(&path, Some(owner.uid), Some(owner.gid)))
        };
        write().map_err(LocalError::io(format!("write {}", path.display())))?;
        Ok(path)
    }

    /// The trimmed text of a file, if there is one.
    pub(crate) fn read(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.path.join(name)).ok()?.trim().to_owned())
    }

    /// The password kept here, made up on first use.
    pub(crate) fn password(&self) -> Result<String, LocalError> {
        if let Some(password) = self.read("password").filter(|password| !password.is_empty()) {
            return Ok(password);
        }
        let password = random_token();
        self.write_secret("password", &password)?;
        Ok(password)
    }
}

impl Owner {
    /// Whether this user can really work there: it must pass through every parent.
    fn can_use(self, dir: &Path) -> bool {
        let mut command = Command::new("setpriv");
        command.args(self.setpriv_args()).args(["sh", "-c", r#"cd "$1" && test -w ."#, "sh"]).arg(dir);
        command.output().is_ok_and(|output| output.status.success())
    }

    /// What makes `setpriv` run a command as this user.
    pub(crate) fn setpriv_args(self) -> Vec<String> {
        let Self { uid, gid } = self;
        vec![format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]
    }
}

/// 32 hexadecimal digits of chance.
#[expect(
    clippy::disallowed_methods,
    reason = "names and passwords of private servers; there is no App here yet"
)]
pub(crate) fn random_token() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Who this process is.
pub(crate) fn current_uid() -> Result<u32, LocalError> {
    Ok(fs::metadata("/proc/self").map_err(LocalError::io("read /proc/self"))?.uid())
}

/// Runs blocking work beside the runtime.
pub(crate) async fn blocking<T, F>(doing: &'static str, work: F) -> Result<T, LocalError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, LocalError> + Send + 'static,
{
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| LocalError::io(doing)(io::Error::other(error)))?
}

/// How many bytes can be kept in memory: what is free there, and what the machine can spare.
fn free_memory() -> Option<u64> {
    let there = rustix::fs::statvfs(MEMORY).ok()?;
    let machine = fs::read_to_string("/proc/meminfo").ok()?;
    let spare = machine.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let spare: u64 = spare.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(there.f_bavail.saturating_mul(there.f_frsize).min(spare.saturating_mul(1024)))
}

/// Gives a directory to its owner alone.
fn close(dir: &Path, owner: Option<Owner>) -> io::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    owner.map_or(Ok(()), |owner| chown(dir, Some(owner.uid), Some(owner.gid)))
}

/// `postgres` exists once Debian's package is installed; `nobody` always does.
fn unprivileged() -> Option<Owner> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    ["postgres", "nobody"].iter().find_map(|wanted| {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
            (name == *wanted && uid != 0).then_some(Owner { uid, gid })
        })
    })
}

fn short_hash(path: &Path) -> String {
    let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
