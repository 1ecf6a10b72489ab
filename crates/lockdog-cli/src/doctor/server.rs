//! The steps that one server answers: login, round trips, clock, scripts, messages.

use std::time::{Duration, Instant, SystemTime};

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, ConnectionInfo, IntoConnectionInfo, RedisError, Value};

use super::found::{Found, State, millis};
use super::stream::{Stream, by_tcp, open, place};
use crate::args::Doctor;
use crate::connect::{Settings, hosts_of};
use crate::output::Output;

/// Checks the way to the server of this URL. Of sentinels and clusters it checks the way to each host that the
/// URL names; the library finds the servers behind them.
pub(super) async fn check(
    args: &Doctor,
    url: &str,
    settings: &Settings,
    output: Output,
) -> Vec<Found> {
    let mut all = Vec::new();
    let mut report = |found: Found| {
        found.show(output);
        all.push(found);
    };
    if let Some(hosts) = hosts_of(url) {
        let mut is_any = false;
        for (host, port) in hosts {
            let mut of_host = |found: Found| {
                // Not all of them have to be there.
                let state = match found.state {
                    State::Fail => State::Warn,
                    state => state,
                };
                report(Found { state, ..found });
            };
            is_any |= by_tcp(&host, port, settings.limit(), &mut of_host)
                .await
                .is_some();
        }
        if !is_any {
            report(Found::new(
                "connect",
                "",
                State::Fail,
                "none of the servers can be reached",
            ));
        }
        return all;
    }
    match information(url, settings) {
        Some(info) => steps(args, &info, settings, &mut report).await,
        None => {
            let found = Found::new("url", "", State::Fail, "the URL is not valid");
            report(
                found.fix("write it as redis://host:6379; `lockdog --help` has the other forms"),
            );
        }
    }
    all
}

fn information(url: &str, settings: &Settings) -> Option<ConnectionInfo> {
    // The error would quote the URL.
    let info = url.into_connection_info().ok()?;
    let mut login = info.redis_settings().clone();
    let (user, password) = settings.login();
    if let Some(user) = user {
        login = login.set_username(user);
    }
    if let Some(password) = password {
        login = login.set_password(password);
    }
    Some(info.set_redis_settings(login))
}

async fn steps(
    args: &Doctor,
    info: &ConnectionInfo,
    settings: &Settings,
    report: &mut impl FnMut(Found),
) {
    let place = place(info);
    let Some(stream) = open(info, settings, report).await else {
        return;
    };
    let limit = settings.limit();
    let Some(mut connection) = login(stream, info, &place, limit, report).await else {
        return;
    };
    let checks = async {
        let is_answering = pings(&mut connection, &place, report).await;
        if is_answering {
            clock(&mut connection, &place, report).await;
            scripts(&mut connection, &place, report).await;
        }
        is_answering
    };
    match tokio::time::timeout(5 * limit, checks).await {
        Ok(true) => {}
        Ok(false) => return,
        Err(_) => return report(Found::silent("ping", &place)),
    }
    // A connection of its own, whose way is known by now.
    let Some(stream) = open(info, settings, &mut |_| {}).await else {
        return;
    };
    let channel = channel(&args.lock_prefix);
    let checked = messages(stream, info, &mut connection, &channel, &place);
    match tokio::time::timeout(2 * limit, checked).await {
        Ok(found) => report(found),
        Err(_) => report(
            Found::new(
                "messages",
                &place,
                State::Warn,
                "no message arrived in time",
            )
            .fix("without messages, waiters poll once a second"),
        ),
    }
}

async fn login(
    stream: Box<dyn Stream>,
    info: &ConnectionInfo,
    place: &str,
    limit: Duration,
    report: &mut impl FnMut(Found),
) -> Option<MultiplexedConnection> {
    let began = Instant::now();
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(limit));
    let opening = async {
        let opened = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config);
        let (mut connection, driver) = opened.await?;
        tokio::spawn(driver);
        // Without a password the login sends nothing, so this is the first that the server may refuse.
        let ping = redis::cmd("PING");
        match ping.query_async::<Value>(&mut connection).await {
            // A user who may not run it is logged in.
            Err(error) if error.code() != Some("NOPERM") => Err(error),
            _ => Ok::<_, RedisError>(connection),
        }
    };
    let Ok(opened) = tokio::time::timeout(limit, opening).await else {
        report(Found::silent("login", place));
        return None;
    };
    match opened {
        Ok(connection) => {
            report(logged_in(info, place).since(began));
            Some(connection)
        }
        Err(error) => {
            let found = Found::new("login", place, State::Fail, refusal(&error)).answered();
            let fix = "give the user with --user, and the password by LOCKDOG_PASSWORD or --password-file";
            report(found.fix(fix).since(began));
            None
        }
    }
}

/// As whom the server knows the connection: a user without a password is not sent.
fn logged_in(info: &ConnectionInfo, place: &str) -> Found {
    let settings = info.redis_settings();
    let (user, has_password) = (settings.username(), settings.password().is_some());
    let found = |state, text: String| Found::new("login", place, state, text).answered();
    match (user, has_password) {
        (Some(user), true) => found(State::Ok, format!("{user}, with a password")),
        (None, true) => found(State::Ok, "the default user, with a password".to_owned()),
        (None, false) => found(State::Ok, "the default user, without a password".to_owned()),
        (Some(user), false) => {
            let text = format!("the default user, because {user} has no password here");
            let fix =
                "give the password by LOCKDOG_PASSWORD or --password-file, or remove the user";
            found(State::Warn, text).fix(fix)
        }
    }
}

