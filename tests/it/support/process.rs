//! What the operating system knows of the binary under test.

use std::process::Command;

#[derive(Debug, Clone, Copy)]
pub enum Signal {
    Term,
    Kill,
    Stop,
    Continue,
}

impl Signal {
    /// Sends the signal to a process.
    pub fn send(self, pid: u32) {
        let name = match self {
            Self::Term => "TERM",
            Self::Kill => "KILL",
            Self::Stop => "STOP",
            Self::Continue => "CONT",
        };
        let status = Command::new("sh")
            .args(["-c", &format!("kill -{name} {pid}")])
            .status()
            .unwrap();
        assert!(status.success(), "kill -{name} {pid}");
    }
}

/// Memory of a process that is in RAM, or `None` where `/proc` is not as on Linux.
pub fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Whether every thread of a process stands still: a signal to stop takes effect a little after it is sent. `true` where
/// `/proc` is not as on Linux.
pub fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name before it may hold anything.
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    })
}
