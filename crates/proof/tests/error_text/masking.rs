//! Property tests: a secret at any place in any text, in every supported encoding, is masked.
//!
//! - `SYMPHONY_SEED=17` starts from that seed instead of a random one.
//! - `SYMPHONY_CASES=20000` is a long run. A case is a batch of texts, cleaned in one query.

use std::env;
use std::hash::{BuildHasher, RandomState};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::encoding::{Disguise, Encoding};
use super::secret::Secret;
use super::{cleaned_twice, database, is_sound};

/// Texts of a batch.
const BATCH: usize = 12;
/// The function looks at 4000 characters; what is longer is not what these tests are about.
const MAX_LENGTH: usize = 3900;

/// A text that contains a secret.
#[derive(Clone, Debug)]
struct Planted {
    secret: Secret,
    text: String,
}

fn planted() -> impl Strategy<Value = Planted> {
    let before = select(vec![" ", "\n", "\t", ",", ";", ":", "(", "<", ">", "\"", "'", "=", "|", ". "]);
    let behind = select(vec![" ", "\n", ",", ";", ")", "<", ">", "\"", "'", "|", "&", ". ", ""]);
    let around = (surroundings(), before, behind, surroundings());
    let worn = (Disguise::any(), vec(Encoding::any(), 0..4));
    (Secret::any(), around, worn).prop_map(|(secret, (head, before, behind, tail), (disguise, encodings))| {
        let tail = if behind.is_empty() { String::new() } else { tail };
        let head = if head.is_empty() { head } else { head + before };
        let mut text = format!("{head}{}{behind}{tail}", disguise.of(&secret.text));
        for encoding in encodings {
            let encoded = encoding.of(&text);
            if encoded.chars().count() <= MAX_LENGTH {
                text = encoded;
            }
        }
        Planted { secret, text }
    })
}

/// What errors are made of, and what they are not.
fn surroundings() -> impl Strategy<Value = String> {
    let usual = [
        "timeout after 30 s",
        "HTTP 503",
        "error:",
        "{\"code\":",
        "user=app",
        "at 2026-11-15 23:46:38",
        "10.0.0.1:9092",
        "größer",
        "\u{202e}",
        "key",
        "token",
        "<detail>",
        "card",
        "no. 7",
        "%",
        "\\",
        "&",
        "100%",
        "a@",
        "https://bank.example/x ",
        "\"",
        "'",
        "(",
        "=",
        "[hidden]",
        "€",
        "日本",
    ];
    let piece =
        prop_oneof![4 => select(usual.to_vec()).prop_map(str::to_owned), 1 => "[a-z]{1,12}", 1 => "\\PC{0,8}"];
    vec((piece, select(vec![" ", " ", "\n", ", ", ""])), 0..6)
        .prop_map(|pieces| pieces.into_iter().map(|(piece, end)| piece + end).collect())
}

/// Anything, made of what the patterns look for.
fn nasty() -> impl Strategy<Value = String> {
    let bits = [
        "4111 1111",
        "DE89 3704 0044",
        "bob@x",
        "@",
        "[hidden]",
        "[hidden]",
        "[e-mail]",
        "[cut]",
        "://",
        "Authorization: ",
        "Bearer ",
        "Basic ",
        "Cookie: ",
        ";",
        "password",
        "=",
        ":",
        "\"",
        "'",
        "\\\"",
        "\\",
        "%",
        "%25",
        "%34",
        "%40",
        "&",
        "&quot;",
        "&#",
        "\\u0041",
        "\\u",
        "<",
        ">",
        "<token>",
        "-----BEGIN A-----",
        "-----END",
        "--key ",
        "+49",
        "00",
        "(030)",
        "tel ",
        "1",
        "-",
        ".",
        " ",
        " ",
        "\n",
        "2026-11-15",
        "1.1.1.1",
        "?key",
        "eyJa.",
        "sk_live_",
        "\u{fdfa}",
        "\u{200b}",
        "１",
        "550e8400-e29b-41d4-a716-446655440000",
    ];
    prop_oneof![
        3 => vec(select(bits.to_vec()), 0..60).prop_map(|bits| bits.concat()),
        1 => vec(select(bits.to_vec()), 400..700).prop_map(|bits| bits.concat()),
        1 => "\\PC{0,200}",
        // Whatever there is but the character that no text of PostgreSQL can have.
        1 => vec(any::<char>(), 0..200).prop_map(|chars| chars.into_iter().filter(|c| *c != '\0').collect()),
    ]
}

fn run<T: std::fmt::Debug>(
    batches: impl Strategy<Value = Vec<T>>,
    text: impl Fn(&T) -> &String,
    check: impl Fn(&T, Option<&str>) -> Result<(), String>,
) {
    let setting = |name: &str| env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let seed = setting("SYMPHONY_SEED").unwrap_or_else(|| RandomState::new().hash_one("a seed") >> 16);
    let cases = setting("SYMPHONY_CASES").unwrap_or(150);
    println!("SYMPHONY_SEED={seed} SYMPHONY_CASES={cases}");
    let config = Config {
        cases: u32::try_from(cases).unwrap(),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    };

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_database, client) = runtime.block_on(database());
    let outcome = TestRunner::new(config).run(&batches, |batch| {
        let texts: Vec<String> = batch.iter().map(|case| text(case).clone()).collect();
        let results = runtime.block_on(cleaned_twice(&client, &texts));
        for (case, (kept, again)) in batch.iter().zip(results) {
            let verdict = is_sound(kept.as_deref(), again.as_deref()).and_then(|()| check(case, kept.as_deref()));
            if let Err(why) = verdict {
                return Err(TestCaseError::fail(format!("{why}\n  given: {:?}\n  kept:  {kept:?}", text(case))));
            }
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("SYMPHONY_SEED={seed} SYMPHONY_CASES={cases} repeats it: {failure}");
    }
}

#[test]
fn nothing_is_left_of_a_planted_secret() {
    run(
        vec(planted(), 1..=BATCH),
        |planted| &planted.text,
        |planted, kept| {
            let left = planted.secret.traces.iter().find(|trace| trace.is_in(kept.unwrap_or_default()));
            left.map_or(Ok(()), |trace| Err(format!("{trace:?} is left of {:?}", planted.secret.text)))
        },
    );
}

#[test]
fn whatever_the_text_the_result_is_one_clean_line_that_stays_as_it_is() {
    run(vec(nasty(), 1..=BATCH), |text| text, |_, _| Ok(()));
}
