//! Which server program a test runs against, and where it is found.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    /// The test kit's server, as a process of its own.
    Embedded,
    Redis62,
    Redis7,
    Redis74,
    Redis82,
    Valkey9,
}

impl Binary {
    /// The program that `LOCKDOG_TEST_SERVER` names, so that the same tests run on every server.
    pub(crate) fn under_test() -> Self {
        match std::env::var("LOCKDOG_TEST_SERVER") {
            Err(_) => Self::Redis7,
            Ok(name) => Self::named(&name).unwrap_or_else(|| {
                panic!("LOCKDOG_TEST_SERVER is {name:?}, not redis7, redis62, redis74, redis82, valkey9 or embedded")
            }),
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "embedded" => Some(Self::Embedded),
            "redis7" => Some(Self::Redis7),
            "redis62" => Some(Self::Redis62),
            "redis74" => Some(Self::Redis74),
            "redis82" => Some(Self::Redis82),
            "valkey9" => Some(Self::Valkey9),
            _ => None,
        }
    }

    /// Where the program is; installs what comes from a wheel, and fails the test if that fails.
    pub(crate) fn path(self) -> PathBuf {
        let name = match self {
            Self::Embedded => return embedded(),
            Self::Redis7 => return PathBuf::from("redis-server"),
            Self::Redis62 => "redis-server-6.2",
            Self::Redis74 => "redis-server-7.4",
            Self::Redis82 => "redis-server-8.2",
            Self::Valkey9 => "valkey-server-9",
        };
        install_wheels(self);
        root().join("target/servers").join(name)
    }

    /// Starts the program before the tests that wait for it, where the user may raise a priority (elsewhere as
    /// usual). A sentinel that gets no processor for two seconds begins no failover for half a minute.
    pub(crate) fn command(self) -> Command {
        let mut command = Command::new("nice");
        command.args(["-n", "-10"]).arg(self.path());
        command
    }

    /// Whether the port for the other nodes of a cluster can be chosen, and slots given in ranges.
    pub(crate) fn has_cluster_port(self) -> bool {
        self != Self::Redis62
    }

    /// Redis 6.2 allows DEBUG always and refuses to start with the option that later servers need.
    pub(crate) fn debug_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Embedded | Self::Redis62 => &[],
            Self::Redis7 | Self::Redis74 | Self::Redis82 | Self::Valkey9 => {
                &["--enable-debug-command", "yes"]
            }
        }
    }
}

/// The test kit's server. `cargo test` of this package alone does not build it.
fn embedded() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows where it is");
        let folder = test.ancestors().nth(2).expect("it is in target/debug/deps");
        let target = folder.parent().expect("it is in target/debug");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(root())
            .args(["build", "--locked", "--workspace", "--example", "serve"])
            .arg("--target-dir")
            .arg(target);
        // What cargo and `tests/run` set for a test: build scripts look at some of it, so that with it
        // dependencies would be built twice: now, and by the next cargo that runs outside a test.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let set = ["CARGO_PKG_", "CARGO_MANIFEST_", "RUSTC_BOOTSTRAP"];
            if set.iter().any(|start| text.starts_with(start)) {
                cargo.env_remove(&name);
            }
        }
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        let output = cargo
            .output()
            .expect("cargo runs this test, so it is there");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "the test server is not built: {errors}"
        );
        folder.join("examples/serve")
    });
    built.clone()
}

/// Installs the servers that come from wheels. Only `make test-all` needs that of Redis 7.4.
fn install_wheels(wanted: Binary) {
    static INSTALLED: [OnceLock<Result<(), String>>; 2] = [OnceLock::new(), OnceLock::new()];
    let more = (wanted == Binary::Redis74).then_some("redis74");
    let outcome = INSTALLED[usize::from(more.is_some())].get_or_init(|| {
        let output = Command::new(root().join("tests/servers/install"))
            .args(more)
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    });
    if let Err(reason) = outcome {
        panic!("the servers of wheels could not be installed, so this test cannot run: {reason}");
    }
}

/// The folder of the project: other crates of the workspace use this support, too.
pub(crate) fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = package.ancestors();
    let root = folders.find(|folder| folder.join("tests/it/support").is_dir());
    root.expect("the tests are in the project")
}
