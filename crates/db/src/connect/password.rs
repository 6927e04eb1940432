//! Passwords from files, read for each connection: a rotated password needs no restart.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::Error;

const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The rights of a password file that others have. libpq ignores such a file too.
const RIGHTS_OF_OTHERS: u32 = 0o077;

/// Where the password of a connection comes from if the address has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum PasswordSource {
    /// No password.
    #[default]
    None,
    /// A file with the password alone.
    File(PathBuf),
    /// A password file of libpq, with a line per server.
    Passfile(PathBuf),
    /// The same in the home folder, where it may be missing.
    HomePassfile(PathBuf),
}

impl PasswordSource {
    /// The password for the one host of these settings.
    pub(super) fn read(&self, config: &Config) -> Result<Option<String>, Error> {
        match self {
            Self::None => Ok(None),
            Self::File(path) => {
                let text = read(path).map_err(unusable("password_file", path))?;
                let password = text.trim_end_matches(['\r', '\n']);
                if password.is_empty() {
                    return Err(unusable("password_file", path)(io::Error::other("the file is empty")));
                }
                Ok(Some(password.to_owned()))
            }
            Self::Passfile(path) => {
                let text = read_private(path).map_err(unusable("passfile", path))?;
                Ok(password_of(&text, config))
            }
            Self::HomePassfile(path) => Ok(read_private(path).ok().and_then(|text| password_of(&text, config))),
        }
    }
}

fn unusable(setting: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::File { setting, path: path.to_owned(), source: source.into() }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn read_private(path: &Path) -> io::Result<String> {
    if std::fs::metadata(path)?.mode() & RIGHTS_OF_OTHERS != 0 {
        return Err(io::Error::other("other users may read it: run chmod 0600 on it"));
    }
    read(path)
}

/// The password of the first line that fits: `host:port:database:user:password`, each `*` or a value.
fn password_of(text: &str, config: &Config) -> Option<String> {
    let host = match config.get_hosts().first()? {
        Host::Tcp(name) => name.clone(),
        // As in libpq, where a socket is in the usual folder.
        Host::Unix(folder)
            if ["/tmp", "/var/run/postgresql", "/run/postgresql"]
                .iter()
                .any(|usual| folder == Path::new(usual)) =>
        {
            "localhost".to_owned()
        }
        Host::Unix(folder) => folder.to_string_lossy().into_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    let wanted = [host.as_str(), &port, database, user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line)?;
        let fits = fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
        fits.then(|| fields[4].clone()).filter(|password| !password.is_empty())
    })
}

/// The five fields of a line. A backslash stands before a colon or a backslash that belongs to a value.
fn fields(line: &str) -> Option<[String; 5]> {
    let mut fields: [String; 5] = Default::default();
    let mut at = 0;
    let mut escaped = false;
    for c in line.trim_end_matches('\r').chars() {
        match c {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            ':' if !escaped && at < 4 => at += 1,
            _ => fields[at].push(c),
        }
        escaped = false;
    }
    (at == 4).then_some(fields)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let text = "# comment\n\nother:5432:*:*:wrong\ndb:5433:shop:me:a\\:b\\\\c\n*:*:*:me:any\nlocalhost:*:*:*:socket\nbroken\n";
        let of = |address: &str| password_of(text, &address.parse().unwrap());
        assert_eq!(of("host=db port=5433 dbname=shop user=me").as_deref(), Some("a:b\\c"));
        assert_eq!(of("host=db port=5432 dbname=shop user=me").as_deref(), Some("any"));
        assert_eq!(of("host=db user=you"), None);
        assert_eq!(of("host=/run/postgresql user=you").as_deref(), Some("socket"));
        assert_eq!(of("host=/srv/sockets user=you"), None);
    }

    #[test]
    fn a_file_is_read_for_each_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let config: Config = "host=db user=me".parse().unwrap();
        let read = |source: &PasswordSource| source.read(&config).map_err(|error| error.to_string());
        let file = PasswordSource::File(path.clone());
        assert!(read(&file).unwrap_err().contains("password_file"));
        for text in ["one\n", " two \r\n"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&file).unwrap().as_deref(), Some(text.trim_end_matches(['\r', '\n'])));
        }
        std::fs::write(&path, "\n").unwrap();
        assert!(read(&file).is_err());

        std::fs::write(&path, "*:*:*:*:s3cret\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let refusal = PasswordSource::Passfile(path.clone()).read(&config).unwrap_err();
        let source = std::error::Error::source(&refusal).unwrap().to_string();
        assert!(source.contains("chmod 0600") && !source.contains("s3cret"), "{source}");
        assert_eq!(read(&PasswordSource::HomePassfile(path.clone())), Ok(None));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(read(&PasswordSource::Passfile(path.clone())).unwrap().as_deref(), Some("s3cret"));
        assert_eq!(read(&PasswordSource::HomePassfile(path)).unwrap().as_deref(), Some("s3cret"));
        let missing = folder.path().join("missing");
        assert!(read(&PasswordSource::Passfile(missing.clone())).is_err());
        assert_eq!(read(&PasswordSource::HomePassfile(missing)), Ok(None));
    }
}
