//! Every script does on the test server what it does on Redis 7.0: same answer, same keys, same
//! messages, for random states and arguments.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::support::cases;
use crate::support::compare::{Pair, twice_if_different};

/// One call of a script.
#[derive(Clone, Debug)]
struct Call {
    keys: Vec<String>,
    args: Vec<String>,
}

/// What is under a key before.
#[derive(Clone, Debug)]
struct Before {
    commands: Vec<Vec<String>>,
}

#[test]
fn every_script_behaves_as_on_redis() {
    let files = scripts(&root().join("lua"));
    assert!(files.len() >= 50, "{files:?}");
    let files = Mutex::new(files.into_iter());
    let next = || files.lock().expect("no thread panics with it").next();
    thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                let mut pair = RefCell::new(Pair::start());
                while let Some(file) = next() {
                    behaves_as_on_redis(&pair, &file);
                }
                pair.get_mut().listen(&[]);
            });
        }
    });
}

fn behaves_as_on_redis(pair: &RefCell<Pair>, file: &Path) {
    let mut text = fs::read_to_string(file).expect("a script is text");
    let name = file
        .strip_prefix(root().join("lua"))
        .expect("it is in there");
    let name = name.to_str().expect("names are plain").to_owned();
    for (function, inner) in inside(&name) {
        let inner = fs::read_to_string(root().join("lua").join(inner)).expect("it is text");
        text = format!("local function {function}\n{inner}\nend\n{text}");
    }
    // The script picks fields at random. Here it reads all of them.
    let chosen = "redis.call('hrandfield', key,";
    if text.contains(chosen) {
        text = format!("{ALL_FIELDS}{}", text.replace(chosen, "all_fields(key,"));
    }
    let config = Config {
        cases: cases(100),
        failure_persistence: None,
        ..Config::default()
    };
    let strategy = (states(), select(LISTENED), vec(calls(&name), 1..4));
    let outcome = TestRunner::new(config).run(&strategy, |(before, listens, calls)| {
        let mut pair = pair.borrow_mut();
        let outcome = twice_if_different(|| replay(&mut pair, &text, &before, listens, &calls));
        outcome.map_err(TestCaseError::fail)
    });
    if let Err(failure) = outcome {
        panic!("{name}: {failure}");
    }
}

/// Both servers read them in the same order.
const ALL_FIELDS: &str = "local function all_fields(key)
    local fields, all = {}, redis.call('hgetall', key)
    for i = 1, #all, 2 do fields[#fields + 1] = all[i] end
    table.sort(fields)
    return fields
end
";

/// The scripts that this one runs as functions, with the heads of these functions.
fn inside(name: &str) -> Vec<(&'static str, String)> {
    match name {
        "red_lock/acquire.lua" => vec![("plain()", "lock/acquire.lua".to_owned())],
        "lock/contend.lua" => vec![("acquire(KEYS, ARGV)", "lock/acquire.lua".to_owned())],
        "lock/batch.lua" => vec![
            ("unlock(KEYS, ARGV)", "lock/unlock.lua".to_owned()),
            ("acquire(KEYS, ARGV)", "lock/acquire.lua".to_owned()),
        ],
        _ => {
            let of_fair = ["acquire", "transfer", "unlock", "force_unlock"];
            let name = name.strip_prefix("election/");
            let around = name.filter(|name| of_fair.iter().any(|it| *name == format!("{it}.lua")));
            let inner = around.map(|name| ("fair()", format!("fair/{name}")));
            inner.into_iter().collect()
        }
    }
}

fn replay(
    pair: &mut Pair,
    text: &str,
    before: &Before,
    listens: &[&str],
    calls: &[Call],
) -> Result<(), String> {
    pair.send(&["FLUSHALL"])?;
    pair.listen(listens);
    for command in &before.commands {
        pair.send(command)?;
    }
    for call in calls {
        let mut command = vec![
            "EVAL".to_owned(),
            text.to_owned(),
            call.keys.len().to_string(),
        ];
        command.extend(call.keys.iter().cloned());
        command.extend(call.args.iter().cloned());
        pair.send(&command)?;
        pair.compare()?;
    }
    Ok(())
}

