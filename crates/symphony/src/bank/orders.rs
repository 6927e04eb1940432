//! A change of the faults while the bank runs, as PUT /v1/faults brings it.
//!
//! What is not named stays. It is applied as a whole or not at all.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::value::RawValue;

use super::{
    demand::NAME,
    fault::Fault,
    settings::{self, Faults},
};

/// How many keys may have a list of their own.
const KEYS: usize = 10_000;
/// How long such a list may be.
const LIST: usize = 1_000;

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Write an object: names of faults with texts or numbers, preset, for_key.
    #[error("the body is not an object of faults, preset and for_key")]
    Malformed,
    /// Look up the fault, or its value.
    #[error(transparent)]
    Setting(#[from] settings::Error),
    /// Look up the fault.
    #[error("for_key wants lists of: {}", Fault::NAMES.map(|(_, name)| name).join(", "))]
    List,
    /// Order for fewer keys, or let the lists be used up.
    #[error("for_key takes {KEYS} keys of 1 to {NAME} bytes, with {LIST} faults each")]
    Bound,
}

/// What is to change.
#[derive(Debug)]
pub(super) struct Change {
    preset: Option<String>,
    settings: Vec<(String, String)>,
    lists: BTreeMap<String, VecDeque<Fault>>,
}

impl Change {
    /// Reads a body.
    pub(super) fn read(body: &[u8]) -> Result<Self, Error> {
        let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body).map_err(|_| Error::Malformed)?;
        let mut change = Self { preset: None, settings: Vec::new(), lists: BTreeMap::new() };
        for (name, value) in members {
            match name.as_str() {
                "preset" => change.preset = Some(text(value)?),
                "for_key" => change.lists = lists(value)?,
                _ => change.settings.push((name, text(value)?)),
            }
        }
        Ok(change)
    }

    /// Applies it. A preset starts from nothing: the lists for single keys go as well, the seed stays.
    pub(super) fn apply(
        self,
        faults: &mut Faults,
        ordered: &mut HashMap<String, VecDeque<Fault>>,
    ) -> Result<(), Error> {
        let base = match &self.preset {
            Some(name) => Faults::preset(name, faults.seed)?,
            None => faults.clone(),
        };
        let changed = base.changed(self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
        let kept = if self.preset.is_some() { 0 } else { ordered.len() };
        if kept + self.lists.len() > KEYS {
            return Err(Error::Bound);
        }
        *faults = changed;
        if self.preset.is_some() {
            ordered.clear();
        }
        for (key, list) in self.lists {
            if list.is_empty() {
                ordered.remove(&key);
            } else {
                ordered.insert(key, list);
            }
        }
        Ok(())
    }
}

/// A text, or a number as it was written: a probability must not pass through a float.
fn text(value: &RawValue) -> Result<String, Error> {
    let raw = value.get();
    match raw.bytes().next() {
        Some(b'"') => serde_json::from_str(raw).map_err(|_| Error::Malformed),
        Some(b'0'..=b'9') => Ok(raw.to_owned()),
        Some(b'n') => Ok("off".to_owned()),
        _ => Err(Error::Malformed),
    }
}

fn lists(value: &RawValue) -> Result<BTreeMap<String, VecDeque<Fault>>, Error> {
    let written: BTreeMap<String, Vec<String>> = serde_json::from_str(value.get()).map_err(|_| Error::List)?;
    let mut lists = BTreeMap::new();
    for (key, names) in written {
        if key.is_empty() || key.len() > NAME || names.len() > LIST {
            return Err(Error::Bound);
        }
        let list: Option<_> = names.iter().map(|name| Fault::named(name)).collect();
        lists.insert(key, list.ok_or(Error::List)?);
    }
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(
        body: &str,
        faults: &mut Faults,
        ordered: &mut HashMap<String, VecDeque<Fault>>,
    ) -> Result<(), Error> {
        Change::read(body.as_bytes())?.apply(faults, ordered)
    }

    #[test]
    fn what_is_not_named_stays_and_a_preset_starts_from_nothing() {
        let (mut faults, mut ordered) = (Faults::default(), HashMap::new());
        let body = r#"{"cut_after":0.25,"seed":3,"for_key":{"A":["timeout_after","ok"],"B":["busy"]}}"#;
        apply(body, &mut faults, &mut ordered).unwrap();
        apply(r#"{"busy":"0.5","for_key":{"B":[]}}"#, &mut faults, &mut ordered).unwrap();
        assert_eq!(faults.chance(Fault::CutAfter).to_string(), "0.25");
        assert_eq!(faults.chance(Fault::Busy).to_string(), "0.5");
        assert_eq!(ordered.keys().collect::<Vec<_>>(), ["A"]);
        apply(r#"{"preset":"none","cut_before":"0.1"}"#, &mut faults, &mut ordered).unwrap();
        assert_eq!(faults.chance(Fault::CutAfter).millionths(), 0);
        assert_eq!(faults.chance(Fault::CutBefore).to_string(), "0.1");
        assert!(faults.seed == 3 && ordered.is_empty());
    }

    #[test]
    fn a_change_that_is_wrong_somewhere_changes_nothing() {
        let (mut faults, mut ordered) = (Faults::default(), HashMap::new());
        for wrong in [
            "[]",
            r#"{"cut_after":true}"#,
            r#"{"cut_after":"0.5","meteor":"1"}"#,
            r#"{"cut_after":"0.5","for_key":{"A":["meteor"]}}"#,
            r#"{"cut_after":"0.5","for_key":{"":["ok"]}}"#,
            r#"{"cut_after":"0.5","preset":"all"}"#,
            r#"{"cut_after":"0.5","busy":0.6}"#,
        ] {
            assert!(apply(wrong, &mut faults, &mut ordered).is_err(), "{wrong}");
            assert!(faults == Faults::default() && ordered.is_empty(), "{wrong}");
        }
    }
}
