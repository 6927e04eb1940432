//! The keys of a rail's tables: `"409"` is a status, `"409 DUPLICATE"` a status with a word in the body.
//!
//! What is in neither form here, the table does not know.

use std::collections::BTreeMap;

use crate::config::Problem;

/// What each answer means, by its status and perhaps a word.
#[derive(Debug)]
pub(super) struct Table<T> {
    entries: BTreeMap<(u16, Option<String>), T>,
}

impl<T: Copy> Table<T> {
    /// The defaults, with what the settings say over them.
    pub(super) fn new(setting: &str, defaults: &[(&str, T)], own: &BTreeMap<String, T>) -> Result<Self, Problem> {
        let own = own.iter().map(|(key, meaning)| (key.as_str(), *meaning));
        let mut entries = BTreeMap::new();
        for (key, meaning) in defaults.iter().copied().chain(own) {
            let Some(parsed) = parse(key) else {
                let text = "must be a status from 200 to 599, alone or with a word behind one space, such as \"409\" \
                            or \"409 DUPLICATE\"";
                return Err(Problem::new(format!("{setting}.{key:?}"), text));
            };
            entries.insert(parsed, meaning);
        }
        Ok(Self { entries })
    }

    /// What a status with this word means, if the table knows the two together.
    pub(super) fn exact(&self, status: u16, word: &str) -> Option<T> {
        self.entries.get(&(status, Some(word.to_owned()))).copied()
    }

    /// What a status means by itself, if the table knows.
    pub(super) fn plain(&self, status: u16) -> Option<T> {
        self.entries.get(&(status, None)).copied()
    }

    /// Every meaning that a word has, whatever the status.
    pub(super) fn meanings_of(&self, word: &str) -> impl Iterator<Item = T> {
        self.entries.iter().filter(move |((_, own), _)| own.as_deref() == Some(word)).map(|(_, meaning)| *meaning)
    }
}

fn parse(key: &str) -> Option<(u16, Option<String>)> {
    let (status, word) = match key.split_once(' ') {
        Some((status, word)) => (status, Some(word)),
        None => (key, None),
    };
    let status = (status.len() == 3).then(|| status.parse::<u16>().ok())??;
    let word_fits = word.is_none_or(|word| !word.is_empty() && word.trim() == word && word.len() <= 200);
    ((200..=599).contains(&status) && word_fits).then(|| (status, word.map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(own: &[(&str, u8)]) -> Result<Table<u8>, Problem> {
        let own = own.iter().map(|(key, meaning)| ((*key).to_owned(), *meaning)).collect();
        Table::new("outcomes", &[("200", 1), ("409", 2)], &own)
    }

    #[test]
    fn settings_win_over_defaults_and_a_word_counts_only_with_its_status() {
        let table = table(&[("409", 3), ("409 DUPLICATE", 4)]).unwrap();
        assert_eq!((table.plain(200), table.plain(409), table.plain(500)), (Some(1), Some(3), None));
        assert_eq!((table.exact(409, "DUPLICATE"), table.exact(409, "OTHER")), (Some(4), None));
        assert_eq!((table.exact(200, "DUPLICATE"), table.exact(500, "DUPLICATE")), (None, None));
        assert_eq!(table.meanings_of("DUPLICATE").collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn a_key_that_is_no_status_is_refused() {
        for key in ["", "20", "2000", "100", "600", "abc", "+20", "200 ", "200  OK", " 200", "OK", "2xx"] {
            let problem = table(&[(key, 1)]).unwrap_err().of("sepa").to_string();
            assert!(problem.starts_with(&format!("rail sepa: outcomes.{key:?}: must be a status")), "{problem}");
        }
    }
}
