//! The story, act by act.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use std::future::IntoFuture;

use lockdog::error::{InstanceState, LostReason};
use lockdog::{Error, Guard};
use tokio::time::sleep;

use crate::Failure;
use crate::five::Five;
use crate::service::{LEASE, NAME, QUARANTINE, Service, acquired, like, quarantined};
use crate::stage::{BLUE, GREY, Stage, Voice, YELLOW, check, ms};

pub(crate) async fn play(stage: &Stage) -> Result<(), Failure> {
    let mut five = Five::start().await?;
    let started = format!("five are started: {}", five.urls().join(", "));
    stage.voice(&SERVERS, &started);
    let first = Service::start(&five).await?;
    let second = Service::start(&five).await?;

    stage.title("An owner that has three of five has the lock");
    let guard = all_well(stage, &five, &first, &second).await?;
    stage.title("Two servers are killed, and work goes on");
    let guard = two_killed(stage, &mut five, guard, &first, &second).await?;
    stage.title(
        "A third one is frozen: no owner can have the lock, and its holder is notified in time",
    );
    one_frozen(stage, &five, guard, &first, &second).await?;
    stage.title("It answers again, and three are enough");
    let guard = resumed(stage, &five, &first, &second).await?;
    stage.title("The killed come back without their data, and do not count yet");
    healed(stage, &mut five, &guard, &second).await?;
    stage.title("A clean end");
    end(stage, &five, guard, first, second).await
}

async fn all_well(
    stage: &Stage,
    five: &Five,
    first: &Service,
    second: &Service,
) -> Result<Guard, Failure> {
    let before = Instant::now();
    let guard = first.lock.lock().await?;
    stage.voice(
        &FIRST,
        &format!("acquired {NAME} in {}", ms(before.elapsed())),
    );
    // A quorum is all that the call waits for; the others follow.
    until("all five to answer", || {
        guard.margin() == 2 && acquired(&guard) == [1, 2, 3, 4, 5]
    })
    .await?;
    stage.voice(
        &REPORT,
        "acquired on all five; margin 2: two of them may yet be lost",
    );
    for number in 1..=5 {
        let hash: BTreeMap<String, u64> = five.ask(number, &["HGETALL", NAME]).await?;
        let mut fields = hash.keys();
        let ours = fields
            .next()
            .is_some_and(|field| field.starts_with(&first.id_on(number)));
        check(
            ours && fields.next().is_none(),
            "not every server has it as expected",
        )?;
    }
    stage.voice(
        &SERVERS,
        "each has one field, of the first service's client for this server",
    );
    busy(stage, second).await?;
    Ok(guard)
}

async fn two_killed(
    stage: &Stage,
    five: &mut Five,
    guard: Guard,
    first: &Service,
    second: &Service,
) -> Result<Guard, Failure> {
    five.kill(4)?;
    five.kill(5)?;
    stage.voice(&SERVERS, "4 and 5 are killed");
    let steps = work(&guard, LEASE + LEASE / 5).await?;
    stage.voice(
        &FIRST,
        &format!("worked on for more than a lease: {steps} steps, the lock never lost"),
    );
    until("the report to show it", || {
        guard.margin() == 0 && acquired(&guard) == [1, 2, 3] && unreachable(&guard) == [4, 5]
    })
    .await?;
    report_unreachable(stage, &guard, &[4, 5]);
    stage.voice(
        &REPORT,
        "acquired on 1, 2 and 3; margin 0: none may be lost now",
    );
    busy(stage, second).await?;

    let waiting = tokio::spawn(second.lock.lock().into_future());
    // So that it has asked, was refused, and listens.
    sleep(Duration::from_millis(200)).await;
    check(!waiting.is_finished(), "two have the lock")?;
    let before = Instant::now();
    guard.unlock().await?;
    let theirs = waiting.await??;
    let took = before.elapsed();
    check(theirs.is_valid(), "it was acquired, and is not valid")?;
    stage.voice(&FIRST, "unlocked");
    stage.voice(
        &SECOND,
        &format!("had waited; acquired {} after the unlock began", ms(took)),
    );
    theirs.unlock().await?;
    stage.voice(&SECOND, "unlocked");

    let before = Instant::now();
    let guard = first.lock.lock().await?;
    let took = before.elapsed();
    check(
        took < LEASE,
        "it waited for servers that are known to be gone",
    )?;
    stage.voice(
        &FIRST,
        &format!("acquired in {}: the dead are not waited for", ms(took)),
    );
    Ok(guard)
}

