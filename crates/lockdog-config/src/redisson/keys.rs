//! What becomes of each key: the rules, in the classes of Redisson's own configuration.
//!
//! A test compares them with the setters of Redisson's classes.

use super::rule::{Class, Key, Section, Setting, Usual};
use super::rule::{differs, foreign, ignored, irrelevant, mapped, refused, section};

impl Class {
    /// The keys of this class itself, without those of the classes above it.
    pub(crate) fn keys(self) -> &'static [Key] {
        match self {
            Self::Config => CONFIG,
            Self::BaseConfig => BASE,
            Self::BaseMasterSlaveServersConfig => MASTER_SLAVE_BASE,
            Self::SingleServerConfig => SINGLE,
            Self::SentinelServersConfig => SENTINEL,
            Self::ClusterServersConfig => CLUSTER,
            Self::MasterSlaveServersConfig => MASTER_SLAVE,
            Self::ReplicatedServersConfig => REPLICATED,
        }
    }
}

/// The rule of a key in these classes.
pub(crate) fn find(classes: &[Class], name: &str) -> Option<&'static Key> {
    let mut keys = classes.iter().flat_map(|class| class.keys());
    keys.find(|key| key.name == name)
}

const CONFIG: &[Key] = &[
    section(Section::Single, "singleServerConfig"),
    section(Section::Sentinel, "sentinelServersConfig"),
    section(Section::Cluster, "clusterServersConfig"),
    section(Section::MasterSlave, "masterSlaveServersConfig"),
    section(Section::Replicated, "replicatedServersConfig"),
    mapped("username", Setting::Username),
    mapped("password", Setting::Password),
    mapped("lockWatchdogTimeout", Setting::LockWatchdogTimeout),
    mapped("fairLockWaitTimeout", Setting::FairLockWaitTimeout),
    mapped("checkLockSyncedSlaves", Setting::CheckLockSyncedSlaves),
    mapped("slavesSyncTimeout", Setting::SlavesSyncTimeout),
    mapped("lazyInitialization", Setting::LazyInitialization),
    mapped("protocol", Setting::Protocol),
    mapped("nameMapper", Setting::NameMapper),
    mapped("sslTruststore", Setting::SslTruststore),
    mapped("sslKeystore", Setting::SslKeystore),
    mapped("sslProtocols", Setting::SslProtocols),
    mapped("sslVerificationMode", Setting::SslVerificationMode),
    refused(
        "credentialsResolver",
        Usual::Class("DefaultCredentialsResolver"),
        RESOLVER,
    ),
    refused(
        "commandMapper",
        Usual::Class("DefaultCommandMapper"),
        COMMANDS,
    ),
    refused("sslTrustManagerFactory", Usual::Nothing, FACTORY),
    refused("sslKeyManagerFactory", Usual::Nothing, FACTORY),
    differs("lockWatchdogBatchSize", Usual::Number(100), BATCH),
    differs("sslCiphers", Usual::Nothing, CIPHERS),
    differs("tcpUserTimeout", Usual::Number(0), USER_TIMEOUT),
    irrelevant("sslTruststorePassword"),
    irrelevant("sslKeystorePassword"),
    irrelevant("sslKeystoreType"),
    irrelevant("sslProvider"),
    irrelevant("threads"),
    irrelevant("nettyThreads"),
    irrelevant("nettyExecutor"),
    irrelevant("nettyHook"),
    irrelevant("executor"),
    irrelevant("eventLoopGroup"),
    irrelevant("transportMode"),
    irrelevant("codec"),
    irrelevant("referenceEnabled"),
    irrelevant("keepPubSubOrder"),
    irrelevant("addressResolverGroupFactory"),
    irrelevant("useScriptCache"),
    irrelevant("minCleanUpDelay"),
    irrelevant("maxCleanUpDelay"),
    irrelevant("cleanUpKeysAmount"),
    irrelevant("useThreadClassLoader"),
    irrelevant("reliableTopicWatchdogTimeout"),
    irrelevant("connectionListener"),
    irrelevant("valkeyCapabilities"),
    irrelevant("tcpKeepAlive"),
    irrelevant("tcpKeepAliveCount"),
    irrelevant("tcpKeepAliveIdle"),
    irrelevant("tcpKeepAliveInterval"),
    irrelevant("tcpNoDelay"),
    // Redisson 3.0 to 3.13.
    foreign(irrelevant("codecProvider")),
    foreign(irrelevant("resolverProvider")),
    foreign(irrelevant("referenceCodecProvider")),
    foreign(irrelevant("redissonReferenceEnabled")),
    foreign(irrelevant("useLinuxNativeEpoll")),
    foreign(irrelevant("decodeInExecutor")),
    // Redisson PRO.
    foreign(refused("proxyServersConfig", Usual::Nothing, PRO)),
    foreign(refused("multiClusterServersConfig", Usual::Nothing, PRO)),
    foreign(refused("multiSentinelServersConfig", Usual::Nothing, PRO)),
    foreign(refused("multiReplicatedServersConfig", Usual::Nothing, PRO)),
    foreign(refused("secretKey", Usual::Nothing, PRO)),
    foreign(refused("registrationKey", Usual::Nothing, PRO)),
    foreign(refused("performanceMode", Usual::Nothing, PRO)),
    foreign(refused("meterMode", Usual::Nothing, PRO)),
    foreign(refused("meterRegistryProvider", Usual::Nothing, PRO)),
];

