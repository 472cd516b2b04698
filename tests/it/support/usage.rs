//! What a process uses of the machine, as the kernel tells it.

/// What a process used at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Memory in KiB.
    pub memory: u64,
    /// Open file descriptors.
    pub files: usize,
}

impl Usage {
    pub fn of(process: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        let memory = resident.trim().trim_end_matches(" kB").parse().expect("a number");
        let files = std::fs::read_dir(format!("/proc/{process}/fd")).expect("its files").count();
        Self { memory, files }
    }

    /// KiB that came to it since.
    pub fn grown_since(&self, before: &Self) -> u64 {
        self.memory.saturating_sub(before.memory)
    }
}
