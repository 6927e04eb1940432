//! A table that classifies responses by HTTP status, or by status and a code of the body.
//!
//! Its keys come from the settings `outcomes` and `inquiry`: `"409"` is a status, `"409 DUPLICATE"` a status with a
//! code. The default tables are in `outcome.rs` and `inquiry.rs`.

use std::collections::BTreeMap;

use crate::config::SettingError;

/// The class of each response, by its status and optionally a code.
#[derive(Debug)]
pub(super) struct StatusTable<T> {
    entries: BTreeMap<(u16, Option<String>), T>,
}

impl<T: Copy> StatusTable<T> {
    /// The defaults, overridden by the entries of the settings.
    pub(super) fn new(
        setting: &str,
        defaults: &[(&str, T)],
        configured: &BTreeMap<String, T>,
    ) -> Result<Self, SettingError> {
        let configured = configured.iter().map(|(key, class)| (key.as_str(), *class));
        let mut entries = BTreeMap::new();
        for (key, class) in defaults.iter().copied().chain(configured) {
            let Some(parsed) = parse(key) else {
                let text = "must be a status from 200 to 599, alone or with a code after one space, such as \"409\" \
                            or \"409 DUPLICATE\"";
                return Err(SettingError::new(format!("{setting}.{key:?}"), text));
            };
            entries.insert(parsed, class);
        }
        Ok(Self { entries })
    }

    /// The class of a status with this code.
    pub(super) fn by_status_and_code(&self, status: u16, code: &str) -> Option<T> {
        self.entries.get(&(status, Some(code.to_owned()))).copied()
    }

    /// The class of a status without a code.
    pub(super) fn by_status(&self, status: u16) -> Option<T> {
        self.entries.get(&(status, None)).copied()
    }

    /// Every class that a code has, with any status.
    pub(super) fn classes_of_code(&self, code: &str) -> impl Iterator<Item = T> {
        self.entries.iter().filter(move |((_, known), _)| known.as_deref() == Some(code)).map(|(_, class)| *class)
    }
}

fn parse(key: &str) -> Option<(u16, Option<String>)> {
    let (status, code) = match key.split_once(' ') {
        Some((status, code)) => (status, Some(code)),
        None => (key, None),
    };
    let status = (status.len() == 3).then(|| status.parse::<u16>().ok())??;
    let valid = code.is_none_or(|code| !code.is_empty() && code.trim() == code && code.len() <= 200);
    ((200..=599).contains(&status) && valid).then(|| (status, code.map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(configured: &[(&str, u8)]) -> Result<StatusTable<u8>, SettingError> {
        let configured = configured.iter().map(|(key, class)| ((*key).to_owned(), *class)).collect();
        StatusTable::new("outcomes", &[("200", 1), ("409", 2)], &configured)
    }

    #[test]
    fn settings_override_defaults_and_a_code_counts_only_with_its_status() {
        let table = table(&[("409", 3), ("409 DUPLICATE", 4)]).unwrap();
        assert_eq!((table.by_status(200), table.by_status(409), table.by_status(500)), (Some(1), Some(3), None));
        assert_eq!(
            (table.by_status_and_code(409, "DUPLICATE"), table.by_status_and_code(409, "OTHER")),
            (Some(4), None)
        );
        assert_eq!(
            (table.by_status_and_code(200, "DUPLICATE"), table.by_status_and_code(500, "DUPLICATE")),
            (None, None)
        );
        assert_eq!(table.classes_of_code("DUPLICATE").collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn a_key_that_is_no_status_is_refused() {
        for key in ["", "20", "2000", "100", "600", "abc", "+20", "200 ", "200  OK", " 200", "OK", "2xx"] {
            let error = table(&[(key, 1)]).unwrap_err().for_rail("sepa").to_string();
            assert!(error.starts_with(&format!("rail sepa: outcomes.{key:?}: must be a status")), "{error}");
        }
    }
}
