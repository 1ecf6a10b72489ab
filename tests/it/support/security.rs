//! The permissions that `docs/security.md` documents.

/// The rules of the ACL line, without name, switch and password.
pub(crate) fn documented() -> Vec<String> {
    let line = PAGE
        .lines()
        .find(|line| line.starts_with("ACL SETUSER lockdog "));
    let line = line.expect("the page has the line");
    let rules: Vec<String> = line.split(' ').skip(3).map(str::to_owned).collect();
    assert_eq!(rules[..2], ["on", ">secret"]);
    rules[2..].to_vec()
}

/// What a list of waiting clients needs beside it.
pub(crate) fn of_a_waiting_list() -> Vec<String> {
    further(&["- A list of waiting clients also needs "])
}

/// What a user of fair locks needs beside it.
pub(crate) fn of_a_fair_lock() -> Vec<String> {
    further(&["- A fair lock also needs "])
}

/// What a user of locks of values of a group needs beside it.
pub(crate) fn of_a_group_lock() -> Vec<String> {
    further(&["- A lock of values of a group also needs "])
}

/// What a user of elections needs beside it and beside what a user of fair locks needs.
pub(crate) fn of_an_election() -> Vec<String> {
    further(&["- An election also needs what a fair lock needs, and "])
}

/// What a user of read/write locks needs beside it.
pub(crate) fn of_a_read_write_lock() -> Vec<String> {
    further(&["- A read/write lock also needs "])
}

/// What a user of fenced locks needs beside it.
pub(crate) fn of_a_fenced_lock() -> Vec<String> {
    further(&["- A fenced lock also needs "])
}

/// What a user of semaphores with leases needs beside it.
pub(crate) fn of_a_semaphore() -> Vec<String> {
    further(&["- A semaphore with leases also needs "])
}

/// What a user of latches needs beside it.
pub(crate) fn of_a_latch() -> Vec<String> {
    further(&["- A count-down latch also needs "])
}

/// What a user of semaphores without leases needs beside it.
pub(crate) fn of_a_counted_semaphore() -> Vec<String> {
    further(&["- A semaphore without leases also needs "])
}

/// What a user of a cluster with replicas needs beside it, on servers since 7.0.
pub(crate) fn of_a_cluster() -> Vec<String> {
    further(&["- On a cluster: ", "- A client that waits for [replicas]"])
}

/// The first rules in each of the lines that begin so.
fn further(starts: &[&str]) -> Vec<String> {
    let rules = starts.iter().flat_map(|start| {
        let line = PAGE.lines().find_map(|line| line.strip_prefix(start));
        let mut code = line.expect("it has the line").split('`').skip(1).step_by(2);
        code.next()
            .expect("it names the type that it needs")
            .split(' ')
    });
    rules.map(str::to_owned).collect()
}

/// The command that makes the user of the page, for locks of any name and kind: the page's are called
/// `orders:..`, those of the tests have nothing in common.
pub(crate) fn user_of_any_name() -> Vec<String> {
    let any_name = |rule: String| match &*rule {
        key if key.starts_with('~') && key.contains("orders:*") => "~*".to_owned(),
        "&redisson_lock__channel:{orders:*}" | "&redisson_lock__channel:{orders:*}:*" => {
            "&redisson_lock__channel:*".to_owned()
        }
        "&redisson_rwlock:{orders:*}" => "&redisson_rwlock:*".to_owned(),
        _ => {
            assert!(!rule.contains("orders"), "{rule} is about a name");
            rule
        }
    };
    let start = ["ACL", "SETUSER", "lockdog", "on", ">secret"].map(str::to_owned);
    let rules = documented().into_iter().chain(of_a_fenced_lock());
    let rules = rules.chain(of_a_fair_lock()).chain(of_a_read_write_lock());
    let rules = rules.chain(of_a_group_lock());
    let rules = rules.map(any_name);
    start.into_iter().chain(rules).collect()
}

const PAGE: &str = include_str!("../../../docs/security.md");