async fn one_frozen(
    stage: &Stage,
    five: &Five,
    guard: Guard,
    first: &Service,
    second: &Service,
) -> Result<(), Failure> {
    five.freeze(3)?;
    stage.voice(
        &SERVERS,
        "3 is frozen (SIGSTOP), 4 and 5 are dead: two of five answer",
    );
    until("the report to show it", || acquired(&guard) == [1, 2]).await?;
    check(guard.is_valid(), "lost before its time was over")?;
    let state = &guard.instances()[2].state;
    stage.voice(&REPORT, &format!("3: {state}"));
    let left = guard.remaining();
    let deadline = Instant::now() + left;
    stage.voice(
        &REPORT,
        &format!(
            "no extension succeeds; the lock is ours for {} yet",
            ms(left)
        ),
    );

    let lost = guard.lost().await;
    let late = Instant::now().saturating_duration_since(deadline);
    check(
        lost.reason() == LostReason::Deadline,
        "lost for another reason",
    )?;
    check(
        !guard.is_valid() && guard.remaining().is_zero(),
        "still believed in",
    )?;
    stage.voice(
        &FIRST,
        &format!(
            "notified that the lock is lost: {}, {} ago",
            lost.reason(),
            ms(late)
        ),
    );
    drop(guard);

    for (voice, service) in [(&FIRST, first), (&SECOND, second)] {
        free(five, &[1, 2]).await?;
        match service.lock.try_lock().await {
            Err(Error::NoQuorum(why)) => {
                let reached = like(why.instances(), |state| {
                    matches!(
                        state,
                        InstanceState::Acquired | InstanceState::HeldByAnother { .. }
                    )
                });
                let is_as_expected = why.need() == 3 && reached.iter().all(|number| *number <= 2);
                check(is_as_expected, "the error says something else")?;
                stage.voice(voice, "tried it: no quorum, three are needed");
            }
            other => return Err(format!("{other:?} without a quorum").into()),
        }
    }
    Ok(())
}

async fn resumed(
    stage: &Stage,
    five: &Five,
    first: &Service,
    second: &Service,
) -> Result<Guard, Failure> {
    let waiting = tokio::spawn(first.lock.lock().into_future());
    sleep(Duration::from_millis(100)).await;
    check(
        !waiting.is_finished(),
        "acquired without a quorum, or given up",
    )?;
    stage.voice(&FIRST, "waits");
    let before = Instant::now();
    five.resume(3)?;
    stage.voice(&SERVERS, "3 goes on (SIGCONT)");
    let guard = waiting.await??;
    let took = before.elapsed();
    check(acquired(&guard) == [1, 2, 3], "other servers than expected")?;
    stage.voice(
        &FIRST,
        &format!("acquired on 1, 2 and 3, {} after that", ms(took)),
    );
    busy(stage, second).await?;
    Ok(guard)
}