/// Keys in every state that a script may find: absent, held by us, held by another client, of another
/// type, with a long, a short or no expiry, or with values that are no numbers.
fn states() -> impl Strategy<Value = Before> {
    let value = prop_oneof![
        4 => vec((select(FIELDS), select(COUNTS)), 1..4).prop_map(|pairs| {
            let pairs = pairs.into_iter().flat_map(|(field, count)| [field, count]);
            ["HSET", "?"].into_iter().chain(pairs).map(str::to_owned).collect::<Vec<_>>()
        }),
        1 => select(STRINGS).prop_map(|text| ["SET", "?", text].map(str::to_owned).to_vec()),
        2 => select(NUMBERS).prop_map(|text| ["SET", "a", text].map(str::to_owned).to_vec()),
        2 => vec((select(FIELDS), select(ENDS)), 1..4).prop_map(|pairs| {
            let pairs = pairs.into_iter().flat_map(|(id, ends)| [ends, id]);
            ["ZADD", IN_USE].into_iter().chain(pairs).map(str::to_owned).collect::<Vec<_>>()
        }),
        4 => vec((select(CLIENTS), select(ENDS)), 1..4).prop_map(|pairs| {
            let pairs = pairs.into_iter().flat_map(|(client, since)| [since, client]);
            ["ZADD", WAITING].into_iter().chain(pairs).map(str::to_owned).collect::<Vec<_>>()
        }),
        3 => waiters().prop_map(|fields| [vec!["RPUSH".to_owned(), QUEUE.to_owned()], fields].concat()),
        4 => (select(&[PLACES, PRESENCE][..]), waiters(), vec(select(ENDS), 3)).prop_map(
            |(set, fields, ends)| {
                let pairs = ends.into_iter().zip(fields);
                let pairs = pairs.flat_map(|(ends, field)| [ends.to_owned(), field]);
                let command = ["ZADD", set].map(str::to_owned).into_iter();
                command.chain(pairs).collect::<Vec<_>>()
            }
        ),
        2 => (vec((select(FIELDS), select(SHARES)), 1..4), select(&["", "1700000000000000"][..]))
            .prop_map(|(pairs, era)| {
                let era = (!era.is_empty()).then_some([era, ""]);
                let pairs = pairs.into_iter().map(|(request, has)| [has, request]);
                let pairs = pairs.chain(era).flatten();
                ["ZADD", LEDGER].into_iter().chain(pairs).map(str::to_owned).collect::<Vec<_>>()
            }),
        3 => (select(&["read", "write"][..]), vec((select(FIELDS), select(COUNTS)), 0..3))
            .prop_map(|(mode, holds)| {
                let holds = holds.into_iter().flat_map(|(field, count)| [field, count]);
                let mode = ["HSET", "a", "mode", mode].into_iter();
                mode.chain(holds).map(str::to_owned).collect::<Vec<_>>()
            }),
        2 => (select(FIELDS), select(&["1", "2"][..])).prop_map(|(field, n)| {
            let key = format!("{{a}}:{field}:rwlock_timeout:{n}");
            vec!["SET".to_owned(), key, "1".to_owned()]
        }),
        1 => (select(FIELDS), select(&["", "up:"][..])).prop_map(|(field, mark)| {
            // A future time, so that both servers answer the same about a pause.
            ["SET", "lockdog_writer:{a}", &format!("4000000000000 {mark}{field}")].map(str::to_owned).to_vec()
        }),
        2 => (select(FIELDS), select(&["7 1 me", "7 3 you too", "x"][..])).prop_map(|(field, rest)| {
            ["SET", LEADER_KEY, &format!("{field} {rest}")].map(str::to_owned).to_vec()
        }),
        1 => select(STRINGS).prop_map(|text| ["SET", COUNTER, text].map(str::to_owned).to_vec()),
        4 => vec((select(VALUES), select(FIELDS), select(ENDS), select(COUNTS)), 1..4).prop_map(|all| {
            let fields = all.into_iter().flat_map(|(value, owner, ends, count)| {
                let prefix = format!("{value}:{owner}");
                let of_time = [format!("{prefix}:expire_time"), ends.to_owned()];
                let of_count = [format!("{prefix}:lock_count"), count.to_owned()];
                [value.to_owned(), owner.to_owned()].into_iter().chain(of_time).chain(of_count)
            });
            ["HSET", "a"].map(str::to_owned).into_iter().chain(fields).collect::<Vec<_>>()
        }),
        1 => Just(["RPUSH", "?", "a", "b"].map(str::to_owned).to_vec()),
        1 => select(&["0", "1699999999999", "4000000000000", "x"][..]).prop_map(|since| {
            ["HSET", "?", "id", "<identity>", "since", since].map(str::to_owned).to_vec()
        }),
    ];
    let expiry = select(&["", "20000", "60000", "600000"][..]);
    let entry = (select(KEYS), value, expiry);
    vec(entry, 0..5).prop_map(|entries| {
        let mut commands = Vec::new();
        for (key, mut value, expiry) in entries {
            if value[1] == "?" {
                key.clone_into(&mut value[1]);
            }
            let key = &*value[1].clone();
            commands.push(vec!["DEL".to_owned(), key.to_owned()]);
            commands.push(value);
            if !expiry.is_empty() {
                commands.push(["PEXPIRE", key, expiry].map(str::to_owned).to_vec());
            }
        }
        Before { commands }
    })
}

