//! What the values mean together: logins, times, names, and TLS.

use std::time::Duration;

use lockdog::config::{Protocol, TlsSettings};

use super::certificates;
use super::replicas;
use super::rule::{Section, Setting};
use super::servers::{self, Placed};
use super::walk::Found;
use crate::error::ConfigError;
use crate::note::Note;
use crate::settings::Settings;
use crate::value::SettingValue;

/// The settings of a file, and what became of its keys.
pub(super) fn settings(
    found: Found<'_>,
    has_name_mapper: bool,
) -> Result<(Settings, Vec<Note>), ConfigError> {
    let mut notes = Vec::new();
    let Placed {
        servers,
        login,
        by_tls,
    } = servers::place(&found, &mut notes)?;
    let mut settings = Settings::new(servers);
    settings.username = login.username;
    settings.password = login.password;
    times(&found, &mut settings, &mut notes)?;
    settings.replica_ack = replicas::ack(&found, settings.command_timeout, &mut notes)?;
    if let Some(value) = found.in_section.get(&Setting::Database)
        && let Some(number) = value.number(0..=MOST_DATABASES)?
    {
        if number > 0 && found.section == Section::Cluster {
            let why = "lockdog uses database 0 of a cluster: set 0, or remove the key";
            return Err(value.refused(why));
        }
        notes.push(value.mapped(format!("database({number})")));
        settings.database = u32::try_from(number).ok();
    }
    if let Some(value) = found.in_section.get(&Setting::ClientName)
        && let Some(name) = value.text()?
    {
        if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(value.wrong("it must be printable ASCII without spaces"));
        }
        notes.push(match name.contains("{id}") {
            true => value.mapped("client_name(..)"),
            false => value.mapped(
                "client_name(..); add {id}, or lockdog inspect cannot show a holder's address",
            ),
        });
        settings.client_name = Some(name);
    }
    if let Some(value) = found.in_top.get(&Setting::LazyInitialization)
        && let Some(lazy) = value.boolean()?
    {
        notes.push(value.mapped(format!("lazy({lazy})")));
        settings.lazy = Some(lazy);
    }
    if let Some(value) = found.in_top.get(&Setting::Protocol)
        && let Some(word) = value.choice(&["RESP2", "RESP3"])?
    {
        let (protocol, shown) = match word {
            "RESP3" => (Protocol::Resp3, "protocol(Protocol::Resp3)"),
            _ => (Protocol::Resp2, "protocol(Protocol::Resp2)"),
        };
        notes.push(value.mapped(shown));
        settings.protocol = Some(protocol);
    }
    name_mapper(&found, has_name_mapper, &mut notes)?;
    settings.tls = tls(&found, by_tls, &mut notes)?;
    for value in found.in_top.values().chain(found.in_section.values()) {
        // An empty text, as of a variable without a value, sets nothing.
        if !notes.iter().any(|note| note.key == value.key) {
            notes.push(value.ignored("it has no value"));
        }
    }
    notes.extend(found.notes);
    notes.sort_by_key(|note| (note.line, note.column));
    Ok((settings, notes))
}

fn times(
    found: &Found<'_>,
    settings: &mut Settings,
    notes: &mut Vec<Note>,
) -> Result<(), ConfigError> {
    let mut time = |value: Option<&SettingValue<'_>>, setting: &str| {
        let Some(value) = value else { return Ok(None) };
        let Some(millis) = value.number(SHORTEST..=A_DAY)? else {
            return Ok(None);
        };
        let time = Duration::from_millis(millis);
        notes.push(value.mapped(format!("{setting}({time:?})")));
        Ok::<_, ConfigError>(Some(time))
    };
    let (top, section) = (&found.in_top, &found.in_section);
    settings.command_timeout = time(section.get(&Setting::Timeout), "command_timeout")?;
    settings.watchdog_lease = time(top.get(&Setting::LockWatchdogTimeout), "watchdog_lease")?;
    settings.fair_wait = time(top.get(&Setting::FairLockWaitTimeout), "fair_wait")?;
    Ok(())
}

