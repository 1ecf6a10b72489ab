//! Where the servers are, and who the client is for them.

use super::address::ServerAddress;
use super::rule::{Section, Setting};
use super::walk::Found;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::note::Note;
use crate::settings::Servers;
use crate::value::SettingValue;

/// The servers, and how to log in there.
pub(super) struct Placed {
    pub(super) servers: Servers,
    /// At the servers that have the locks.
    pub(super) login: Login,
    pub(super) by_tls: bool,
}

#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
}

/// Finds the servers of the file's section.
pub(super) fn place(found: &Found<'_>, notes: &mut Vec<Note>) -> Result<Placed, ConfigError> {
    let login = Login {
        username: credential(found, Setting::Username, notes)?,
        password: credential(found, Setting::Password, notes)?,
    };
    let mut placed = match found.section {
        Section::Single => one(found, Setting::Address, "address", login, notes)?,
        Section::MasterSlave => {
            let (setting, key) = (Setting::MasterAddress, "masterAddress");
            one(found, setting, key, login, notes)?
        }
        Section::Replicated => replicated(found, login, notes)?,
        Section::Cluster => cluster(found, login, notes)?,
        Section::Sentinel => sentinels(found, login, notes)?,
    };
    if placed.login.password.is_none() && placed.login.username.take().is_some() {
        for values in [&found.in_top, &found.in_section] {
            if let Some(value) = values.get(&Setting::Username) {
                notes.retain(|note| note.key != value.key);
                notes.push(value.ignored("without a password no login is sent, as in Redisson"));
            }
        }
    }
    Ok(placed)
}

/// User or password: the one at the top, or else the one of the section.
fn credential(
    found: &Found<'_>,
    setting: Setting,
    notes: &mut Vec<Note>,
) -> Result<Option<String>, ConfigError> {
    let mut first = None;
    for values in [&found.in_top, &found.in_section] {
        let Some(value) = values.get(&setting) else {
            continue;
        };
        let Some(text) = secret(value)? else { continue };
        if first.is_some() {
            notes.push(value.ignored("the one at the top level counts"));
            continue;
        }
        first = Some(text);
        notes.push(value.mapped(match setting {
            Setting::Username => "username(..)",
            _ => "password(..)",
        }));
    }
    Ok(first)
}

fn secret(value: &SettingValue<'_>) -> Result<Option<String>, ConfigError> {
    let text = value.text()?;
    if text.as_ref().is_some_and(|text| text.starts_with("{aes}")) {
        let why = "encrypted values belong to Redisson PRO: give the value by a variable, ${NAME}";
        return Err(value.refused(why));
    }
    Ok(text)
}

/// What the address itself says of the login counts first.
fn login_at(address: &ServerAddress, general: &Login) -> Login {
    let first =
        |one: &Option<String>, other: &Option<String>| one.clone().or_else(|| other.clone());
    Login {
        username: first(&address.username, &general.username),
        password: first(&address.password, &general.password),
    }
}

fn one(
    found: &Found<'_>,
    setting: Setting,
    key: &str,
    login: Login,
    notes: &mut Vec<Note>,
) -> Result<Placed, ConfigError> {
    let value = required(found, setting, key)?;
    let text = value.text()?.ok_or_else(|| missing(found, key))?;
    let address = address(value, &text, notes)?;
    Ok(only(value, &address, &login, notes))
}

fn only(
    value: &SettingValue<'_>,
    address: &ServerAddress,
    login: &Login,
    notes: &mut Vec<Note>,
) -> Placed {
    notes.push(value.mapped(format!("url(..): {}", address.shown())));
    Placed {
        servers: Servers::One(address.url()),
        login: login_at(address, login),
        by_tls: address.is_by_tls(),
    }
}

fn replicated(
    found: &Found<'_>,
    login: Login,
    notes: &mut Vec<Note>,
) -> Result<Placed, ConfigError> {
    let (value, addresses) = several(found, Setting::Addresses, "nodeAddresses", notes)?;
    match &addresses[..] {
        [address] => Ok(only(value, address, &login, notes)),
        _ => {
            let why = "lockdog does not ask servers which of them is the master: give the one address that \
                       always leads to it, or use sentinelServersConfig or clusterServersConfig";
            Err(value.refused(why))
        }
    }
}