/// Calls as lockdog makes them, and some with arguments that it never sends.
fn calls(script: &str) -> BoxedStrategy<Call> {
    let many = 1..4_usize;
    match script {
        "diagnosis/permitted.lua" => {
            let args = vec(select(COMMANDS), 0..6);
            args.prop_map(|args| Call {
                keys: Vec::new(),
                args: args.into_iter().map(str::to_owned).collect(),
            })
            .boxed()
        }
        "lock/renew.lua" => vec((key(), field(), lease()), many)
            .prop_map(|holds| {
                let mut call = Call {
                    keys: Vec::new(),
                    args: Vec::new(),
                };
                for (key, field, lease) in holds {
                    call.keys.push(key);
                    call.args.extend([field, lease]);
                }
                call
            })
            .boxed(),
        "lock/batch.lua" => {
            let acquire = (field(), target(), lease());
            let acquire = acquire.prop_map(|(field, target, lease)| {
                [
                    "a".to_owned(),
                    field,
                    target,
                    lease,
                    String::new(),
                    String::new(),
                ]
            });
            let unlock = (field(), target(), channel(), publish(), list());
            let unlock = unlock.prop_map(|(field, target, channel, publish, list)| {
                ["u".to_owned(), field, target, channel, publish, list]
            });
            vec((key(), prop_oneof![acquire, unlock]), many)
                .prop_map(|parts| {
                    let (keys, args): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
                    let args = args.into_iter().flatten().collect();
                    Call { keys, args }
                })
                .boxed()
        }
        "multi_lock/acquire.lua" => (lease(), vec((key(), field(), target()), many))
            .prop_map(|(lease, holds)| {
                let mut call = Call {
                    keys: Vec::new(),
                    args: vec![lease],
                };
                for (key, field, target) in holds {
                    call.keys.push(key);
                    call.args.extend([field, target]);
                }
                call
            })
            .boxed(),
        "fenced/acquire.lua" => of(2, vec![field(), target(), lease(), from()]),
        "fenced/transfer.lua" => of(
            2,
            vec![
                field(),
                field(),
                lease(),
                channel(),
                publish(),
                from(),
                list(),
            ],
        ),
        "permit/acquire.lua" => (permits_keys(), lease(), channel(), publish(), ids())
            .prop_map(|(keys, lease, channel, publish, ids)| Call {
                keys,
                args: [vec![lease, channel, publish], ids].concat(),
            })
            .boxed(),
        "permit/give_back.lua" => (permits_keys(), channel(), publish(), ids())
            .prop_map(|(keys, channel, publish, ids)| Call {
                keys,
                args: [vec![channel, publish], ids].concat(),
            })
            .boxed(),
        "permit/update.lua" => (lease(), ids())
            .prop_map(|(lease, ids)| Call {
                keys: vec![IN_USE.to_owned()],
                args: [vec![lease], ids].concat(),
            })
            .boxed(),
        "permit/renew.lua" => vec((mostly(&[IN_USE]), field(), lease()), many)
            .prop_map(|holds| {
                let mut call = Call {
                    keys: Vec::new(),
                    args: Vec::new(),
                };
                for (key, id, lease) in holds {
                    call.keys.push(key);
                    call.args.extend([id, lease]);
                }
                call
            })
            .boxed(),
        "permit/release.lua" => permits(vec![field(), target(), channel(), publish()]),
        "permit/touch.lua" => permits(vec![field()]),
        "permit/state.lua" => permits(vec![field()]),
        "permit/set.lua" => permits(vec![target(), flag(), channel(), publish()]),
        "permit/add.lua" => of(
            2,
            vec![
                mostly(&["1", "3", "-2", "0"]),
                mostly(&["12000", "60000"]),
                channel(),
                publish(),
                flag(),
            ],
        ),
        "fair/acquire.lua" => look(line()),
        "election/acquire.lua" => look(election()),
        "election/unlock.lua" => {
            let args = vec![field(), target(), channel(), publish(), worth(), flag()];
            with_keys(election(), args)
        }
        "election/transfer.lua" => {
            let args = vec![field(), field(), lease(), channel(), publish(), worth()];
            with_keys(election(), args)
        }
        "election/force_unlock.lua" => with_keys(election(), vec![field(), channel(), publish()]),
        "election/proclaim.lua" => {
            let keys = ["a", LEADER_KEY, COUNTER].map(str::to_owned).to_vec();
            let args = vec![
                field(),
                mostly(&["7", "8"]),
                mostly(&["1", "2", "3"]),
                mostly(&["me", "you too", ""]),
                publish(),
            ];
            with_keys(keys, args)
        }
        "election/renew.lua" => vec((mostly(&["a"]), field(), lease()), many)
            .prop_map(|holds| {
                let mut call = Call {
                    keys: Vec::new(),
                    args: Vec::new(),
                };
                for (key, field, lease) in holds {
                    call.keys.extend([key, LEADER_KEY.to_owned()]);
                    call.args.extend([field, lease]);
                }
                call
            })
            .boxed(),
        "election/leader.lua" => {
            with_keys(["a", LEADER_KEY].map(str::to_owned).to_vec(), Vec::new())
        }
        "fair/unlock.lua" => in_line(vec![
            field(),
            target(),
            channel(),
            publish(),
            worth(),
            flag(),
        ]),
        "fair/transfer.lua" => in_line(vec![
            field(),
            field(),
            lease(),
            channel(),
            publish(),
            worth(),
        ]),
        "fair/force_unlock.lua" => in_line(vec![field(), channel(), publish()]),
        "group/acquire.lua" => with_values(vec![field(), target(), lease_of_values()], 1),
        "group/unlock.lua" => with_values(vec![field(), target(), channel(), publish()], 1),
        "group/force_unlock.lua" => with_values(vec![field(), channel(), publish()], 1),
        "group/touch.lua" => of(1, vec![field(), mostly(VALUES)]),
        "group/holders.lua" => with_values(Vec::new(), 0),
        "group/renew.lua" => vec(
            (field(), lease_of_values(), mostly(&["x", "y", "x y"])),
            many,
        )
        .prop_map(|holds| Call {
            keys: vec!["a".to_owned(); holds.len()],
            args: holds
                .into_iter()
                .flat_map(|(field, lease, values)| [field, lease, values])
                .collect(),
        })
        .boxed(),
        "latch/count_down.lua" => of(2, vec![mostly(&["12000", "3600000"]), channel(), publish()]),
        "latch/try_set.lua" => of(
            2,
            vec![
                mostly(&["0", "1", "3", "-2"]),
                mostly(&["12000", "60000"]),
                channel(),
                publish(),
            ],
        ),
        "latch/delete.lua" => of(1, vec![channel(), publish()]),
        "semaphore/acquire.lua" => counted(vec![field(), target()]),
        "semaphore/release.lua" => counted(vec![
            field(),
            target(),
            channel(),
            publish(),
            flag(),
            target(),
            mostly(&["1700000000000000", "0"]),
        ]),
        "semaphore/transfer.lua" => counted(vec![
            field(),
            field(),
            target(),
            flag(),
            channel(),
            publish(),
        ]),
        "semaphore/state.lua" => counted(vec![mostly(&["0", "1", "10000"])]),
        "semaphore/reclaim.lua" => counted(vec![mostly(&["u:", "v:"]), channel(), publish()]),
        "semaphore/try_set.lua" => of(
            2,
            vec![
                target(),
                mostly(&["0", "60000"]),
                mostly(&["12000", "60000"]),
                channel(),
                publish(),
            ],
        ),
        "read_write/acquire.lua" => (
            mode(),
            vec![field(), target(), lease()],
            field(),
            flag(),
            mostly(&["0", "1500"]),
        )
            .prop_map(|(mode, args, partner, flag, announced)| {
                let keys = read_write_keys(&mode, &args[0]);
                let more = [mode, partner, flag, announced, "{a}:".to_owned()];
                let args = args.into_iter().chain(more).collect();
                Call { keys, args }
            })
            .boxed(),
        "read_write/unlock.lua" => (
            mode(),
            vec![field(), target(), channel(), publish()],
            lease(),
        )
            .prop_map(|(mode, args, lease)| {
                let keys = read_write_keys(&mode, &args[0]);
                let more = [mode, "{a}:".to_owned(), lease];
                let args = args.into_iter().chain(more).collect();
                Call { keys, args }
            })
            .boxed(),
        "read_write/readers.lua" => of(1, vec![mostly(&["{a}:"])]),
        "read_write/renew.lua" => vec((mostly(&["a"]), field(), lease()), many)
            .prop_map(|holds| {
                let mut call = Call {
                    keys: Vec::new(),
                    args: Vec::new(),
                };
                for (key, field, lease) in holds {
                    call.keys.extend([key, timeout_of(&field)]);
                    call.args.extend([field, lease]);
                }
                call
            })
            .boxed(),
        "lock/acquire.lua" => of(1, vec![field(), target(), lease()]),
        "lock/contend.lua" => of(
            1,
            vec![
                field(),
                target(),
                lease(),
                list(),
                sometimes(CLIENTS, &[""]),
                sometimes(&["0", "90000000", "180000000"], WRONG_LEASES),
                flag(),
            ],
        ),
        "lock/force_unlock.lua" => of(1, vec![field(), channel(), publish()]),
        "lock/settle.lua" => of(1, vec![field(), target(), channel(), publish()]),
        "lock/unlock.lua" => of(1, vec![field(), target(), channel(), publish(), list()]),
        "lock/linger.lua" => {
            let args = || vec![field(), lease(), channel(), publish(), worth()];
            prop_oneof![of(1, args()), in_line(args())].boxed()
        }
        "lock/touch.lua" => of(1, vec![field()]),
        "lock/transfer.lua" => of(
            1,
            vec![field(), field(), lease(), channel(), publish(), list()],
        ),
        "red_lock/acquire.lua" => of(
            3,
            vec![field(), target(), lease(), period(), flag(), time()],
        ),
        "red_lock/mark.lua" => of(2, vec![field(), token(), lease(), lease()]),
        "red_lock/provision.lua" => of(1, vec![time()]),
        other => panic!("say here what arguments {other} takes"),
    }
}

