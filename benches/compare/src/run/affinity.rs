//! Which cores run what.
//!
//! On few cores the scheduler jumps between waking a thread on its waker's core and on another one,
//! three times as slow, and stays with either for seconds. So servers stay on one core.

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::Result;

/// A thread that has ended meanwhile needs no core.
pub(crate) fn bind(thread: Option<Pid>, cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    match sched_setaffinity(thread, &set) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(failure) => Err(failure.into()),
    }
}
