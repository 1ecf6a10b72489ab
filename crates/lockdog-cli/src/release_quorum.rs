//! `lockdog release` on several servers: takes a RedLock away from the holder that was shown.

use lockdog::Client;
use lockdog::report::{HolderInfo, LockInfo, LockKind};
use serde_json::{Value, json};

use crate::args::Release;
use crate::connect::Settings;
use crate::describe;
use crate::failed::{Failed, NO, YES};
use crate::output::{Output, clean, complain};
use crate::release::{check_flags, check_kind, consequence, free, is_confirmed};

/// What one server said.
struct Instance {
    client: Client,
    /// Its place among the URLs, from 1.
    place: usize,
    answer: Result<LockInfo, Failed>,
    /// The holder that loses the lock here.
    chosen: Option<HolderInfo>,
    is_released: bool,
}

pub(crate) async fn release(
    args: &Release,
    settings: &Settings,
    output: Output,
) -> Result<u8, Failed> {
    check_flags(args)?;
    let mut all = Vec::new();
    for (place, client) in (1..).zip(settings.connect().await?) {
        all.push(Instance::new(client, place, args).await?);
    }
    if all.iter().all(|it| it.answer.is_err()) {
        let failed = all.into_iter().find_map(|it| it.answer.err());
        return Err(failed.expect("there are three or more"));
    }
    if !can_be_released(&all) {
        report(args, &all, output);
        return Ok(NO);
    }
    if !args.yes {
        // Also with --quiet: who answers has to see the holders.
        for instance in &all {
            match &instance.answer {
                Ok(info) => describe::lines(info, Some(&[]))
                    .into_iter()
                    .for_each(complain),
                Err(failed) => complain(&failed.text),
            }
        }
        let chosen = all.iter().filter_map(|it| it.chosen.as_ref());
        let chosen: Vec<String> = chosen.map(describe::short).collect();
        if !is_confirmed(&args.name, &chosen.join(" and "))? {
            output.note("nothing was released");
            return Ok(NO);
        }
        // While the user was asked, servers may have failed, and the holder may have lost the lock.
        for instance in &mut all {
            instance.ask(&args.name).await;
            instance.forget_other_holder();
        }
    }
    for next in 0..all.len() {
        if !can_be_released(&all) {
            break;
        }
        all[next].release(&args.name).await;
    }
    let is_released = report(args, &all, output);
    Ok(if is_released { YES } else { NO })
}

/// The size of a quorum.
fn need(all: &[Instance]) -> usize {
    all.len() / 2 + 1
}

/// Whether the holder can lose the lock on a quorum. On fewer servers it might keep its quorum, and would only have
/// fewer servers to spare.
fn can_be_released(all: &[Instance]) -> bool {
    let can_lose = |it: &&Instance| it.answer.is_ok() && it.chosen.is_some();
    let is_gone_or_can = |it: &&Instance| it.is_gone() || can_lose(it);
    let enough = all.iter().filter(is_gone_or_can).count() >= need(all);
    enough && all.iter().any(|it| it.is_released || can_lose(&it))
}

impl Instance {
    async fn new(client: Client, place: usize, args: &Release) -> Result<Self, Failed> {
        let answer = client.inspect(&args.name).await.map_err(Failed::from);
        let mut chosen = None;
        if let Ok(info) = &answer {
            check_kind(info)?;
            if let LockKind::Fair | LockKind::ReadWrite = info.kind {
                return Err(Failed::new(format_args!(
                    "{} is {} on {}, and no RedLock; release it with that --url alone",
                    clean(&info.key),
                    describe::kind(info),
                    clean(&info.server)
                )));
            }
            let mut holders = info.holders.iter();
            let is_meant = |it: &&HolderInfo| {
                args.holder.is_empty() || args.holder.iter().any(|field| field == it.field())
            };
            chosen = holders.find(is_meant).cloned();
        }
        Ok(Self {
            client,
            place,
            answer,
            chosen,
            is_released: false,
        })
    }

