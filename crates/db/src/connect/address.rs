//! Parses the address of a database: TLS and the password file here, the rest by tokio-postgres. Redacts passwords.

use std::{iter::Peekable, path::PathBuf, str::Chars};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio_postgres::Config;

use super::Error;
use super::environment::Environment;
use super::password::PasswordSource;

/// libpq's sslmode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Never encrypted.
    Disable,
    /// Encrypted only if the server refuses an unencrypted connection.
    Allow,
    /// Encrypted if the server supports it.
    Prefer,
    /// Encrypted, with any certificate.
    Require,
    /// Encrypted, with a certificate that a trusted authority signed.
    VerifyCa,
    /// The same, and the certificate names the host.
    VerifyFull,
}

/// The trusted authorities, sslrootcert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// The certificates in this file.
    File(PathBuf),
    /// The root certificates of the operating system.
    System,
}

/// The client certificate, sslcert and sslkey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// A parsed address.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) mode: Mode,
    pub(super) root: Option<Root>,
    pub(super) identity: Option<Identity>,
    /// The settings of this crate, encoded for a URL.
    pub(super) own_settings: Vec<String>,
    pub(super) password: PasswordSource,
}

/// The settings that tokio-postgres does not support, or not fully.
#[derive(Default)]
struct OwnSettings {
    sslmode: Option<String>,
    sslrootcert: Option<String>,
    sslcert: Option<String>,
    sslkey: Option<String>,
    passfile: Option<String>,
}

impl OwnSettings {
    /// Stores such a setting; false if it is another setting.
    fn set(&mut self, name: &str, value: &str) -> bool {
        let slot = match name {
            "sslmode" => &mut self.sslmode,
            "sslrootcert" => &mut self.sslrootcert,
            "sslcert" => &mut self.sslcert,
            "sslkey" => &mut self.sslkey,
            "passfile" => &mut self.passfile,
            _ => return false,
        };
        *slot = Some(value.to_owned()).filter(|value| !value.is_empty());
        true
    }

    fn get(&self, name: &str) -> Option<&String> {
        match name {
            "sslmode" => self.sslmode.as_ref(),
            "sslrootcert" => self.sslrootcert.as_ref(),
            "sslcert" => self.sslcert.as_ref(),
            "sslkey" => self.sslkey.as_ref(),
            _ => self.passfile.as_ref(),
        }
    }

    /// As `name=value`, encoded for a URL.
    fn encoded(&self) -> Vec<String> {
        let all = ["sslmode", "sslrootcert", "sslcert", "sslkey", "passfile"].map(|name| (name, self.get(name)));
        all.into_iter()
            .filter_map(|(name, value)| value.map(|value| format!("{name}={}", percent_encode(value))))
            .collect()
    }
}

/// Everything but the unreserved characters of RFC 3986, section 2.3.
const URL_RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Percent-encodes one segment of a URL's path, or one value of its query.
pub fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, URL_RESERVED).to_string()
}

pub(super) fn parse(text: &str, environment: &Environment) -> Result<Address, Error> {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    let (rest, mut own) = match text.trim() {
        "" if environment.names_a_server() => (String::new(), OwnSettings::default()),
        _ if is_url => from_url(text)?,
        _ => from_pairs(text)?,
    };
    let mut config: Config = rest.parse().map_err(|error| wrong(without_input(&error)))?;
    environment.fill(&mut config);
    for (name, value) in &environment.own {
        if own.get(name).is_none() {
            own.set(name, value);
        }
    }
    let at_sign = |host: &tokio_postgres::config::Host| matches!(host, tokio_postgres::config::Host::Tcp(name) if name.contains('@'));
    if config.get_hosts().iter().any(at_sign) {
        return Err(wrong("there is an @ in the host; an @ in a user or password is written %40"));
    }
    let own_settings = own.encoded();
    let password = match (own.passfile, &environment.home_passfile) {
        (Some(path), _) => PasswordSource::Passfile(path.into()),
        (None, Some(path)) => PasswordSource::HomePassfile(path.clone()),
        (None, None) => PasswordSource::None,
    };
    let root =
        own.sslrootcert.map(|value| if value == "system" { Root::System } else { Root::File(value.into()) });
    Ok(Address {
        config,
        mode: mode(own.sslmode.as_deref(), root.as_ref())?,
        root,
        identity: match (own.sslcert, own.sslkey) {
            (Some(certificate), Some(key)) => Some(Identity { certificate: certificate.into(), key: key.into() }),
            (None, None) => None,
            _ => return Err(wrong("sslcert and sslkey go together, and one of them is missing")),
        },
        own_settings,
        password,
    })
}

