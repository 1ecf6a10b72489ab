//! A client in a process of its own, which the benchmark kills.

use std::io::Read;
use std::process::{Child, ChildStdout, Command, Stdio};

use tokio::task::spawn_blocking;

use crate::Result;

/// Ended when dropped.
pub(super) struct Process(Child);

impl Process {
    /// Runs this program with these arguments. Returns its output, too.
    pub(super) fn start(args: &[&str]) -> Result<(Self, ChildStdout)> {
        let child = Command::new(std::env::current_exe()?)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut process = Self(child);
        let output = process.0.stdout.take().ok_or("a process has no output")?;
        Ok((process, output))
    }

    pub(super) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }

    /// Fails if it ended before.
    pub(super) fn kill(mut self) -> Result<()> {
        self.0.kill()?;
        match self.0.wait()?.code() {
            Some(_) => Err("a process ended before it was killed".into()),
            None => Ok(()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// In such a process: waits for the end of its input, in case its parent ends first.
pub(super) async fn until_input_ends() -> Result<()> {
    spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}