    /// Whether no one holds the lock here, as far as it is known.
    fn is_free(&self) -> bool {
        self.answer.as_ref().is_ok_and(|info| !info.is_held())
    }

    /// Whether the holder does not have the lock here, as far as it is known. Another owner may have it already.
    fn is_gone(&self) -> bool {
        self.is_released || self.is_free()
    }

    async fn ask(&mut self, name: &str) {
        self.answer = self.client.inspect(name).await.map_err(Failed::from);
    }

    /// A holder that does not have the lock here any more cannot lose it.
    fn forget_other_holder(&mut self) {
        if let Ok(info) = &self.answer {
            let has = |field: &str| info.holders.iter().any(|it| it.field() == field);
            self.chosen = self.chosen.take().filter(|chosen| has(chosen.field()));
        }
    }

    /// Takes the lock away from the chosen holder, and asks who has it then.
    async fn release(&mut self, name: &str) {
        let (Ok(_), Some(holder)) = (&self.answer, &self.chosen) else {
            return;
        };
        match free(&self.client, name, holder).await {
            Ok(is_released) => {
                self.is_released = is_released;
                if !is_released {
                    self.chosen = None;
                }
                self.ask(name).await;
            }
            Err(failed) => self.answer = Err(failed),
        }
    }

    fn holder(&self) -> Option<&HolderInfo> {
        self.answer.as_ref().ok()?.holders.first()
    }

    fn object(&self) -> Value {
        let from = self.chosen.as_ref().filter(|_| self.is_released);
        json!({
            "place": self.place,
            "server": self.answer.as_ref().ok().map(|info| &info.server),
            "released": self.is_released,
            "from": from.map(HolderInfo::field),
            "held_by": self.holder().map(HolderInfo::field),
            "error": self.answer.as_ref().err().map(|failed| &failed.text),
        })
    }

    fn line(&self) -> String {
        let info = match &self.answer {
            Ok(info) => info,
            Err(failed) => {
                let released = if self.is_released { "released; " } else { "" };
                return format!("server {}: {released}{}", self.place, failed.text);
            }
        };
        let server = clean(&info.server);
        match (self.is_released, self.holder()) {
            (true, None) => format!("{server}: released"),
            (true, Some(holder)) => format!(
                "{server}: released; held by {} now",
                describe::short(holder)
            ),
            (false, Some(holder)) => format!(
                "{server}: not released; held by {}",
                describe::short(holder)
            ),
            (false, None) => format!("{server}: free"),
        }
    }
}

/// Returns whether the holder lost the lock on a quorum, and others can have it or have it.
fn report(args: &Release, all: &[Instance], output: Output) -> bool {
    let need = need(all);
    let free = all.iter().filter(|it| it.is_free()).count();
    let released = all.iter().filter(|it| it.is_released).count();
    let gone = all.iter().filter(|it| it.is_gone()).count();
    let is_released = released > 0 && gone >= need;
    if output.json {
        let instances: Vec<Value> = all.iter().map(Instance::object).collect();
        output.object(json!({
            "key": args.name, "kind": "red_lock", "released": is_released, "released_on": released,
            "free_on": free, "servers": all.len(), "need": need, "instances": instances,
        }));
        return is_released;
    }
    let name = clean(&args.name);
    let state = if is_released {
        "was released"
    } else {
        "was not released"
    };
    let follows = all
        .iter()
        .find(|it| it.is_released)
        .and_then(|it| it.chosen.as_ref());
    let follows = follows.filter(|_| is_released).map_or("", consequence);
    let end = if follows.is_empty() { "" } else { "; " };
    output.line(format_args!(
        "{name} {state}: released on {released} of {} servers, free on {free}; {need} are a quorum{end}{follows}",
        all.len()
    ));
    for instance in all {
        output.line(format_args!("  {}", instance.line()));
    }
    is_released
}
