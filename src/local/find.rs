//! Where the programs are: PATH first, then Debian's versioned PostgreSQL folders.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Looks for programs. Its places are fields, so that a test can look nowhere.
#[derive(Debug, Clone)]
pub struct Finder {
    path: Vec<PathBuf>,
    postgres_root: PathBuf,
}

impl Finder {
    /// The places of this machine: PATH, the `sbin` folders that Debian leaves out of a user's PATH, and
    /// `/usr/lib/postgresql`.
    #[must_use]
    pub fn of_machine() -> Self {
        let mut path: Vec<PathBuf> = env::var_os("PATH").iter().flat_map(env::split_paths).collect();
        path.extend(["/usr/bin", "/usr/sbin", "/sbin"].map(PathBuf::from));
        Self { path, postgres_root: PathBuf::from("/usr/lib/postgresql") }
    }

    /// Looks only in these places.
    #[must_use]
    pub fn new(path: Vec<PathBuf>, postgres_root: PathBuf) -> Self {
        Self { path, postgres_root }
    }

    /// The first program of this name in PATH.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().map(|dir| dir.join(name)).find(|file| file.is_file())
    }

    /// RabbitMQ's own start script, past Debian's, which changes the user.
    #[must_use]
    pub fn rabbitmq(&self) -> Option<PathBuf> {
        let debian = PathBuf::from("/usr/lib/rabbitmq/bin/rabbitmq-server");
        Some(debian).filter(|script| script.is_file()).or_else(|| self.program("rabbitmq-server"))
    }

    /// The `bin` folder of a PostgreSQL server: of that major version where one is asked for and present,
    /// otherwise of the one in PATH, otherwise the newest.
    #[must_use]
    pub fn postgres(&self, major: Option<&str>) -> Option<PathBuf> {
        let asked = major.map(|major| self.postgres_root.join(major).join("bin"));

        asked
            .filter(|bin| is_server(bin))
            // A link in /usr/local/bin leads to the folder where pgbench and psql are too.
            .or_else(|| Some(self.program("postgres")?.canonicalize().ok()?.parent()?.to_owned()))
            .filter(|bin| is_server(bin))
            .or_else(|| self.newest_postgres())
    }

    fn newest_postgres(&self) -> Option<PathBuf> {
        let versions = fs::read_dir(&self.postgres_root).ok()?.flatten();
        versions
            .filter_map(|entry| {
                Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin")))
            })
            .filter(|(_, bin)| is_server(bin))
            .max_by_key(|(version, _)| *version)
            .map(|(_, bin)| bin)
    }
}

fn is_server(bin: &Path) -> bool {
    bin.join("postgres").is_file() && bin.join("initdb").is_file()
}
