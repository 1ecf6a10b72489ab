//! A driver: puts one library through the cells that the runner asks for.

mod bare;
mod bare_election;
mod bare_latch;
mod bare_scripts;
mod crew;
mod crowd;
mod dying;
mod election;
mod hold;
mod latch;
mod library;
mod lockdog;
mod process;
mod raw;
mod rslock;
mod stage;
mod tally;
mod wake;

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::Result;
pub(crate) use crate::drive::dying::wait_in_line;
pub(crate) use crate::drive::election::lead;
use crate::drive::library::Library;
use crate::drive::stage::Stage;
use crate::protocol::Request;

/// Serves the runner until the end of input.
pub(crate) fn serve(library: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match library {
            "lockdog" => cells::<lockdog::Lockdog>().await,
            "raw" => cells::<raw::Raw>().await,
            "rslock" => cells::<rslock::Rslock>().await,
            _ => Err(format!("there is no driver for {library}").into()),
        }
    })
}

async fn cells<L: Library>() -> Result<()> {
    let mut stage = Stage::new();
    while let Some(request) = stage.next().await? {
        let figures = match L::refuses(&request.workload) {
            Some(why) => object(json!({ "unsupported": why })),
            None => match measure::<L>(&request, &mut stage).await {
                Ok(figures) => figures,
                Err(failure) => object(json!({ "failed": failure.to_string() })),
            },
        };
        stage.result(request.cell, figures)?;
        // What the clients of this cell leave to the background is not charged to the next one.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn measure<L: Library>(request: &Request, stage: &mut Stage) -> Result<Map<String, Value>> {
    match request.workload.as_str() {
        "W1" | "W2" | "W3" | "W6" | "W7" | "W7-local" | "W14" | "W16" | "W18" => {
            crew::measure::<L>(request, stage).await
        }
        "W8a" | "W8b" | "W8c" | "W9a" | "W9b" | "W9c" | "W11a" | "W11b" | "W11c" => {
            crew::measure::<L>(request, stage).await
        }
        "W8d" => dying::measure(request, stage).await,
        "W4" | "W8w" => wake::measure::<L>(request, stage).await,
        "W5" => hold::locks(request, stage).await,
        "W12" => hold::permits(request, stage).await,
        "W13" => latch::measure(request, stage).await,
        "W17" => crowd::measure(request, stage).await,
        "W15r" => election::resigned(request, stage).await,
        "W15k" => election::killed(request, stage).await,
        "rtt" | "idle" | "serial" => bare::measure(request, stage).await,
        "latch" => bare_latch::measure(request, stage).await,
        "campaign" => bare_election::resigned(request, stage).await,
        other => Ok(object(
            json!({ "unsupported": format!("{other} is not known here") }),
        )),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
