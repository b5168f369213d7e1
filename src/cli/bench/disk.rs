//! How long the disk takes to make a write durable: the floor under every acknowledgement.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

const WRITES: usize = 200;
const BLOCK: [u8; 8192] = [b'x'; 8192];

/// The median time of a write of 8 KiB and its fdatasync, in this folder.
///
/// # Errors
/// The folder cannot be written.
pub(super) fn sync_time(folder: &Path) -> std::io::Result<Duration> {
    let mut file: File = tempfile_in(folder)?;
    let mut times = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let begun = Instant::now();
        file.write_all(&BLOCK)?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[WRITES / 2])
}

/// A file that nobody else sees, and that is gone when it is closed.
fn tempfile_in(folder: &Path) -> std::io::Result<File> {
    let path = folder.join(format!(".cerca-bench-{:016x}", rand::random::<u64>()));
    let file = File::options().write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
