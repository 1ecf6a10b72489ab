//! What is asked for on the command line.

use std::path::PathBuf;

use crate::Result;

#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// One short round of fewer cells, with fewer peers.
    pub(crate) quick: bool,
    /// Workloads; all if empty.
    pub(crate) only: Vec<String>,
    /// Libraries; all that can be built if empty.
    pub(crate) libraries: Vec<String>,
    /// Owners in W1, W2 and W6; the plan's if empty.
    pub(crate) owners: Vec<usize>,
    pub(crate) seconds: Option<f64>,
    pub(crate) rounds: Option<usize>,
    /// Where the report goes; none writes the raw lines and prints the tables.
    pub(crate) docs: Option<PathBuf>,
    /// Binds the servers to this core. Measured on two: rounds vary more with it than without.
    pub(crate) core: Option<usize>,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match *word {
                "--quick" => options.quick = true,
                "--only" => options.only = list(value()?),
                "--libraries" => options.libraries = list(value()?),
                "--owners" => {
                    let owners = list(value()?);
                    let owners: std::result::Result<_, _> =
                        owners.iter().map(|n| n.parse()).collect();
                    options.owners = owners?;
                }
                "--seconds" => options.seconds = Some(value()?.parse()?),
                "--rounds" => options.rounds = Some(value()?.parse()?),
                "--core" => options.core = Some(value()?.parse()?),
                "--docs" => options.docs = Some(PathBuf::from(value()?)),
                other => return Err(format!("{other} is not known; {USAGE}").into()),
            }
        }
        Ok(options)
    }

    pub(crate) fn wants(&self, workload: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == workload)
    }
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

const USAGE: &str = "compare [--quick] [--only W1,W2] [--libraries lockdog,raw] [--owners 1,16] \
                     [--seconds 2] [--rounds 3] [--docs folder] [--core 1]";