/// A refusal without the server's text, which may repeat what was sent.
fn refusal(error: &RedisError) -> String {
    match error.code() {
        Some(code) => format!("the server answers {code}"),
        None => error.category().to_owned(),
    }
}

/// Returns whether the server answers.
async fn pings(
    on: &mut MultiplexedConnection,
    place: &str,
    report: &mut impl FnMut(Found),
) -> bool {
    let mut times = Vec::new();
    for _ in 0..PINGS {
        let began = Instant::now();
        if let Err(error) = redis::cmd("PING").query_async::<Value>(on).await {
            let found = Found::new("ping", place, State::Warn, "PING is refused");
            let is_refused = error.code().is_some();
            report(match is_refused {
                true => found.answered().fix("grant +ping to the user"),
                false => Found::silent("ping", place),
            });
            return is_refused;
        }
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let (middle, most) = (times[PINGS / 2], times[PINGS - 1]);
    let text = format!(
        "the median of {PINGS} round trips, at most {}",
        millis(most)
    );
    report(Found::new("ping", place, State::Ok, text).took(middle));
    true
}

/// Redisson takes times of some locks from the client's clock.
async fn clock(on: &mut MultiplexedConnection, place: &str, report: &mut impl FnMut(Found)) {
    let micros = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.map_or(0.0, |now| now.as_secs_f64())
    };
    let before = micros();
    let Ok((seconds, fraction)) = redis::cmd("TIME").query_async::<(f64, f64)>(on).await else {
        report(Found::new("clock", place, State::Unknown, "TIME is refused").answered());
        return;
    };
    let server = seconds + fraction / 1e6;
    let difference = server - (before + micros()) / 2.0;
    let apart = difference.abs() * 1_000.0;
    let text = match difference {
        _ if apart < 0.1 => "the server's and this machine's differ by less than 0.1 ms".to_owned(),
        0.0.. => format!("the server's is {apart:.1} ms ahead of this machine's"),
        _ => format!("the server's is {apart:.1} ms behind this machine's"),
    };
    let found = match difference.abs() < MOST_APART {
        true => Found::new("clock", place, State::Ok, text),
        false => Found::new("clock", place, State::Warn, text)
            .answered()
            .fix("let both keep the time by NTP: Redisson's fair locks compare the two"),
    };
    report(found);
}

/// By digest, and with the text once the server does not know it.
async fn scripts(on: &mut MultiplexedConnection, place: &str, report: &mut impl FnMut(Found)) {
    let began = Instant::now();
    let script = redis::Script::new(SCRIPT);
    let by_digest = redis::cmd("EVALSHA")
        .arg(script.get_hash())
        .arg(0)
        .query_async::<Value>(on)
        .await;
    let known = match by_digest {
        Ok(_) => "known by its digest",
        Err(error) if error.code() == Some("NOSCRIPT") => {
            let whole = redis::cmd("EVAL")
                .arg(SCRIPT)
                .arg(0)
                .query_async::<Value>(on)
                .await;
            if let Err(error) = whole {
                report(no_scripts(place, &error));
                return;
            }
            "by its text, because the digest is not known"
        }
        Err(error) => {
            report(no_scripts(place, &error));
            return;
        }
    };
    report(
        Found::new(
            "scripts",
            place,
            State::Ok,
            format_args!("a script ran {known}"),
        )
        .since(began),
    );
}

fn no_scripts(place: &str, error: &RedisError) -> Found {
    Found::new("scripts", place, State::Fail, refusal(error))
        .answered()
        .fix("grant +eval +evalsha to the user: every lock needs them")
}

/// From PUBLISH to the arrival.
async fn messages(
    stream: Box<dyn Stream>,
    info: &ConnectionInfo,
    on: &mut MultiplexedConnection,
    channel: &str,
    place: &str,
) -> Found {
    let refused = |error: &RedisError| {
        Found::new("messages", place, State::Warn, refusal(error))
            .answered()
            .fix("grant +subscribe +publish and the channels of its locks to the user, or name one of its locks with --lock-prefix: without messages, waiters poll once a second")
    };
    let mut subscriber = match PubSub::new(info.redis_settings(), stream).await {
        Ok(subscriber) => subscriber,
        Err(error) => return refused(&error),
    };
    if let Err(error) = subscriber.subscribe(channel).await {
        return refused(&error);
    }
    let began = Instant::now();
    let published = redis::cmd("PUBLISH")
        .arg(channel)
        .arg("0")
        .query_async::<Value>(on)
        .await;
    if let Err(error) = published {
        return refused(&error);
    }
    let mut messages = subscriber.on_message();
    let arrived = std::future::poll_fn(|context| {
        futures_util::Stream::poll_next(std::pin::Pin::new(&mut messages), context)
    });
    match arrived.await {
        Some(_) => Found::new(
            "messages",
            place,
            State::Ok,
            "from PUBLISH to the subscriber",
        )
        .since(began),
        None => Found::new(
            "messages",
            place,
            State::Warn,
            "the connection for messages broke",
        ),
    }
}

/// The channel of a lock that no other program uses.
fn channel(prefix: &str) -> String {
    let name = format!("{prefix}{}", std::process::id());
    match name.contains('{') {
        true => format!("redisson_lock__channel:{name}"),
        false => format!("redisson_lock__channel:{{{name}}}"),
    }
}

const PINGS: usize = 20;
/// In seconds.
const MOST_APART: f64 = 1.0;
/// It is no script of a lock, so it is not known at the first time.
const SCRIPT: &str = "return 'lockdog doctor'";
