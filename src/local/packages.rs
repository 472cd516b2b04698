//! Debian packages on demand: look, and only when something is missing ask apt, once, without a question.

use std::{
    env,
    fs::{File, OpenOptions},
    process::{Command, Output},
};

use super::{
    error::{LocalError, tail},
    home,
};

/// Finds something, and installs the packages that bring it when it is missing and this user may.
///
/// `what` names the thing in messages. Two processes never run apt at once: the second waits, looks again and
/// finds what the first installed.
///
/// # Errors
///
/// [`LocalError::Missing`] with the line to run where installing is not allowed (neither root nor passwordless
/// sudo), [`LocalError::InstallFailed`] where apt failed.
///
/// ```no_run
/// # async fn example() -> Result<(), payonce::local::LocalError> {
/// use payonce::local::{Finder, packages};
/// let driver = packages::ensure("chromedriver", &["chromium", "chromium-driver"], || {
///     Finder::of_machine().program("chromedriver")
/// })
/// .await?;
/// # Ok(()) }
/// ```
pub async fn ensure<T, F>(what: &str, packages: &[&str], find: F) -> Result<T, LocalError>
where
    T: Send + 'static,
    F: Fn() -> Option<T> + Send + 'static,
{
    if let Some(found) = find() {
        return Ok(found);
    }

    let what = what.to_owned();
    let packages: Vec<String> = packages.iter().map(|&name| name.to_owned()).collect();
    home::blocking("install packages", move || {
        let _alone = lock()?;
        if let Some(found) = find() {
            return Ok(found);
        }
        let output = install(&what, &packages)?;
        find().ok_or_else(|| LocalError::InstallFailed { what, command: by_hand(&packages), output })
    })
    .await
}

/// One apt at a time for this user; other users meet apt's own lock, which is waited for.
fn lock() -> Result<File, LocalError> {
    let path = env::temp_dir().join(format!("payonce-apt-{}.lock", home::current_uid()?));
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let file = file.map_err(LocalError::io(format!("open {}", path.display())))?;
    file.lock().map_err(LocalError::io(format!("lock {}", path.display())))?;
    Ok(file)
}

/// Installs, or says why not. Returns the end of what apt wrote.
fn install(what: &str, packages: &[String]) -> Result<String, LocalError> {
    let mut command = allowed().map_err(|reason| refusal(what, packages, reason))?;

    tracing::info!(packages = %packages.join(" "), "installing {what} with apt, this takes a minute");
    command.args(["-c", INSTALL, "payonce-install"]).args(packages);
    let Output { status, stdout, stderr } = command.output().map_err(LocalError::io("run apt-get"))?;

    let output = String::from_utf8_lossy(&stdout).into_owned() + String::from_utf8_lossy(&stderr).as_ref();
    if status.success() {
        return Ok(tail(&output));
    }
    Err(LocalError::InstallFailed {
        what: what.to_owned(),
        command: by_hand(packages),
        output: tail(&output),
    })
}

pub(super) fn refusal(what: &str, packages: &[String], reason: &str) -> LocalError {
    LocalError::Missing { what: what.to_owned(), reason: reason.to_owned(), command: by_hand(packages) }
}

/// A shell that may install, or the reason why there is none. Never asks for a password.
fn allowed() -> Result<Command, &'static str> {
    let runs = |program: &str, args: &[&str]| {
        Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
    };

    if !runs("apt-get", &["--version"]) {
        return Err("there is no apt-get here");
    }
    if home::current_uid().is_ok_and(|uid| uid == 0) {
        return Ok(Command::new("sh"));
    }
    if runs("sudo", &["-n", "true"]) {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "sh"]);
        return Ok(sudo);
    }
    Err("this user is neither root nor allowed sudo without a password")
}

fn by_hand(packages: &[String]) -> String {
    let packages = packages.join(" ");
    format!("sudo apt-get update && sudo apt-get install -y --no-install-recommends {packages}")
}

/// Installs programs without their services.
///
/// Debian starts what it installs, and PostgreSQL's package creates a cluster on port 5432. Nothing in apt or
/// the environment turns this off (`RUNLEVEL=1` is only heeded by sysvinit, and maintainer scripts read no
/// variable), so two files stand there during the install and go away with it:
/// `policy-rc.d`, Debian's own switch, only where the machine has none of its own; and a drop-in for
/// `createcluster.conf`. A `policy-rc.d` left by a `kill -9` carries our mark and is taken away next time.
///
/// Redis, RabbitMQ and Prometheus would come up at the next boot, so a unit is disabled when this install brought it.
const INSTALL: &str = r#"
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 LC_ALL=C
guard=/usr/sbin/policy-rc.d
no_cluster=/etc/postgresql-common/createcluster.d/payonce.conf
made=
finish() {
  rm -f "$no_cluster"
  rmdir -p --ignore-fail-on-non-empty "${no_cluster%/*}" 2>/dev/null
  [ -z "$made" ] || rm -f "$guard"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

had=; for unit in redis-server rabbitmq-server prometheus; do [ ! -e "/etc/init.d/$unit" ] || had="$had $unit"; done
if [ ! -e "$guard" ] || grep -q 'payonce: temporary' "$guard"; then
  made=1
  printf '#!/bin/sh\n# payonce: temporary, while packages are installed\nexit 101\n' > "$guard"
  chmod 755 "$guard"
fi
mkdir -p "${no_cluster%/*}"
echo 'create_main_cluster = false' > "$no_cluster"

apt-get -o DPkg::Lock::Timeout=300 update
apt-get -o DPkg::Lock::Timeout=300 install -y --no-upgrade --no-install-recommends "$@" < /dev/null || exit 1

for unit in redis-server rabbitmq-server prometheus; do
  case " $had " in *" $unit "*) continue ;; esac
  [ -e "/etc/init.d/$unit" ] || continue
  update-rc.d "$unit" disable || true
  deb-systemd-helper disable "$unit.service" || true
done
"#;