/// A call with the keys of a fair lock.
fn in_line(args: Vec<BoxedStrategy<String>>) -> BoxedStrategy<Call> {
    with_keys(line(), args)
}

fn with_keys(keys: Vec<String>, args: Vec<BoxedStrategy<String>>) -> BoxedStrategy<Call> {
    args.prop_map(move |args| Call {
        keys: keys.clone(),
        args,
    })
    .boxed()
}

/// A poll of a waiter in a queue on the server.
fn look(keys: Vec<String>) -> BoxedStrategy<Call> {
    let args = vec![
        field(),
        target(),
        lease(),
        worth(),
        sometimes(&["4000", "10000"], WRONG_LEASES),
        mostly(&["enter", "enter", "look", "try"]),
        channel(),
        publish(),
    ];
    let others = prop_oneof![Just(Vec::new()), waiters()];
    (args, others)
        .prop_map(move |(args, others)| Call {
            keys: keys.clone(),
            args: [args, others].concat(),
        })
        .boxed()
}

/// A call about values of the group `a`.
fn with_values(args: Vec<BoxedStrategy<String>>, least: usize) -> BoxedStrategy<Call> {
    let values = proptest::sample::subsequence(VALUES, least..=VALUES.len());
    (args, values)
        .prop_map(|(args, values)| Call {
            keys: vec!["a".to_owned()],
            args: [args, values.into_iter().map(str::to_owned).collect()].concat(),
        })
        .boxed()
}