const BASE: &[Key] = &[
    mapped("username", Setting::Username),
    mapped("password", Setting::Password),
    mapped("clientName", Setting::ClientName),
    mapped("timeout", Setting::Timeout),
    mapped("nameMapper", Setting::NameMapper),
    mapped("sslTruststore", Setting::SslTruststore),
    mapped("sslKeystore", Setting::SslKeystore),
    mapped("sslProtocols", Setting::SslProtocols),
    mapped("sslVerificationMode", Setting::SslVerificationMode),
    mapped(
        "sslEnableEndpointIdentification",
        Setting::SslEnableEndpointIdentification,
    ),
    refused(
        "credentialsResolver",
        Usual::Class("DefaultCredentialsResolver"),
        RESOLVER,
    ),
    refused(
        "commandMapper",
        Usual::Class("DefaultCommandMapper"),
        COMMANDS,
    ),
    refused("sslTrustManagerFactory", Usual::Nothing, FACTORY),
    refused("sslKeyManagerFactory", Usual::Nothing, FACTORY),
    differs("sslCiphers", Usual::Nothing, CIPHERS),
    differs("tcpUserTimeout", Usual::Number(0), USER_TIMEOUT),
    ignored(
        "connectTimeout",
        "connecting takes at most `timeout`, and no longer than the call",
    ),
    ignored("retryAttempts", RETRY),
    ignored("retryInterval", RETRY),
    ignored("retryDelay", RETRY),
    ignored("reconnectionDelay", RECONNECT),
    ignored(
        "subscriptionTimeout",
        "it is `timeout`, and a wait does not depend on it",
    ),
    ignored(
        "pingConnectionInterval",
        "the connection for messages is pinged every 10 s; on the others each command has its time limit",
    ),
    ignored(
        "idleConnectionTimeout",
        "the connections are few and stay open",
    ),
    irrelevant("subscriptionsPerConnection"),
    irrelevant("sslTruststorePassword"),
    irrelevant("sslKeystorePassword"),
    irrelevant("sslKeystoreType"),
    irrelevant("sslProvider"),
    irrelevant("keepAlive"),
    irrelevant("tcpKeepAliveCount"),
    irrelevant("tcpKeepAliveIdle"),
    irrelevant("tcpKeepAliveInterval"),
    irrelevant("tcpNoDelay"),
    // Redisson 3.0 to 3.10.
    foreign(ignored(
        "pingTimeout",
        "each command has its time limit, `timeout`",
    )),
    foreign(ignored("reconnectionTimeout", RECONNECT)),
    foreign(ignored("failedAttempts", RECONNECT)),
];

const MASTER_SLAVE_BASE: &[Key] = &[
    differs(
        "readMode",
        Usual::Word("MASTER"),
        "only the master is asked: a replica's answer about a lock may be old",
    ),
    differs(
        "subscriptionMode",
        Usual::Word("MASTER"),
        "waiters listen at the master",
    ),
    ignored("loadBalancer", MASTER_ONLY),
    ignored("failedSlaveReconnectionInterval", MASTER_ONLY),
    ignored("failedSlaveCheckInterval", MASTER_ONLY),
    ignored("failedSlaveNodeDetector", MASTER_ONLY),
    ignored("dnsMonitoringInterval", DNS),
    ignored("dnsMonitoringTimes", DNS),
    irrelevant("fallbackLoadingToMaster"),
    irrelevant("slaveConnectionPoolSize"),
    irrelevant("slaveConnectionMinimumIdleSize"),
    irrelevant("masterConnectionPoolSize"),
    irrelevant("masterConnectionMinimumIdleSize"),
    irrelevant("subscriptionConnectionPoolSize"),
    irrelevant("subscriptionConnectionMinimumIdleSize"),
    // Redisson 3.0 to 3.10.
    foreign(irrelevant("slaveSubscriptionConnectionPoolSize")),
    foreign(irrelevant("slaveSubscriptionConnectionMinimumIdleSize")),
];