async fn healed(
    stage: &Stage,
    five: &mut Five,
    guard: &Guard,
    second: &Service,
) -> Result<(), Failure> {
    let before = Instant::now();
    five.start_again(4).await?;
    five.start_again(5).await?;
    stage.voice(&SERVERS, "4 and 5 are started again, empty");
    until("the report to show it", || {
        quarantined(guard) == [4, 5] && acquired(guard) == [1, 2, 3] && guard.margin() == 0
    })
    .await?;
    for number in [4, 5] {
        let state = &guard.instances()[number - 1].state;
        stage.voice(&REPORT, &format!("{number}: {state}"));
    }
    while guard.margin() < 2 {
        work(guard, Duration::from_millis(50)).await?;
    }
    let took = before.elapsed();
    check(
        took >= QUARANTINE,
        "they counted before every earlier lease was over",
    )?;
    until("all five to answer", || acquired(guard) == [1, 2, 3, 4, 5]).await?;
    stage.voice(
        &REPORT,
        &format!(
            "acquired on all five again after {:.1} s; margin 2",
            took.as_secs_f64()
        ),
    );
    busy(stage, second).await
}

async fn end(
    stage: &Stage,
    five: &Five,
    guard: Guard,
    first: Service,
    second: Service,
) -> Result<(), Failure> {
    guard.unlock().await?;
    stage.voice(&FIRST, "unlocked");
    let theirs = second.lock.lock().await?;
    theirs.unlock().await?;
    stage.voice(&SECOND, "acquired and unlocked");
    first.shutdown().await;
    second.shutdown().await;
    for number in 1..=5 {
        let keys: u64 = five.ask(number, &["DBSIZE"]).await?;
        let channels: Vec<String> = five.ask(number, &["PUBSUB", "CHANNELS"]).await?;
        check(keys == 0 && channels.is_empty(), "something was left")?;
    }
    stage.voice(&SERVERS, "no key and no channel is left on any of the five");
    Ok(())
}

async fn busy(stage: &Stage, second: &Service) -> Result<(), Failure> {
    let began = Instant::now();
    let tried = loop {
        match second.lock.try_lock().await {
            // A server that is late on a busy machine proves nothing.
            Err(error) if error.is_retriable() && began.elapsed() < PATIENCE => {}
            tried => break tried?,
        }
    };
    check(tried.is_none(), "both have the lock")?;
    stage.voice(&SECOND, "tried it: busy");
    Ok(())
}

/// What only the holder does, step by step.
async fn work(guard: &Guard, time: Duration) -> Result<usize, Failure> {
    let (began, mut steps) = (Instant::now(), 0);
    while began.elapsed() < time {
        check(guard.is_valid(), "the lock was lost at work")?;
        steps += 1;
        sleep(Duration::from_millis(20)).await;
    }
    Ok(steps)
}

fn unreachable(guard: &Guard) -> Vec<usize> {
    like(&guard.instances(), |state| {
        matches!(state, InstanceState::Unreachable { .. })
    })
}

fn report_unreachable(stage: &Stage, guard: &Guard, numbers: &[usize]) {
    let instances = guard.instances();
    for number in numbers {
        stage.voice(
            &REPORT,
            &format!("{number}: {}", instances[number - 1].state),
        );
    }
}

/// Looks until it is so. The curfew ends it.
async fn until(what: &str, mut is: impl FnMut() -> bool) -> Result<(), Failure> {
    let began = Instant::now();
    while !is() {
        check(
            began.elapsed() < PATIENCE,
            &format!("waited too long for {what}"),
        )?;
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Waits until the lock is on none of these servers: the client releases in the background what is dropped
/// or not won.
async fn free(five: &Five, numbers: &[usize]) -> Result<(), Failure> {
    let began = Instant::now();
    for number in numbers {
        while five.ask(*number, &["EXISTS", NAME]).await? {
            check(began.elapsed() < PATIENCE, "the lock was not given back")?;
            sleep(Duration::from_millis(5)).await;
        }
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(30);

const FIRST: Voice = Voice {
    name: "first",
    colour: BLUE,
};
const SECOND: Voice = Voice {
    name: "second",
    colour: YELLOW,
};
const SERVERS: Voice = Voice {
    name: "servers",
    colour: GREY,
};
const REPORT: Voice = Voice {
    name: "report",
    colour: GREY,
};
