//! Each setter of Redisson's classes has exactly one rule.

use std::collections::BTreeSet;

use serde_json::json;

use super::java::ask;
use crate::redisson::rule::Class;

const CLASSES: [Class; 8] = [
    Class::Config,
    Class::BaseConfig,
    Class::BaseMasterSlaveServersConfig,
    Class::SingleServerConfig,
    Class::SentinelServersConfig,
    Class::ClusterServersConfig,
    Class::MasterSlaveServersConfig,
    Class::ReplicatedServersConfig,
];

#[test]
fn each_setter_of_redisson_has_one_rule() {
    let names = CLASSES.map(|class| format!("{class:?}"));
    let setters = ask(&json!({ "setters": names }));
    for class in CLASSES {
        let of_java = setters[format!("{class:?}")].as_array().expect("a list");
        let of_java: BTreeSet<&str> = of_java.iter().filter_map(|name| name.as_str()).collect();
        let keys = class.keys().iter();
        let own: Vec<&str> = keys
            .filter(|key| !key.is_foreign)
            .map(|key| key.name)
            .collect();
        let set: BTreeSet<&str> = own.iter().copied().collect();
        assert_eq!(set.len(), own.len(), "{class:?} has a key twice");
        assert_eq!(set, of_java, "{class:?}");
        for key in class.keys().iter().filter(|key| key.is_foreign) {
            assert!(
                !of_java.contains(key.name),
                "{class:?} has {} now",
                key.name
            );
        }
    }
}