const SINGLE: &[Key] = &[
    mapped("address", Setting::Address),
    mapped("database", Setting::Database),
    ignored("dnsMonitoringInterval", DNS),
    ignored("dnsMonitoringTimes", DNS),
    irrelevant("connectionPoolSize"),
    irrelevant("connectionMinimumIdleSize"),
    irrelevant("subscriptionConnectionPoolSize"),
    irrelevant("subscriptionConnectionMinimumIdleSize"),
    // Redisson 3.0 to 3.5.
    foreign(ignored("dnsMonitoring", DNS)),
];

const SENTINEL: &[Key] = &[
    mapped("sentinelAddresses", Setting::SentinelAddresses),
    mapped("masterName", Setting::MasterName),
    mapped("sentinelUsername", Setting::SentinelUsername),
    mapped("sentinelPassword", Setting::SentinelPassword),
    mapped("database", Setting::Database),
    ignored("scanInterval", SCAN),
    refused("natMap", Usual::Nothing, NAT),
    refused("natMapper", Usual::Class("DefaultNatMapper"), NAT),
    irrelevant("checkSentinelsList"),
    irrelevant("checkSlaveStatusWithSyncing"),
    ignored(
        "sentinelsDiscovery",
        "only the listed sentinels are asked: list all of them",
    ),
];

const CLUSTER: &[Key] = &[
    mapped("nodeAddresses", Setting::Addresses),
    mapped("database", Setting::Database),
    ignored("scanInterval", SCAN),
    refused("natMap", Usual::Nothing, NAT),
    refused("natMapper", Usual::Class("DefaultNatMapper"), NAT),
    differs(
        "checkSlotsCoverage",
        Usual::Boolean(false),
        "the client starts without it: calls for locks in a slot without a master fail, and no others",
    ),
    differs(
        "shardedSubscriptionMode",
        Usual::Word("AUTO"),
        "messages are sharded if the servers support it (7.0), as with AUTO; set AUTO in Java, too, or \
         waiters do not get each other's messages",
    ),
    irrelevant("checkMasterLinkStatus"),
];

const MASTER_SLAVE: &[Key] = &[
    mapped("masterAddress", Setting::MasterAddress),
    mapped("database", Setting::Database),
    ignored(
        "slaveAddresses",
        "only the master is asked, and it is not replaced when it fails: use sentinels for that",
    ),
];

const REPLICATED: &[Key] = &[
    mapped("nodeAddresses", Setting::Addresses),
    mapped("database", Setting::Database),
    ignored(
        "scanInterval",
        "the server at the address is asked for its role at each connect",
    ),
    refused("natMapper", Usual::Class("DefaultNatMapper"), NAT),
    irrelevant("monitorIPChanges"),
];

const RETRY: &str =
    "transient errors are retried, after 2 to 100 ms, until the time of the call is over";
const RECONNECT: &str = "the next command connects";
const DNS: &str = "a name is resolved at each connect";
const SCAN: &str =
    "lockdog asks each second, or each sixth of the watchdog's lease if that is shorter";
const MASTER_ONLY: &str = "only the master is asked";
const BATCH: &str = "lockdog renews up to 100 locks with a command";
const CIPHERS: &str = "rustls chooses the ciphers, of TLS 1.2 and 1.3";
const USER_TIMEOUT: &str = "each command has its time limit, `timeout`, instead";
const RESOLVER: &str = "lockdog cannot run a Java class: remove the key, and give the login by \
                        ClientBuilder::credentials, or username and password in the file";
const COMMANDS: &str = "lockdog sends the commands under their own names: remove the key if the server \
                        knows these names";
const NAT: &str = "lockdog connects to the addresses that the servers announce: set \
                   cluster-announce-ip or sentinel announce-ip there, and remove the key";
const FACTORY: &str = "lockdog cannot run a Java class: give the certificates in PEM by sslTruststore and \
                       sslKeystore, or by ClientBuilder::tls";
const PRO: &str = "it belongs to Redisson PRO, and lockdog has nothing like it: remove the key";
