//! The settings for logs: names, and expected findings.

use super::ClientBuilder;
use crate::diagnosis::FindingKind;

impl ClientBuilder {
    /// Whether logs at all levels have the lock's name, in the field `lock`, in addition to its hash. Names may be
    /// personal data, and every reader of the logs then sees them.
    ///
    /// Defaults to false: logs above `debug` have the hash alone, [`Lock::hash`](crate::Lock::hash). Redisson has no such
    /// setting.
    pub fn log_names(mut self, enabled: bool) -> Self {
        self.log_names = enabled;
        self
    }

    /// Expects findings of this kind from the diagnosis, because you cannot change the servers. For example, a
    /// managed service often refuses `CONFIG`. The client logs such a finding at `debug` in place of `warn`, and
    /// [`Diagnosis::problems`](crate::report::Diagnosis::problems) leaves it out.
    /// [`Diagnosis::findings`](crate::report::Diagnosis::findings) still has it, with
    /// [`Finding::is_expected`](crate::report::Finding::is_expected). The consequence for locks remains, so read
    /// the finding first.
    ///
    /// Defaults to none. Call it once for each kind. Redisson has no such setting.
    pub fn expect_finding(mut self, kind: FindingKind) -> Self {
        self.expected_findings.push(kind);
        self
    }
}
