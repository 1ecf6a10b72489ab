//! One typed call for each Lua file; the only place that says `EVALSHA`.

mod lock;

use std::time::Duration;

use redis::{Cmd, Value};

use crate::clock::Moment;
use crate::server::{Connection, Failure, Sent, Server};

pub(crate) use lock::{
    Acquired, Renewed, Settled, Unlocked, acquire, force_unlock, renew, settle, unlock,
};

/// A Lua file and its digest.
pub(crate) struct Script {
    text: &'static str,
    digest: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        let digest = redis::Script::new(text).get_hash().to_owned();
        Self { text, digest }
    }
}

/// A call that can be sent, and sent again, with the effect of once.
pub(crate) struct Call<'a> {
    script: &'static Script,
    keys: Vec<&'a str>,
    args: Vec<String>,
}

impl Call<'_> {
    /// Runs it on the callers' connection; `sent` tells what may have run if this is dropped.
    async fn through(
        &self,
        server: &Server,
        until: Moment,
        sent: &mut Sent,
    ) -> Result<Value, Failure> {
        server.call(|whole| self.command(whole), until, sent).await
    }

    /// Runs it once on one connection.
    async fn on(&self, connection: &Connection, limit: Duration) -> Result<Value, Failure> {
        match connection.send(&self.command(false), limit).await {
            Err(Failure::Refused { code, .. }) if code == "NOSCRIPT" => {
                connection.send(&self.command(true), limit).await
            }
            answer => answer,
        }
    }

    /// The command that runs the script: by its digest, or with its `whole` text for a server that
    /// does not know it yet.
    fn command(&self, whole: bool) -> Cmd {
        let (name, script) = if whole {
            ("EVAL", self.script.text)
        } else {
            ("EVALSHA", &*self.script.digest)
        };
        let keys = self.keys.iter().map(|key| key.len());
        let args = self.args.iter().map(String::len);
        let size = script.len() + keys.chain(args).sum::<usize>() + HEADER;
        let mut command = Cmd::with_capacity(3 + self.keys.len() + self.args.len(), size);
        command.arg(name).arg(script).arg(self.keys.len());
        command.arg(&self.keys).arg(&self.args);
        command
    }
}

/// Room for the command's name and the number of keys.
const HEADER: usize = 16;

/// An answer that no script of ours gives: a proxy's, say. Nothing may be concluded from it.
fn unexpected(value: &Value) -> Failure {
    let text: String = format!("{value:?}").chars().take(100).collect();
    Failure::Broken(format!("unexpected answer: {text}").into())
}
