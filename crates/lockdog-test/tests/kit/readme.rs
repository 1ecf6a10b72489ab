//! What the documents show and say.

use std::collections::BTreeSet;

use lockdog_test::Server;

use crate::bad_input::ask;

const README: &str = include_str!("../../README.md");

fn examples(page: &'static str, fence: &str) -> Vec<&'static str> {
    let rest = page.split(fence).skip(1);
    rest.filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn the_readme_examples_are_tests_of_the_example() {
    let tests = include_str!("../../examples/nightly_report.rs");
    let tests: Vec<&str> = tests.lines().map(str::trim_start).collect();
    let tests = tests.join("\n");
    let own = examples(README, "```rust\n");
    assert_eq!(own.len(), 4);
    // These are not doctests: lockdog itself does not depend on its test kit.
    let readme = examples(include_str!("../../../../README.md"), "```rust,ignore\n");
    let guide = examples(
        include_str!("../../../../docs/guide.md"),
        "```rust,ignore\n",
    );
    assert_eq!((readme.len(), guide.len()), (1, 1));
    for example in own.into_iter().chain(readme).chain(guide) {
        let lines: Vec<&str> = example.lines().map(str::trim_start).collect();
        assert!(lines.len() < 10, "it is long:\n{example}");
        assert!(
            tests.contains(&lines.join("\n")),
            "another one is in the README:\n{example}"
        );
    }
}

#[test]
fn the_documents_list_what_the_server_does_not_imitate() {
    let library = include_str!("../../src/lib.rs").replace("\n//!", "");
    for page in [README, &library] {
        for missing in ["entinels", "clusters", "persistence"] {
            assert!(page.contains(missing), "{missing} in {page}");
        }
        assert!(page.contains("the test server knows only what locks need"));
    }
}

#[tokio::test]
async fn the_server_has_each_command_that_the_documented_permissions_name() {
    let page = include_str!("../../../../docs/security.md");
    let words = page
        .split('`')
        .skip(1)
        .step_by(2)
        .flat_map(str::split_whitespace);
    let rules = words.filter_map(|word| word.strip_prefix('+'));
    let mut commands: BTreeSet<&str> = rules.filter_map(|rule| rule.split('|').next()).collect();
    // For nodes of a cluster, and for servers since Redis 7.2.
    assert!(commands.remove("asking") && commands.remove("waitaof"));
    assert!(commands.len() >= 50, "{commands:?}");
    let server = Server::new();
    for command in commands {
        let answer = ask(&server, &[command]).await;
        assert!(!answer.contains("unknown command"), "{answer}");
    }
}
