//! What a process uses of the machine, as the kernel tells it.

/// What a process used at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Memory in KiB.
    pub memory: u64,
    /// Open file descriptors.
    pub files: usize,
    /// Whether the kernel may give it huge pages.
    pub has_huge_pages: bool,
}

impl Usage {
    pub fn of(process: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
        let memory = kib(&status, "VmRSS:").expect("its memory");
        let files = std::fs::read_dir(format!("/proc/{process}/fd")).expect("its files").count();
        // Older kernels do not tell.
        let has_huge_pages = value(&status, "THP_enabled:").is_some_and(|enabled| enabled == "1");
        Self { memory, files, has_huge_pages }
    }

    /// The most memory that a process ever had, in KiB; nothing once it has ended.
    pub fn most_of(process: u32) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        kib(&status, "VmHWM:")
    }

    /// KiB that came to it since.
    pub fn grown_since(&self, before: &Self) -> u64 {
        self.memory.saturating_sub(before.memory)
    }
}

fn value<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn kib(status: &str, name: &str) -> Option<u64> {
    value(status, name)?.trim_end_matches(" kB").parse().ok()
}
