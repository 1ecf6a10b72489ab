//! Where a rule waits for the test, and the test for the rule.

use std::time::Duration;

use tokio::sync::watch;

/// Closed at first. Cloning gives another handle to the same gate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    stage: watch::Sender<Stage>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Opens the gate for all that wait and come later.
    pub(crate) fn open(&self) {
        self.stage.send_modify(|stage| stage.open = true);
    }

    /// Waits until a command or reply is held by the gate. Fails the test after thirty seconds.
    pub(crate) async fn wait_reached(&self) {
        self.wait("nothing reached the gate", |stage| stage.reached)
            .await;
    }

    /// Waits until what the gate held back has had its effect; fails the test after thirty seconds. A held request was
    /// only sent to the server by then.
    pub(crate) async fn wait_passed(&self) {
        self.wait("nothing passed the gate", |stage| stage.passed.is_some())
            .await;
        let outcome = self.stage.borrow().passed.clone();
        if let Some(Err(reason)) = outcome {
            panic!("what the gate held back could not be delivered: {reason}");
        }
    }

    /// Lets what the gate holds back have its effect.
    pub(crate) async fn let_pass(&self) {
        self.open();
        self.wait_passed().await;
    }

    pub(super) async fn hold(&self) {
        self.reach();
        self.opened().await;
    }

    pub(super) fn reach(&self) {
        self.stage.send_modify(|stage| stage.reached = true);
    }

    pub(super) async fn opened(&self) {
        let mut stage = self.stage.subscribe();
        // The sender is ours, so the wait can only end with an open gate.
        let _ = stage.wait_for(|stage| stage.open).await;
    }

    pub(super) fn pass(&self, outcome: std::io::Result<()>) {
        let outcome = outcome.map_err(|error| error.to_string());
        self.stage.send_modify(|stage| stage.passed = Some(outcome));
    }

    async fn wait(&self, complaint: &str, reached: impl Fn(&Stage) -> bool) {
        let mut stage = self.stage.subscribe();
        let wait = stage.wait_for(|stage| reached(stage));
        if tokio::time::timeout(REACHED_WITHIN, wait).await.is_err() {
            panic!("{complaint} within {REACHED_WITHIN:?}");
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Stage {
    open: bool,
    passed: Option<Result<(), String>>,
    reached: bool,
}

const REACHED_WITHIN: Duration = Duration::from_secs(30);