/// Without the mapper the locks would have other keys, and two holders.
fn name_mapper(found: &Found<'_>, has_own: bool, notes: &mut Vec<Note>) -> Result<(), ConfigError> {
    for values in [&found.in_top, &found.in_section] {
        let Some(value) = values.get(&Setting::NameMapper) else {
            continue;
        };
        if value.is_class("DefaultNameMapper") {
            notes.push(value.ignored("names are keys, as with lockdog"));
        } else if has_own {
            notes.push(value.mapped("name_mapper(..), as the program gives it"));
        } else {
            let why = "lockdog cannot run a Java class, and without it Java's locks have other keys: write \
                       the same mapping in Rust, and give it to Reader::name_mapper";
            return Err(value.refused(why));
        }
    }
    Ok(())
}

fn tls(
    found: &Found<'_>,
    by_tls: bool,
    notes: &mut Vec<Note>,
) -> Result<Option<TlsSettings>, ConfigError> {
    let mut tls = None;
    for values in [&found.in_top, &found.in_section] {
        for setting in TLS {
            let Some(value) = values.get(&setting) else {
                continue;
            };
            if !by_tls {
                notes.push(value.ignored("no address begins with rediss://"));
                continue;
            }
            check_tls(setting, value, notes)?;
        }
    }
    if !by_tls {
        return Ok(None);
    }
    for setting in [Setting::SslTruststore, Setting::SslKeystore] {
        let (top, section) = (found.in_top.get(&setting), found.in_section.get(&setting));
        if let (Some(_), Some(value)) = (top, section) {
            notes.push(value.ignored("the one at the top level counts"));
        }
    }
    if let Some(value) = first(found, Setting::SslTruststore)
        && let Some(pem) = certificates::roots(value)?
    {
        notes.push(value.mapped("tls(..): root_certificates"));
        tls = Some(tls.unwrap_or_else(TlsSettings::new).root_certificates(pem));
    }
    if let Some(value) = first(found, Setting::SslKeystore)
        && let Some(pem) = certificates::identity(value)?
    {
        notes.push(value.mapped("tls(..): client_certificate"));
        let settings = tls.unwrap_or_else(TlsSettings::new);
        tls = Some(settings.client_certificate(pem.clone(), pem));
    }
    Ok(tls)
}

fn check_tls(
    setting: Setting,
    value: &SettingValue<'_>,
    notes: &mut Vec<Note>,
) -> Result<(), ConfigError> {
    let anyway = "lockdog does this anyway";
    match setting {
        Setting::SslVerificationMode => {
            if value.choice(&["STRICT", "CA_ONLY", "NONE"])? != Some("STRICT") {
                return Err(value.refused(VERIFIED));
            }
            notes.push(value.ignored(anyway));
        }
        Setting::SslEnableEndpointIdentification => {
            if value.boolean()? == Some(false) {
                return Err(value.refused(VERIFIED));
            }
            notes.push(value.ignored(anyway));
        }
        Setting::SslProtocols => {
            let protocols = value.texts()?;
            let has_any = |it: &String| ["TLSv1.2", "TLSv1.3"].contains(&it.as_str());
            if !protocols.is_empty() && !protocols.iter().any(has_any) {
                return Err(value.refused("lockdog uses TLS 1.2 and 1.3: allow one of them"));
            }
            notes.push(value.ignored("TLS 1.2 and 1.3"));
        }
        _ => {}
    }
    Ok(())
}

/// The value at the top, or else the one of the section, as Redisson takes them.
pub(super) fn first<'f, 'a>(
    found: &'f Found<'a>,
    setting: Setting,
) -> Option<&'f SettingValue<'a>> {
    let top = found.in_top.get(&setting);
    top.or_else(|| found.in_section.get(&setting))
}

const TLS: [Setting; 5] = [
    Setting::SslVerificationMode,
    Setting::SslEnableEndpointIdentification,
    Setting::SslProtocols,
    Setting::SslTruststore,
    Setting::SslKeystore,
];
const VERIFIED: &str = "lockdog always verifies the certificate and the host name: remove the key, and name \
                        your authority's certificate in sslTruststore";
/// What the builder accepts, in milliseconds.
const SHORTEST: u64 = 10;
const A_DAY: u64 = 24 * 60 * 60 * 1000;
const MOST_DATABASES: u64 = i32::MAX as u64;