fn cluster(found: &Found<'_>, login: Login, notes: &mut Vec<Note>) -> Result<Placed, ConfigError> {
    let (value, addresses) = several(found, Setting::Addresses, "nodeAddresses", notes)?;
    let logins = addresses.iter().map(|it| (&it.username, &it.password));
    let first = (&addresses[0].username, &addresses[0].password);
    if logins.into_iter().any(|it| it != first) {
        let why = "lockdog has one user and password for all nodes: remove them from the addresses, and set \
                   username and password";
        return Err(value.refused(why));
    }
    notes.push(value.mapped(format!("cluster(..): {}", shown(&addresses))));
    Ok(Placed {
        servers: Servers::Cluster(addresses.iter().map(ServerAddress::url).collect()),
        login: login_at(&addresses[0], &login),
        by_tls: addresses[0].is_by_tls(),
    })
}

fn sentinels(
    found: &Found<'_>,
    login: Login,
    notes: &mut Vec<Note>,
) -> Result<Placed, ConfigError> {
    let name = required(found, Setting::MasterName, "masterName")?;
    let master = name.text()?.ok_or_else(|| missing(found, "masterName"))?;
    if master.len() > LONGEST_NAME {
        return Err(name.wrong("it must have 1 to 512 bytes"));
    }
    notes.push(name.mapped("sentinel(..): the master's name"));
    let (value, addresses) = several(
        found,
        Setting::SentinelAddresses,
        "sentinelAddresses",
        notes,
    )?;
    let mut general = Login::default();
    if let Some(value) = found.in_section.get(&Setting::SentinelPassword)
        && let Some(password) = secret(value)?
    {
        notes.push(value.mapped("sentinel_password(..)"));
        general.password = Some(password);
    }
    if let Some(value) = found.in_section.get(&Setting::SentinelUsername)
        && let Some(user) = secret(value)?
    {
        general.username = Some(user);
        // A configured user shows that the sentinels require a login.
        if general.password.is_none() {
            general.password.clone_from(&login.password);
        }
        notes.push(match general.password {
            Some(_) => value.mapped("sentinel_username(..)"),
            None => value.ignored("without a password no login is sent, as in Redisson"),
        });
    }
    let urls = addresses.iter().map(|address| {
        let login = login_at(address, &general);
        address.url_with(login.username.as_deref(), login.password.as_deref())
    });
    let urls = urls.collect();
    let mut text = format!("sentinel(..): {}", shown(&addresses));
    if login.password.is_some() && general.password.is_none() {
        text.push_str("; a sentinel that requires a password gets the servers', as in Redisson");
    }
    notes.push(value.mapped(text));
    Ok(Placed {
        servers: Servers::Sentinels { master, urls },
        login,
        by_tls: addresses[0].is_by_tls(),
    })
}

/// The addresses of a list, each once and at least one.
fn several<'f, 'a>(
    found: &'f Found<'a>,
    setting: Setting,
    key: &str,
    notes: &mut Vec<Note>,
) -> Result<(&'f SettingValue<'a>, Vec<ServerAddress>), ConfigError> {
    let value = required(found, setting, key)?;
    let mut addresses: Vec<ServerAddress> = Vec::new();
    for text in value.texts()? {
        let address = address(value, &text, notes)?;
        if address.is_socket() {
            return Err(value.wrong("a socket leads to one server: use singleServerConfig"));
        }
        if !addresses.iter().any(|it| it.is_at_the_same_place(&address)) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(missing(found, key));
    }
    if addresses
        .iter()
        .any(|it| it.is_by_tls() != addresses[0].is_by_tls())
    {
        let why = "some addresses use TLS and some do not: begin all with rediss://, or all with redis://";
        return Err(value.refused(why));
    }
    Ok((value, addresses))
}

fn address(
    value: &SettingValue<'_>,
    text: &str,
    notes: &mut Vec<Note>,
) -> Result<ServerAddress, ConfigError> {
    // Redisson does not mind the end of a line, as a block of text has it.
    let address = ServerAddress::parse(text.trim_end()).map_err(|why| value.wrong(why))?;
    if address.has_path {
        let why = "what follows the port is ignored, as in Redisson: set the number by `database`";
        notes.push(value.differs(why));
    }
    Ok(address)
}

fn shown(addresses: &[ServerAddress]) -> String {
    let shown: Vec<_> = addresses.iter().map(ServerAddress::shown).collect();
    shown.join(", ")
}

fn required<'f, 'a>(
    found: &'f Found<'a>,
    setting: Setting,
    key: &str,
) -> Result<&'f SettingValue<'a>, ConfigError> {
    let value = found.in_section.get(&setting);
    value.ok_or_else(|| missing(found, key))
}

fn missing(found: &Found<'_>, key: &str) -> ConfigError {
    let error = ConfigError::new(ConfigErrorKind::Value, format!("it needs {key}"));
    error.at(found.section_at).of_key(found.section.key())
}

const LONGEST_NAME: usize = 512;