/// The keys of an election.
fn election() -> Vec<String> {
    let more = [LEADER_KEY, COUNTER].map(str::to_owned);
    line().into_iter().chain(more).collect()
}

fn line() -> Vec<String> {
    ["a", QUEUE, PLACES, PRESENCE].map(str::to_owned).to_vec()
}

/// Waiters of a fair lock, each once.
fn waiters() -> BoxedStrategy<Vec<String>> {
    proptest::sample::subsequence(FIELDS, 1..=FIELDS.len())
        .prop_shuffle()
        .prop_map(|fields| fields.into_iter().map(str::to_owned).collect())
        .boxed()
}

/// The waiting time that a place in the queue counts for.
fn worth() -> BoxedStrategy<String> {
    mostly(&["300000", "20000"])
}

/// A call with both keys of a semaphore.
fn permits(args: Vec<BoxedStrategy<String>>) -> BoxedStrategy<Call> {
    (permits_keys(), args)
        .prop_map(|(keys, args)| Call { keys, args })
        .boxed()
}

/// A call with both keys of a semaphore that has a ledger.
fn counted(args: Vec<BoxedStrategy<String>>) -> BoxedStrategy<Call> {
    (mostly(&["a"]), mostly(&[LEDGER]), args)
        .prop_map(|(number, ledger, args)| Call {
            keys: vec![number, ledger],
            args,
        })
        .boxed()
}