fn mode(sslmode: Option<&str>, root: Option<&Root>) -> Result<Mode, Error> {
    let mode = match (sslmode, root) {
        (Some("disable"), _) => Mode::Disable,
        (None | Some("verify-full"), Some(Root::System)) => Mode::VerifyFull,
        // Any attacker can get a certificate from a public authority, for another name.
        (Some(_), Some(Root::System)) => {
            return Err(wrong("sslrootcert=system goes with sslmode=verify-full alone"));
        }
        (Some("allow"), _) => Mode::Allow,
        (None | Some("prefer"), _) => Mode::Prefer,
        // As in libpq: a root certificate turns `require` into `verify-ca`.
        (Some("require"), Some(Root::File(_))) => Mode::VerifyCa,
        (Some("require"), None) => Mode::Require,
        (Some("verify-ca"), Some(_)) => Mode::VerifyCa,
        (Some("verify-full"), Some(_)) => Mode::VerifyFull,
        (Some(word @ ("verify-ca" | "verify-full")), None) => {
            return Err(wrong(format!(
                "sslmode={word} needs sslrootcert=FILE with the certificate of the authority, \
                 or with verify-full sslrootcert=system"
            )));
        }
        (Some(_), _) => {
            return Err(wrong("sslmode is one of disable, allow, prefer, require, verify-ca, verify-full"));
        }
    };
    Ok(mode)
}

/// The error of tokio-postgres, if it quotes nothing of the address: any part may belong to a password.
fn without_input(error: &tokio_postgres::Error) -> String {
    // The error itself says only "invalid connection string"; its source has the reason.
    let words = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    // This names a known setting, and not its value.
    if words.starts_with("invalid value for option") {
        return words;
    }
    "it has a setting that is not known or a sign in the wrong place; it is written \
     postgres://user:password@host:port/database?name=value or as a list of name=value, and special signs in a URL \
     as % and two digits"
        .to_owned()
}

/// Splits `scheme://user:password@hosts/database?settings`.
fn from_url(text: &str) -> Result<(String, OwnSettings), Error> {
    let mut own = OwnSettings::default();
    // tokio-postgres takes everything before the first @ for user and password, question marks included.
    let credentials = text.find('@').unwrap_or(0);
    let Some(question) = text[credentials..].find('?').map(|at| at + credentials) else {
        return Ok((text.to_owned(), own));
    };
    let mut others = Vec::new();
    for setting in text[question + 1..].split('&').filter(|setting| !setting.is_empty()) {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| wrong("the settings after the question mark are name=value, parted by &"))?;
        let decoded = percent_decode_str(value).decode_utf8().map_err(|_| wrong("a setting is not UTF-8"))?;
        if !own.set(name, &decoded) {
            others.push(setting);
        }
    }
    let mut rest = text[..question].to_owned();
    if !others.is_empty() {
        rest.push('?');
        rest.push_str(&others.join("&"));
    }
    Ok((rest, own))
}

/// Splits `name=value name='quoted value'`.
fn from_pairs(text: &str) -> Result<(String, OwnSettings), Error> {
    let malformed = || wrong("it is neither postgres://user@host:port/database nor a list of name=value");
    let mut own = OwnSettings::default();
    let mut rest = String::new();
    let mut left = text.chars().peekable();
    loop {
        while left.next_if(|c| c.is_whitespace()).is_some() {}
        if left.peek().is_none() {
            break;
        }
        let mut name = String::new();
        while let Some(c) = left.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
            name.push(c);
        }
        while left.next_if(|c| c.is_whitespace()).is_some() {}
        if name.is_empty() || left.next() != Some('=') {
            return Err(malformed());
        }
        while left.next_if(|c| c.is_whitespace()).is_some() {}
        let value = value(&mut left).ok_or_else(malformed)?;
        if !own.set(&name, &value) {
            let quoted = value.replace('\\', "\\\\").replace('\'', "\\'");
            rest.push_str(&format!("{name}='{quoted}' "));
        }
    }
    if rest.is_empty() { Err(malformed()) } else { Ok((rest, own)) }
}

fn value(left: &mut Peekable<Chars<'_>>) -> Option<String> {
    let quoted = left.next_if_eq(&'\'').is_some();
    let mut value = String::new();
    loop {
        match left.peek() {
            None if quoted => return None,
            None => return Some(value),
            Some('\'') if quoted => {
                left.next();
                return Some(value);
            }
            Some(c) if !quoted && c.is_whitespace() => return Some(value),
            Some('\\') => {
                left.next();
                value.push(left.next()?);
            }
            Some(_) => value.extend(left.next()),
        }
    }
}

