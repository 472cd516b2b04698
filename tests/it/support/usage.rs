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
        let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let resident = of("VmRSS:").expect("its memory");
        let memory = resident.trim().trim_end_matches(" kB").parse().expect("a number");
        let files = std::fs::read_dir(format!("/proc/{process}/fd")).expect("its files").count();
        // Older kernels do not tell.
        let has_huge_pages = of("THP_enabled:").is_some_and(|enabled| enabled.trim() == "1");
        Self { memory, files, has_huge_pages }
    }

    /// The most memory that a process ever had, in KiB; nothing once it has ended.
    pub fn most_of(process: u32) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        most.trim().trim_end_matches(" kB").parse().ok()
    }

    /// KiB that came to it since.
    pub fn grown_since(&self, before: &Self) -> u64 {
        self.memory.saturating_sub(before.memory)
    }
}
