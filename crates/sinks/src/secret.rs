//! Reads secrets from an environment variable or a file, and keeps them out of logs and errors.
//!
//! A secret is never written in the settings themselves and never in the database.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use serde::Deserialize;
use zeroize::Zeroizing;

use crate::config::SettingError;

/// The largest file that is read as a secret: a longer one was named by mistake.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// A text that `Debug` does not show and whose memory is wiped when it is dropped.
#[derive(Clone)]
pub(crate) struct Secret(Zeroizing<String>);

impl Secret {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Where a secret is read from.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum SecretSource {
    /// An environment variable.
    Env(String),
    /// A file, without the newline at its end.
    File(PathBuf),
}

impl SecretSource {
    /// Reads the secret. `setting` is the name of the setting, for errors.
    pub(crate) fn read(&self, setting: &str) -> Result<Secret, SettingError> {
        let text = match self {
            Self::Env(name) => std::env::var(name).map(Zeroizing::new).map_err(|error| {
                // The name is not repeated: operators paste the secret itself here by mistake.
                let text = match error {
                    _ if !is_variable_name(name) => {
                        "must be the name of an environment variable: letters, digits and _, such as BANK_SECRET"
                    }
                    std::env::VarError::NotPresent => {
                        "names an environment variable that is not set: set it. Write the name here, never the secret"
                    }
                    std::env::VarError::NotUnicode(_) => "names an environment variable that does not hold UTF-8",
                };
                SettingError::new(setting.to_owned(), text)
            })?,
            Self::File(path) => {
                let mut text = Zeroizing::new(String::new());
                let read = File::open(path).and_then(|file| file.take(MAX_SECRET_BYTES + 1).read_to_string(&mut text));
                read.map_err(|error| {
                    let text = "must name a file with text that can be read. Write its path here, never the secret";
                    SettingError::new(setting.to_owned(), text).with_source(error)
                })?;
                if text.len() as u64 > MAX_SECRET_BYTES {
                    return Err(SettingError::new(setting.to_owned(), "names a file that is too long for a secret"));
                }
                text
            }
        };
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(SettingError::new(setting.to_owned(), "the secret is empty"));
        }
        Ok(Secret(Zeroizing::new(trimmed.to_owned())))
    }
}

/// Whether any shell accepts this as the name of an environment variable.
fn is_variable_name(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// One name or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a name in quotes, or several in brackets")]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &String> {
        match self {
            Self::One(one) => std::slice::from_ref(one).iter(),
            Self::Many(many) => many.iter(),
        }
    }
}

/// Reads a secret that two settings may name, an environment variable or a file. None if neither is set.
pub(crate) fn from_env_or_file(
    env_setting: &'static str,
    env: &Option<String>,
    file_setting: &'static str,
    file: &Option<PathBuf>,
) -> Result<Option<Secret>, SettingError> {
    match (env, file) {
        (Some(_), Some(_)) => {
            Err(SettingError::new(env_setting, format!("and {file_setting} are both set: keep one")))
        }
        (Some(name), None) => SecretSource::Env(name.clone()).read(env_setting).map(Some),
        (None, Some(path)) => SecretSource::File(path.clone()).read(file_setting).map(Some),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        let secret = Secret(Zeroizing::new("whsec_hidden".to_owned()));
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert_eq!(secret.expose(), "whsec_hidden");
    }

    #[test]
    fn a_secret_is_read_from_a_file_without_the_end_of_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "abc\n").unwrap();
        assert_eq!(SecretSource::File(path.clone()).read("bearer_file").unwrap().expose(), "abc");
        std::fs::write(&path, " \n").unwrap();
        assert!(SecretSource::File(path.clone()).read("bearer_file").is_err());
        std::fs::write(&path, "a".repeat(70_000)).unwrap();
        let error = SecretSource::File(path).read("bearer_file").unwrap_err().for_rail("sepa").to_string();
        assert!(
            error.starts_with("rail sepa: bearer_file: ") && error.ends_with("too long for a secret"),
            "{error}"
        );
    }

    #[test]
    fn a_secret_is_read_from_the_environment() {
        // Set by cargo for every test.
        assert_eq!(SecretSource::Env("CARGO_PKG_NAME".to_owned()).read("x").unwrap().expose(), "symphony-sinks");
        for (name, expected) in [
            ("SYMPHONY_NO_SUCH_VARIABLE", "rail sepa: bearer_env: names an environment variable that is not set"),
            ("whsec_c2VjcmV0+/==", "rail sepa: bearer_env: must be the name of an environment variable"),
            ("", "rail sepa: bearer_env: must be the name of an environment variable"),
        ] {
            let error =
                SecretSource::Env(name.to_owned()).read("bearer_env").unwrap_err().for_rail("sepa").to_string();
            assert!(error.starts_with(expected), "{error}");
            assert!(name.is_empty() || !error.contains(name), "{error}");
        }
    }
}