pub(super) fn wrong(reason: impl Into<String>) -> Error {
    Error::Address { reason: reason.into() }
}

/// Redacts the passwords of all URLs and lists of `name=value` in a text, for messages and logs.
///
/// It removes too much rather than leave a part of a password that was not encoded as it should be.
#[must_use]
pub fn redact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        rest = after;
        // Up to the last @ before the next URL: a password may contain an @ or a space that is not encoded.
        let url = after.find("://").unwrap_or(after.len());
        let word = after.find(char::is_whitespace).unwrap_or(after.len()).min(url);
        let (from, to) = match (after[..url].find(':'), after[..url].rfind('@')) {
            (Some(colon), Some(end)) if colon < end => (colon, end),
            // Without an @, a text after the colon that is no port may be a password.
            (Some(colon), None) if colon < word && !is_port(&after[colon + 1..word]) => (colon, word),
            _ => continue,
        };
        shown.push_str(&after[..=from]);
        shown.push_str("***");
        rest = &after[to..];
    }
    shown.push_str(rest);
    redact_pairs(&shown)
}

/// Whether a text starts with a port number that ends there.
fn is_port(text: &str) -> bool {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    digits > 0 && text[digits..].chars().next().is_none_or(|next| !next.is_alphanumeric())
}

fn redact_pairs(text: &str) -> String {
    const NAME: &str = "password";
    // ASCII lower case keeps the byte positions.
    let lower = text.to_ascii_lowercase();
    let mut shown = String::with_capacity(text.len());
    let mut done = 0;
    while let Some(at) = lower[done..].find(NAME) {
        let name_end = done + at + NAME.len();
        shown.push_str(&text[done..name_end]);
        done = name_end;
        let Some(given) = text[name_end..].trim_start().strip_prefix('=') else { continue };
        let given = given.trim_start();
        shown.push_str("=***");
        let mut left = given.chars().peekable();
        // An unclosed quote redacts the rest.
        let unread = value(&mut left).map_or(0, |_| left.map(char::len_utf8).sum());
        done = text.len() - unread;
    }
    shown.push_str(&text[done..]);
    shown
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::{Host, TargetSessionAttrs};

    use super::super::environment::tests::environment;
    use super::*;

    fn parse(text: &str) -> Result<Address, Error> {
        super::parse(text, &Environment::default())
    }

    #[test]
    fn the_environment_says_what_an_address_leaves_out() {
        let environment = environment(&[
            ("PGHOST", "db1,db2"),
            ("PGPORT", "5433"),
            ("PGUSER", "me"),
            ("PGPASSWORD", "it's \\ here"),
            ("PGDATABASE", "shop"),
            ("PGSSLMODE", "require"),
            ("PGPASSFILE", "/etc/passfile"),
            ("PGTARGETSESSIONATTRS", "read-write"),
            ("PGCONNECT_TIMEOUT", "7"),
            ("HOME", "/home/me"),
        ])
        .unwrap();
        let all = super::parse("", &environment).unwrap();
        assert_eq!(all.config.get_hosts().len(), 2);
        assert_eq!((all.config.get_ports(), all.config.get_user()), (&[5433][..], Some("me")));
        assert_eq!(all.config.get_password(), Some(&b"it's \\ here"[..]));
        assert_eq!((all.config.get_dbname(), all.mode), (Some("shop"), Mode::Require));
        assert_eq!(all.password, PasswordSource::Passfile("/etc/passfile".into()));
        let own = super::parse("postgres://you:word@other/x?sslmode=disable&passfile=%2Fa", &environment).unwrap();
        assert_eq!((own.config.get_user(), own.config.get_dbname()), (Some("you"), Some("x")));
        assert_eq!(own.config.get_hosts().len(), 1);
        assert_eq!((own.config.get_password(), own.mode), (Some(&b"word"[..]), Mode::Disable));
        assert_eq!(own.password, PasswordSource::Passfile("/a".into()));
        assert_eq!(own.config.get_connect_timeout().unwrap().as_secs(), 7);
        assert!(super::parse("", &Environment::default()).is_err());
    }

    fn refusal(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_url_is_split_into_tls_settings_and_the_rest() {
        let address = parse(
            "postgres://me:p%3Fw@db1:5433,db2/shop?sslmode=verify-full&sslrootcert=%2Fetc%2Fmy%20ca.pem\
             &target_session_attrs=read-write&sslcert=/c&sslkey=/k",
        )
        .unwrap();
        assert_eq!(address.mode, Mode::VerifyFull);
        assert_eq!(address.root, Some(Root::File("/etc/my ca.pem".into())));
        assert_eq!(address.identity, Some(Identity { certificate: "/c".into(), key: "/k".into() }));
        assert_eq!(address.config.get_hosts(), [Host::Tcp("db1".into()), Host::Tcp("db2".into())]);
        assert_eq!(address.config.get_ports(), [5433, 5432]);
        assert_eq!(address.config.get_password(), Some(b"p?w".as_slice()));
        assert_eq!(address.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    }

    #[test]
    fn a_list_of_pairs_is_split_likewise() {
        let address = parse(r"host=db dbname = 'my shop' password='it\'s \\ here' sslmode=require").unwrap();
        assert_eq!(address.mode, Mode::Require);
        assert_eq!(address.config.get_dbname(), Some("my shop"));
        assert_eq!(address.config.get_password(), Some(br"it's \ here".as_slice()));
    }

    #[test]
    fn modes_mean_what_they_mean_to_libpq() {
        let mode = |settings: &str| parse(&format!("host=db {settings}")).map(|address| address.mode);
        assert_eq!(mode("").unwrap(), Mode::Prefer);
        assert_eq!(mode("sslmode=allow").unwrap(), Mode::Allow);
        assert_eq!(mode("sslmode=disable").unwrap(), Mode::Disable);
        assert_eq!(mode("sslmode=require sslrootcert=/ca").unwrap(), Mode::VerifyCa);
        assert_eq!(mode("sslrootcert=system").unwrap(), Mode::VerifyFull);
        assert!(mode("sslmode=require sslrootcert=system").is_err());
        assert!(mode("sslmode=verify-full").unwrap_err().to_string().contains("sslrootcert=FILE"));
        assert!(mode("sslmode=sometimes").unwrap_err().to_string().contains("verify-ca"));
    }

    #[test]
    fn an_invalid_address_is_refused_without_its_password() {
        for text in [
            "mysql://root:s3cret@host/db",
            "",
            "s3cret",
            "host=db password='s3cret",
            "postgres://me:s3@cret@host/db",
            "postgres://me:s3cret@host:port/db",
            "postgres://me:s3cret@host/db?sslcert=/c",
            "host=db password=my s3cret",
            "host=db password=my s3cret=1",
            "host=db password = s3cret colour = red",
            r"host=db password='a\'s3cret' colour=red",
            "postgres://me:s3 cret@host:port/db",
            "postgres://me@host/db?password=my&s3cret=1",
            "postgres://me:s3cret",
        ] {
            let refusal = refusal(text);
            assert!(!refusal.contains("s3") && !refusal.contains("cret"), "{refusal}");
        }
        assert!(refusal("postgres://me:s3@cret@host/db").contains("%40"));
        assert!(refusal("postgres://host/db?colour=red").contains("a setting that is not known"));
        assert!(refusal("postgres://me@host:port/db").contains("`port`"));
    }

    #[test]
    fn passwords_are_redacted_wherever_they_are() {
        let shown = redact(
            "no 'postgres://me:s3@cret@host/db' here, postgres://me@host nor host=a password='a b' x=1 password=c&d y=1",
        );
        assert_eq!(
            shown,
            "no 'postgres://me:***@host/db' here, postgres://me@host nor host=a password=*** x=1 password=*** y=1"
        );
        for (text, expected) in [
            ("host=a password = s3cret x=1", "host=a password=*** x=1"),
            ("host=a PASSWORD\t=\n's3 cret' x=1", "host=a PASSWORD=*** x=1"),
            (r"password='a\'s3cret' x=1", "password=*** x=1"),
            (r"password=a\ s3cret x=1", "password=*** x=1"),
            ("password='s3cret x=1", "password=***"),
            ("password=it's3cret x=1", "password=*** x=1"),
            ("a 'postgres://me:s3 cret@host/db' b", "a 'postgres://me:***@host/db' b"),
            ("postgres://me:s3'cret@host/db", "postgres://me:***@host/db"),
            ("a postgres://me:s3cret b", "a postgres://me:*** b"),
            ("a postgres://host:5432/x?user=me b", "a postgres://host:5432/x?user=me b"),
            ("the password is wrong", "the password is wrong"),
        ] {
            assert_eq!(redact(text), expected);
        }
        assert_eq!(redact("a://b and c"), "a://b and c");
    }
}