/// The number and the set of a semaphore, and sometimes others.
fn permits_keys() -> BoxedStrategy<Vec<String>> {
    (mostly(&["a"]), mostly(&[IN_USE]))
        .prop_map(|(number, in_use)| vec![number, in_use])
        .boxed()
}

fn mode() -> BoxedStrategy<String> {
    mostly(&["read", "write"])
}

/// The keys of a hold of the read/write lock `a`.
fn read_write_keys(mode: &str, field: &str) -> Vec<String> {
    let mut keys = vec!["a".to_owned(), "lockdog_writer:{a}".to_owned()];
    if mode == "read" {
        keys.push(timeout_of(field));
    }
    keys
}

fn timeout_of(field: &str) -> String {
    format!("{{a}}:{field}:rwlock_timeout:1")
}

/// Ids, each once.
fn ids() -> BoxedStrategy<Vec<String>> {
    proptest::sample::subsequence(FIELDS, 1..=FIELDS.len())
        .prop_map(|ids| ids.into_iter().map(str::to_owned).collect())
        .boxed()
}

fn of(keys: usize, args: Vec<BoxedStrategy<String>>) -> BoxedStrategy<Call> {
    (vec(key(), keys), args)
        .prop_map(|(keys, args)| Call { keys, args })
        .boxed()
}

/// Usually one of these, sometimes an invalid value.
fn mostly(usual: &'static [&'static str]) -> BoxedStrategy<String> {
    sometimes(usual, WRONG)
}

fn sometimes(
    usual: &'static [&'static str],
    other: &'static [&'static str],
) -> BoxedStrategy<String> {
    prop_oneof![30 => select(usual), 1 => select(other)]
        .prop_map(str::to_owned)
        .boxed()
}

fn key() -> BoxedStrategy<String> {
    mostly(KEYS)
}

fn field() -> BoxedStrategy<String> {
    mostly(FIELDS)
}

fn target() -> BoxedStrategy<String> {
    mostly(&["0", "1", "1", "2", "3"])
}

fn lease() -> BoxedStrategy<String> {
    sometimes(&["30000", "100000", "1000000", "0", "-1"], WRONG_LEASES)
}

/// None that ends while the scripts run: the time of a value is 5 ms longer than its lease.
fn lease_of_values() -> BoxedStrategy<String> {
    let is_over = |lease: &String| lease.parse().is_ok_and(|lease: f64| lease.abs() < 20_000.0);
    let leases = lease().prop_map(move |lease| match is_over(&lease) {
        true => "-20000".to_owned(),
        false => lease,
    });
    leases.boxed()
}

