//! What a client logs, and what it keeps quiet about.

use super::ClientBuilder;
use crate::diagnosis::FindingKind;

impl ClientBuilder {
    /// Whether logs at all levels have the lock's name, in the field `lock`, beside its hash. Names may be
    /// personal data, and whoever reads the logs sees them then.
    ///
    /// Defaults to false: logs above `debug` have the hash alone, [`Lock::hash`](crate::Lock::hash).
    pub fn log_names(mut self, enabled: bool) -> Self {
        self.log_names = enabled;
        self
    }

    /// Expects this finding of the diagnosis, because the servers cannot be changed: those of a managed service
    /// often refuse `CONFIG`, for example. The client logs it at `debug` in place of `warn`, and
    /// [`Diagnosis::problems`](crate::report::Diagnosis::problems) leaves it out.
    /// [`Diagnosis::findings`](crate::report::Diagnosis::findings) still has it, with
    /// [`Finding::is_expected`](crate::report::Finding::is_expected). What it costs stays: read the finding once
    /// before.
    ///
    /// Defaults to none. Call it once for each kind.
    pub fn expect_finding(mut self, kind: FindingKind) -> Self {
        self.expected_findings.push(kind);
        self
    }
}
