//! Worst-case inputs: the time to clean a text is bounded.

use std::time::Duration;

use super::database;

/// As often as each text is cleaned; the quickest counts, since a busy machine makes the others slow.
const TIMES: i32 = 3;
/// A text that is looked at as a whole, in characters, and one of which only the beginning is.
const WHOLE: i32 = 3_900;
const FAR_BEYOND: i32 = 1_000_000;
/// How much longer than a harmless text that is looked at as a whole, which takes half a millisecond. Twenty times is usual for the worst; what grew
/// with the length beyond that, with its square, or with the number of names would take hundreds of times as long.
const RATIO: f64 = 60.0;
/// Texts of several pieces, by chance.
const MIXED: u64 = 150;

/// Seconds of the quickest of some calls, by the server's clock.
const MEASURE: &str = "\
    select min(extract(epoch from a.at - b.at)::float8)
    from (select left(repeat($1, $2 / char_length($1) + 1), $2) as given offset 0) t
    cross join generate_series(1, $3) as i (n)
    cross join lateral (select clock_timestamp() as at, i.n offset 0) b
    cross join lateral (select symphony.clean_error_text(t.given || repeat(' ', b.n)) as kept offset 0) k
    cross join lateral (select clock_timestamp() as at, k.kept offset 0) a";

const PIECES: [&str; 76] = [
    "a",
    "a@",
    "a@a ",
    "\"a\"@",
    "a+=",
    "o'",
    "1",
    "1 ",
    "1-",
    "1.",
    "1 - ",
    "AB12 ",
    "AB12",
    "ab12 1234 ",
    "aa11bbbbbbbbb ",
    "://",
    "://a@",
    "a://@ ",
    "bearer ",
    "basic aaaaaaa ",
    "eyJa",
    "eyJa.",
    "sk_live_",
    "AKIA",
    "password",
    "password=",
    "password ",
    "token.a",
    "pin",
    "session id",
    "Authorization:",
    "Authorization: a ",
    "authorization: a, b=",
    "cookie:",
    "cookie: a;",
    "; ",
    ": ",
    "= ",
    ":",
    "=",
    "\"",
    "'",
    "''",
    "\\",
    "\\\"",
    "\\\\\"",
    "\"password\":\"",
    "{\"a\":",
    "<password",
    "<password>",
    "<",
    "--",
    "--key ",
    "-----BEGIN A-----",
    "-----BEGIN ",
    "---- ",
    "%",
    "%25",
    "%%34%31",
    "&",
    "&#",
    "&amp;",
    "\\u",
    "\\u0041",
    "(1",
    "(030)",
    "+1",
    "00",
    "tel 1 ",
    "2026-11-15 ",
    "1.1.1.",
    "550e8400-e29b-41d4-a716-",
    "?key",
    "[hidden]",
    "\u{fdfa}",
    "\u{200b}",
];

#[tokio::test]
async fn no_text_takes_long() {
    let (_database, client) = database().await;
    // What has no bound ends here.
    client.batch_execute("set statement_timeout = '60s'").await.unwrap();
    let quickest = async |piece: &str, length: i32| -> f64 {
        let row = client.query_one(MEASURE, &[&piece, &length, &TIMES]).await;
        row.unwrap_or_else(|error| panic!("{length} characters of {piece:?}: {error}")).get(0)
    };
    // The clock has steps.
    let harmless = quickest("ab cd ", WHOLE).await.max(Duration::from_micros(500).as_secs_f64());
    for (length, step) in [(WHOLE, 1), (FAR_BEYOND, 5)] {
        for piece in PIECES.into_iter().step_by(step) {
            let took = quickest(piece, length).await;
            assert!(
                took < harmless * RATIO,
                "{length} characters of {piece:?}: {took:.4} s, {WHOLE} harmless ones {harmless:.4} s"
            );
        }
    }
}

#[tokio::test]
async fn no_mixed_text_takes_long() {
    let (_database, client) = database().await;
    client.batch_execute("set statement_timeout = '60s'").await.unwrap();
    let quickest = async |piece: &str| -> f64 {
        let row = client.query_one(MEASURE, &[&piece, &WHOLE, &TIMES]).await;
        row.unwrap_or_else(|error| panic!("{piece:?}: {error}")).get(0)
    };
    let harmless = quickest("ab cd ").await.max(Duration::from_micros(500).as_secs_f64());
    // What was slowest before the number of names had a bound.
    let known = [
        "api_key=eyJa.--token ",
        "-a--user -u password=password=",
        "session id secret:@",
        "1 &code==A",
        "secret:tel: ",
        "&code=DE",
    ];
    let seed: u64 = std::env::var("SYMPHONY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(15);
    let mut state = seed;
    let mut next = |most: usize| {
        // Numerical Recipes' generator: the high bits are good enough to choose by.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % most
    };
    let mixed = (0..MIXED).map(|_| (0..=1 + next(3)).map(|_| PIECES[next(PIECES.len())]).collect::<String>());
    for piece in known.into_iter().map(str::to_owned).chain(mixed) {
        let took = quickest(&piece).await;
        assert!(
            took < harmless * RATIO,
            "{WHOLE} characters of {piece:?}: {took:.4} s, harmless ones {harmless:.4} s (SYMPHONY_SEED={seed})"
        );
    }
}

#[tokio::test]
async fn a_text_that_is_full_of_names_is_withheld() {
    let (_database, client) = database().await;
    let clean = "select symphony.clean_error_text(repeat('password=secret ', $1))";
    let few: String = client.query_one(clean, &[&20_i32]).await.unwrap().get(0);
    assert_eq!(few, "password=[hidden] ".repeat(20).trim_end());
    let many: String = client.query_one(clean, &[&200_i32]).await.unwrap().get(0);
    assert_eq!(many, "[withheld: too many credentials]");
}
