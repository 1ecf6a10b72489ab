//! What may become of a key.

/// One of Redisson's configuration classes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Class {
    Config,
    BaseConfig,
    BaseMasterSlaveServersConfig,
    SingleServerConfig,
    SentinelServersConfig,
    ClusterServersConfig,
    MasterSlaveServersConfig,
    ReplicatedServersConfig,
}

/// The part of the file that says which servers there are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Section {
    Single,
    Sentinel,
    Cluster,
    MasterSlave,
    Replicated,
}

/// What becomes of one key.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) rule: Rule,
    /// Redisson 4.7.0 has no setter for it: it belongs to an older or to another edition.
    pub(crate) is_foreign: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Rule {
    /// The part of the file that has the servers.
    Section(Section),
    /// It becomes a setting of the client.
    Mapped(Setting),
    /// lockdog needs no such setting. The text says why, and is shown in a note.
    Ignored(&'static str),
    /// Nothing that a lock could notice.
    Irrelevant,
    /// Unless the value is this one, lockdog behaves differently. The text says how.
    Differs(Usual, &'static str),
    /// Unless the value is this one, ignoring it would be wrong. The text says what to do.
    Refused(Usual, &'static str),
}

/// The value that means what lockdog does anyway.
#[derive(Clone, Copy)]
pub(crate) enum Usual {
    /// Any value is another one.
    Nothing,
    Number(u64),
    Boolean(bool),
    Word(&'static str),
    /// The class of Redisson's default.
    Class(&'static str),
}

/// A setting that lockdog has, too.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Setting {
    Address,
    Addresses,
    MasterAddress,
    MasterName,
    SentinelAddresses,
    SentinelUsername,
    SentinelPassword,
    Username,
    Password,
    Database,
    ClientName,
    Timeout,
    LockWatchdogTimeout,
    FairLockWaitTimeout,
    CheckLockSyncedSlaves,
    SlavesSyncTimeout,
    LazyInitialization,
    Protocol,
    NameMapper,
    SslTruststore,
    SslKeystore,
    SslProtocols,
    SslVerificationMode,
    SslEnableEndpointIdentification,
}

impl Section {
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Single => "singleServerConfig",
            Self::Sentinel => "sentinelServersConfig",
            Self::Cluster => "clusterServersConfig",
            Self::MasterSlave => "masterSlaveServersConfig",
            Self::Replicated => "replicatedServersConfig",
        }
    }

    /// The classes whose keys it may have.
    pub(crate) fn classes(self) -> &'static [Class] {
        use Class::{BaseConfig as Base, BaseMasterSlaveServersConfig as MasterSlaveBase};
        match self {
            Self::Single => &[Class::SingleServerConfig, Base],
            Self::Sentinel => &[Class::SentinelServersConfig, MasterSlaveBase, Base],
            Self::Cluster => &[Class::ClusterServersConfig, MasterSlaveBase, Base],
            Self::MasterSlave => &[Class::MasterSlaveServersConfig, MasterSlaveBase, Base],
            Self::Replicated => &[Class::ReplicatedServersConfig, MasterSlaveBase, Base],
        }
    }
}

pub(super) const fn key(name: &'static str, rule: Rule) -> Key {
    Key {
        name,
        rule,
        is_foreign: false,
    }
}

pub(super) const fn section(section: Section, name: &'static str) -> Key {
    key(name, Rule::Section(section))
}

pub(super) const fn mapped(name: &'static str, setting: Setting) -> Key {
    key(name, Rule::Mapped(setting))
}

pub(super) const fn ignored(name: &'static str, why: &'static str) -> Key {
    key(name, Rule::Ignored(why))
}

pub(super) const fn irrelevant(name: &'static str) -> Key {
    key(name, Rule::Irrelevant)
}

pub(super) const fn differs(name: &'static str, usual: Usual, how: &'static str) -> Key {
    key(name, Rule::Differs(usual, how))
}

pub(super) const fn refused(name: &'static str, usual: Usual, instead: &'static str) -> Key {
    key(name, Rule::Refused(usual, instead))
}

/// A key that Redisson 4.7.0 does not have.
pub(super) const fn foreign(mut key: Key) -> Key {
    key.is_foreign = true;
    key
}
