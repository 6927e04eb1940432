//! Names the options of the command line in refusals of the database, which name the parameters of its functions.

/// Parameters and fields of a rail's policy, and the option that sets each.
const OPTIONS: &[(&str, &str)] = &[
    ("backoff_base_seconds", "--backoff-base"),
    ("backoff_cap_seconds", "--backoff-cap"),
    ("key_memory_seconds", "--key-memory"),
    ("max_attempts", "--max-attempts"),
    ("max_in_flight", "--max-in-flight"),
    ("on_epoch_change", "--on-epoch-change"),
    ("on_unknown", "--on-unknown"),
    ("ordered", "--ordered"),
    ("p_actor", "--actor"),
    ("p_at_least", "--at-least"),
    ("p_endpoint", "the endpoint"),
    ("p_from", "--from"),
    ("p_idempotency_key", "--key"),
    ("p_instruction_id", "--instruction"),
    ("p_keep_days", "the number of days"),
    ("p_limit", "--limit"),
    ("p_location", "--location"),
    ("p_not_before", "--not-before"),
    ("p_participant_id", "--participant"),
    ("p_payload", "the payload"),
    ("p_rail_type", "the rail"),
    ("p_reason", "--reason"),
    ("p_same_as", "the other endpoint"),
    ("p_to", "--to"),
];

/// The refusal of an argument, in the words of the command line: `--max-attempts is 50; allowed: 1 to 20`.
pub(crate) fn in_words_of_options(message: &str) -> String {
    let message = message.strip_prefix("p_policy: ").unwrap_or(message);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(begin) = rest.find(is_part) {
        let (before, from) = rest.split_at(begin);
        let (word, after) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
        text.push_str(before);
        text.push_str(OPTIONS.iter().find(|(name, _)| *name == word).map_or(word, |(_, option)| option));
        rest = after;
    }
    text.push_str(rest);
    range(&text).unwrap_or(text)
}

/// The sentence of `check_range`, with what was given first.
fn range(text: &str) -> Option<String> {
    let (name, limits) = text.split_once(" must be from ")?;
    let (allowed, given) = limits.split_once(", not ")?;
    Some(format!("{name} is {given}; allowed: {allowed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_option_and_what_is_allowed() {
        for (message, expected) in [
            ("p_policy: max_attempts must be from 1 to 20, not 50", "--max-attempts is 50; allowed: 1 to 20"),
            ("p_limit must be from 1 to 200, not 0", "--limit is 0; allowed: 1 to 200"),
            ("p_instruction_id must not be blank", "--instruction must not be blank"),
            (
                "p_reason must have at most 2000 characters, not 2001",
                "--reason must have at most 2000 characters, not 2001",
            ),
            (
                "p_policy: backoff_cap_seconds must not be below backoff_base_seconds",
                "--backoff-cap must not be below --backoff-base",
            ),
            (
                "p_payload must be a JSON object, not a JSON array",
                "the payload must be a JSON object, not a JSON array",
            ),
            ("there is no outbox p_", "there is no outbox p_"),
        ] {
            assert_eq!(in_words_of_options(message), expected);
        }
    }
}
