//! Damaged files, and files that are made to exhaust the reader.

use std::fs;
use std::time::{Duration, Instant};

use crate::from_str;

const FILES: [&str; 4] = [
    "---
singleServerConfig:
  idleConnectionTimeout: 10000
  retryDelay: !<org.redisson.config.EqualJitterDelay> {baseDelay: PT1S, maxDelay: PT2S}
  clientName: null
  address: \"redis://ann:hunter2@127.0.0.1:${REDIS_PORT:-6379}\"
  database: 0
  password: 'of-the-section'
  sslProtocols: [TLSv1.2, TLSv1.3]
lockWatchdogTimeout: 30000
codec: !org.redisson.codec.Kryo5Codec {}
# a comment
transportMode: \"NIO\"
",
    "{\"sentinelServersConfig\": {\"masterName\": \"orders\", \"sentinelAddresses\": [\"redis://s1:26379\",
\t\"redis://s2:26379\"], \"password\": \"hunter2\", \"database\": 1}, \"lockWatchdogTimeout\": 30000}",
    "codec: &x
  timeout: 3_000
clusterServersConfig:
  <<: *x
  nodeAddresses:
  - >-
    redis://a:1
  - |
    redis://b:2
  clientName: ${NAME:-orders}
  password: \"hunter2\"
? lazyInitialization
: on
",
    "url: redis://:hunter2@127.0.0.1:6379
watchdog_lease: 1h30m
replica_ack:
  require: majority
  timeout: 300ms
",
];

/// A small generator of pseudo-random numbers from a seed that a failed test prints.
struct Dice(u64);

impl Dice {
    /// SplitMix64: its numbers are well mixed for neighbouring seeds, too.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % bound as u64).expect("it is below a usize")
    }
}

fn damaged(dice: &mut Dice) -> String {
    let file = FILES[dice.below(FILES.len())];
    let mut bytes = file.as_bytes().to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len().max(1));
        let odd = b"{}[]:,#&*!|>'\"%@`-?<~$\\ \t\n0a\x00\xff";
        match dice.below(6) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            2 if at < bytes.len() => bytes[at] = odd[dice.below(odd.len())],
            3 => bytes.insert(at.min(bytes.len()), odd[dice.below(odd.len())]),
            4 => {
                let end = (at + dice.below(20)).min(bytes.len());
                bytes.drain(at.min(end)..end);
            }
            _ => {
                let end = (at + dice.below(20)).min(bytes.len());
                let again = bytes[at.min(end)..end].to_vec();
                // A copy of the password may become a name, and a name is shown.
                if String::from_utf8_lossy(&again).contains("hunter2") {
                    continue;
                }
                let to = dice.below(bytes.len() + 1);
                bytes.splice(to..to, again);
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether each line with the password is as it was.
fn has_its_secrets(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| line.contains("hunter2"));
    let is_whole = |line| FILES.iter().any(|file| file.lines().any(|it| it == line));
    lines.all(is_whole)
}

/// The processor time of this thread. Programs that run beside it do not count.
fn used_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").expect("the kernel counts it");
    let (_, fields) = stat.rsplit_once(") ").expect("the name is in brackets");
    let own_and_kernels = fields.split(' ').skip(11).take(2);
    own_and_kernels
        .map(|ticks| ticks.parse::<u64>().expect("it is a number"))
        .sum()
}

/// A second: far above what reading one of these files takes.
const MOST_TICKS: u64 = 100;

#[test]
fn a_damaged_file_is_read_or_refused_and_shows_no_password() {
    let cases = std::env::var("LOCKDOG_CASES").map_or(1000, |cases| cases.parse().unwrap());
    for file in FILES {
        from_str(file).unwrap_or_else(|error| panic!("{error}\n{file}"));
    }
    let (mut refused, mut longest) = (0, (Duration::ZERO, 0));
    for seed in 1..=cases {
        let text = damaged(&mut Dice(seed << 32));
        let (begin, ticks) = (Instant::now(), used_ticks());
        let shown = match from_str(&text) {
            // Damage may turn a password into a host or a name, which is shown.
            Ok(_) if !has_its_secrets(&text) => String::new(),
            Ok(config) => format!("{config:?}"),
            Err(error) => {
                refused += 1;
                format!("{error} {error:?}")
            }
        };
        longest = longest.max((begin.elapsed(), seed));
        assert!(used_ticks() - ticks < MOST_TICKS, "seed {seed}:\n{text}");
        assert!(!shown.contains("hunter2"), "seed {seed}: {shown}\n{text}");
    }
    println!("{refused} of {cases} refused, the longest (time, seed) is {longest:?}");
    assert!(
        refused > cases / 4 && refused < cases - cases / 20,
        "{refused} of {cases}"
    );
}

/// With nine levels of nine aliases each, a reader that copied would make 387 million values.
#[test]
fn a_bomb_of_aliases_costs_what_its_text_costs() {
    let ticks = used_ticks();
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..=9 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(",");
        bomb += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    let servers = "clusterServersConfig:\n  nodeAddresses: *a9\n";
    let error = from_str(&format!("{bomb}{servers}")).unwrap_err();
    assert_eq!(error.line(), Some(1), "{error}");
    let error = from_str(&format!(
        "codec:\n  {}{servers}",
        bomb.replace("\na", "\n  a").trim_end().to_owned() + "\n"
    ));
    let error = error.unwrap_err();
    assert_eq!(
        error.key(),
        Some("clusterServersConfig.nodeAddresses"),
        "{error}"
    );
    assert!(used_ticks() - ticks < MOST_TICKS);
}

#[test]
fn a_bomb_of_merges_is_refused() {
    let ticks = used_ticks();
    let keys: Vec<String> = (0..200).map(|n| format!("k{n}: 1")).collect();
    let merges = vec!["*a"; 200].join(", ");
    let bomb = format!(
        "codec: &a {{{}}}\nthreads: {{<<: [{merges}]}}\n",
        keys.join(", ")
    );
    let error = from_str(&bomb).unwrap_err();
    assert!(error.to_string().contains("may add 10000 keys"), "{error}");
    assert!(used_ticks() - ticks < MOST_TICKS);
}

#[test]
fn a_deep_or_long_file_is_refused() {
    for text in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        "a: ".repeat(1000),
    ] {
        assert!(from_str(&text).is_err());
    }
    let deep = format!("codec: {}{}\n", "[".repeat(70), "]".repeat(70));
    let error = from_str(&deep).unwrap_err();
    assert!(error.to_string().contains("64 deep"), "{error}");
    let error = from_str(&"#".repeat(1 << 21)).unwrap_err();
    assert!(error.to_string().contains("1 MiB"), "{error}");
}

#[test]
fn what_is_no_configuration_is_refused() {
    for (text, word) in [
        ("", "empty"),
        ("# only a comment\n", "empty"),
        ("---\n...\n", "empty"),
        ("- a\n- b\n", "map of keys"),
        ("redis://a:1", "map of keys"),
        ("a: 1\n---\nb: 2\n", "a second document"),
        ("a: *b", "not valid YAML"),
        ("codec: &a [*a]", "alias without its anchor"),
        ("codec: &a {b: *a}", "alias without its anchor"),
        ("threads: 1\nthreads: 2", "twice"),
        ("{a: b}: c", "a key must be a text"),
        ("threads: {<<: 3}", "needs a map"),
        ("a: 1\n  b: 2\n", "not valid YAML"),
        ("{\"a\": \"\\ud83d\\ude00\"}", "not valid YAML"),
    ] {
        let error = from_str(text).unwrap_err();
        assert!(error.to_string().contains(word), "{text}: {error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}