fn channel() -> BoxedStrategy<String> {
    mostly(CHANNELS)
}

fn list() -> BoxedStrategy<String> {
    sometimes(&[WAITING, WAITING, ""], &["a"])
}

fn publish() -> BoxedStrategy<String> {
    mostly(&["publish", "PUBLISH", "spublish"])
}

fn period() -> BoxedStrategy<String> {
    sometimes(&["0", "0", "60000"], WRONG_LEASES)
}

fn flag() -> BoxedStrategy<String> {
    mostly(&["0", "1"])
}

fn time() -> BoxedStrategy<String> {
    mostly(&["0", "1600000000000", "4503599627370496"])
}

fn from() -> BoxedStrategy<String> {
    mostly(&["clock", "one"])
}

fn token() -> BoxedStrategy<String> {
    mostly(&["7", "8", "9", "9007199254740991"])
}

fn scripts(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            found.extend(scripts(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Each has a server and a Redis of its own. A comparison waits for both most of the time.
const THREADS: usize = 4;

/// The set of the permits in use of the semaphore `a`.
const IN_USE: &str = "{a}:timeout";
/// The queue of the fair lock `a`.
const QUEUE: &str = "redisson_lock_queue:{a}";
const PLACES: &str = "redisson_lock_timeout:{a}";
const PRESENCE: &str = "lockdog_fair:{a}";
/// The keys of the leader of the election `a`, and of the counter of its terms.
const LEADER_KEY: &str = "lockdog_leader:{a}";
const COUNTER: &str = "redisson_lock_token:{a}";
/// The ledger of the semaphore `a`.
const LEDGER: &str = "lockdog_ledger:{a}";
/// What requests have, and when they ended.
const SHARES: &[&str] = &[
    "1",
    "2",
    "5",
    "2147483647",
    "1600000000000",
    "4000000000000",
];
/// The names of values of a group.
const VALUES: &[&str] = &["x", "y"];
const NUMBERS: &[&str] = &["0", "1", "2", "5", "-1", "1.5", ""];
/// Expired, living and endless permits.
const ENDS: &[&str] = &[
    "1",
    "1600000000000",
    "4000000000000",
    "922337203685477",
    "inf",
];
const KEYS: &[&str] = &["a", "b", "c", "lockdog_token:{a}"];
const FIELDS: &[&str] = &["u:1.1", "u:1.2", "v:2.1"];
const COUNTS: &[&str] = &["1", "1", "2", "5", "0", "-1", "x", "1.5"];
const STRINGS: &[&str] = &[
    "7 1700000000000 u:1.1",
    "8 1700000000000 v:2.1",
    "9007199254740991 1 w",
    "7",
    "4503599627370496",
    "9007199254740991",
    "",
];
const CHANNELS: &[&str] = &["redisson_lock__channel:{a}", "other"];
/// The list of the clients that wait for a lock, and the channel of the same name.
const WAITING: &str = "lockdog_waiters:{a}";
const CLIENTS: &[&str] = &["c", "d", "e"];
/// To which channels the connections listen: as a client of Redisson, a client that is listed, or both.
const LISTENED: &[&[&str]] = &[
    &["redisson_lock__channel:{a}"],
    &["other"],
    &[
        "redisson_lock__channel:{a}",
        WAITING,
        "lockdog_waiters:{a}:c",
        "lockdog_waiters:{a}:e",
    ],
    &["redisson_lock__channel:{a}", "lockdog_waiters:{a}:d"],
];
const COMMANDS: &[&str] = &[
    "ping",
    "time",
    "get k",
    "hincrby k f 1",
    "hincrby k f",
    "publish c 0",
    "nosuchcommand",
    "",
];
/// Invalid arguments.
const WRONG: &[&str] = &["", "x", "1.5", "-3", "1e3", "99999999999999999999", " 1"];
/// As [`WRONG`], without values that Lua reads as a time that may end between the two servers, or as
/// the rest of another time.
const WRONG_LEASES: &[&str] = &[
    "",
    "x",
    "45000.5",
    "-3",
    "2e5",
    "99999999999999999999",
    " 45000",
];
