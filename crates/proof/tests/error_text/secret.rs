//! Secrets of each kind, as they stand in texts, with what of them must not be left.

use proptest::prelude::*;
use proptest::sample::select;

/// What must not be left of a secret.
#[derive(Clone, Debug)]
pub(crate) enum Trace {
    /// This word.
    Word(String),
    /// These letters and digits in this order, whatever stands between them and however they are written.
    Run(String),
}

impl Trace {
    pub(crate) fn is_in(&self, kept: &str) -> bool {
        match self {
            Self::Word(word) => kept.contains(word),
            Self::Run(run) => bare(kept).contains(&bare(run)),
        }
    }
}

fn bare(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// A secret in the form in which it stands in a text.
#[derive(Clone, Debug)]
pub(crate) struct Secret {
    pub(crate) text: String,
    pub(crate) traces: Vec<Trace>,
}

impl Secret {
    fn words(text: String, words: &[&str]) -> Self {
        Self { text, traces: words.iter().map(|word| Trace::Word((*word).to_owned())).collect() }
    }

    fn run(text: String, run: String) -> Self {
        Self { text, traces: vec![Trace::Run(run)] }
    }

    pub(crate) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            2 => address(),
            3 => card(),
            3 => iban(),
            2 => phone(),
            1 => token(),
            2 => header(),
            1 => url(),
            4 => pair(),
            1 => block(),
        ]
    }
}

/// What no text around a secret has.
fn word() -> impl Strategy<Value = String> {
    "[A-Z][a-z]{2,5}[0-9][A-Z][a-z]{2,5}"
}

/// Letters and digits as of a token.
fn long_word() -> impl Strategy<Value = String> {
    "[A-Za-z0-9]{8}[A-Z][0-9][a-z][A-Za-z0-9]{9,40}"
}

/// A form with its parts: `{0}` is the first.
fn fill(form: &str, parts: &[&str]) -> String {
    let places = parts.iter().enumerate();
    places.fold(form.to_owned(), |text, (place, part)| text.replace(&format!("{{{place}}}"), part))
}

/// An address of e-mail.
fn address() -> impl Strategy<Value = Secret> {
    let forms = vec![
        "{0}@{1}.example",
        "mailto:{0}@{1}.example",
        "<{0}+tag@mail.{1}.co.uk>",
        "\"{0} {2}\"@{1}.example",
        "o'{0}@{1}.example",
        "{0}.{2}@{1}",
    ];
    (select(forms), word(), word(), word()).prop_map(|(form, local, domain, other)| {
        // Its domain may be left, behind what is taken for a password before it.
        Secret::words(fill(form, &[&local, &domain, &other]), &[&local, &other])
    })
}

/// Digits with the one behind them that Luhn asks for.
fn with_check_digit(digits: &str) -> String {
    let doubled = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let values = digits.bytes().rev().map(|byte| u32::from(byte - b'0'));
    let sum: u32 =
        values.enumerate().map(|(place, digit)| if place % 2 == 0 { doubled(digit) } else { digit }).sum();
    format!("{digits}{}", (10 - sum % 10) % 10)
}

/// With a mark after every so many characters.
fn grouped(text: &str, size: usize, mark: &str) -> String {
    let parts: Vec<String> =
        text.as_bytes().chunks(size).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    parts.join(mark)
}

/// The number of a card.
fn card() -> impl Strategy<Value = Secret> {
    let marks = vec!["", " ", "-", ".", " - ", "\u{2011}", "\u{a0}", "+", "_"];
    ("[1-9][0-9]{10,17}", select(marks), select(vec![4_usize, 4, 4, 1, 6])).prop_map(|(digits, mark, size)| {
        let number = with_check_digit(&digits);
        Secret::run(grouped(&number, size, mark), number)
    })
}

/// An IBAN with its check digits, of the structures of some countries.
fn iban() -> impl Strategy<Value = Secret> {
    let structures = [
        "DE[0-9]{18}",
        "GB[A-Z]{4}[0-9]{14}",
        "NO[0-9]{11}",
        "MT[A-Z]{4}[0-9]{5}[0-9]{18}",
        "NL[A-Z]{4}[0-9]{10}",
        "FR[0-9]{10}[A-Z0-9]{11}[0-9]{2}",
        "IT[A-Z][0-9]{22}",
        "BR[0-9]{23}[A-Z][A-Z0-9]",
        "LC[A-Z]{4}[0-9]{24}",
    ];
    let numbers = structures.map(|structure| {
        let (country, account) = structure.split_at(2);
        let country = country.to_owned();
        account
            .prop_map(move |account: String| {
                let remainder = format!("{account}{country}00").chars().fold(0_u32, |rest, c| {
                    let value = c.to_digit(36).unwrap();
                    (if value > 9 { rest * 100 } else { rest * 10 } + value) % 97
                });
                format!("{country}{:02}{account}", 98 - remainder)
            })
            .boxed()
    });
    (prop::strategy::Union::new(numbers), select(vec!["", " ", "-", ".", "\u{a0}"]), any::<bool>()).prop_map(
        |(number, mark, lower)| {
            let text = grouped(&number, 4, mark);
            Secret::run(if lower { text.to_lowercase() } else { text }, number)
        },
    )
}

/// A phone number.
fn phone() -> impl Strategy<Value = Secret> {
    let forms = vec![
        "+{0} {1} {2}",
        "+{0}{1}{2}",
        "+{0}-{1}-{2}",
        "+{0} (0) {1} / {2}",
        "+{0}.{1}.{2}",
        "00{0} {1} {2}",
        "00{0}{1}{2}",
        "(0{1}) {2}",
        "0{1} {2}",
        "0{1}/{2}",
        "tel: {1} {2}",
        "phone={1}{2}",
    ];
    (select(forms), "[1-9][0-9]", "[1-9][0-9]{2}", "[0-9]{7}").prop_map(|(form, country, area, number)| {
        Secret::run(fill(form, &[&country, &area, &number]), format!("{area}{number}"))
    })
}

/// A token that says by itself what it is.
fn token() -> impl Strategy<Value = Secret> {
    let forms = vec![
        "Bearer {0}",
        "bearer  {0}",
        "Basic {0}==",
        "eyJhbGciOiJIUzI1NiJ9.{0}.{0}",
        "sk_live_{0}",
        "ghp_{0}",
        "glpat-{0}",
        "xoxb-{0}",
        "AIza{0}",
        "whsec_{0}",
    ];
    (select(forms), long_word()).prop_map(|(form, token)| Secret::words(fill(form, &[&token]), &[&token]))
}

/// A header that holds a credential.
fn header() -> impl Strategy<Value = Secret> {
    let forms = vec![
        "Authorization: Bearer {0}",
        "Proxy-Authorization: Negotiate {0}",
        "authorization: {0}",
        "\"Authorization\": \"ApiKey {0}\"",
        "Authorization: Digest username=\"{1} {2}\", realm=\"{0}\", response=\"{0}\"",
        "Authorization:[Bearer {0}]",
        "HTTP_AUTHORIZATION=Basic {0}",
        "Authorization: AWS4-HMAC-SHA256 Credential={0}/x, SignedHeaders=host;date, Signature={0}",
        "Cookie: sid={0}; b={1}",
        "Set-Cookie: sid={0}; Path=/; HttpOnly",
        "X-Api-Key: {0}",
        "X-Auth-Token: {0}",
    ];
    (select(forms), long_word(), word(), word()).prop_map(|(form, token, first, second)| {
        Secret::words(fill(form, &[&token, &first, &second]), &[&token, &first, &second])
    })
}

/// Everything but letters and digits as `%40`.
fn percent(text: &str) -> String {
    super::encoding::Encoding::Percent.of(text)
}

/// A user and a password in a URL.
fn url() -> impl Strategy<Value = Secret> {
    let schemes = vec!["postgres", "https", "amqps", "redis", "nats"];
    (
        select(schemes),
        word(),
        word(),
        word(),
        select(vec!["", "@", ":", "/", "?", "#", " ", "\"", "&"]),
        any::<bool>(),
    )
        .prop_map(|(scheme, user, first, second, mark, encoded)| {
            let password = format!("{first}{mark}{second}");
            let password = if encoded || matches!(mark, " " | "\"") { percent(&password) } else { password };
            Secret::words(format!("{scheme}://{user}:{password}@db.example:5432/x"), &[&user, &first, &second])
        })
}

/// A value with a name that says what it is.
fn pair() -> impl Strategy<Value = Secret> {
    let keys = vec![
        "password",
        "PASSWD",
        "db_password",
        "clientSecret",
        "access_token",
        "api-key",
        "apiKey",
        "aws_secret_access_key",
        "pwd",
        "pin",
        "passphrase",
        "refreshToken",
        "session_id",
        "cvv",
    ];
    // The value as it stands, as a word, with backslashes before quotes, as JSON, and for a query string.
    let forms = vec![
        "{k}={word}",
        "{k}: {word}",
        "{k} = {word}",
        "\"{k}\":{json}",
        "\"{k}\" : {json}",
        "'{k}': '{quoted}'",
        "{k}='{quoted}'",
        "{k}=>{json}",
        "?{k}={query}&x=1",
        "?x=1&{k}={query}",
        "<{k}>{plain}</{k}>",
        "--{k}={word}",
        "--secret {word}",
        "ALTER ROLE {k} PASSWORD '{quoted}'",
        "user[{k}]={word}",
        "({k})=({word})",
    ];
    let marks = vec!["", " ", ",", "&", ";", "\"", "'", "\\", "\n", "="];
    (select(keys), select(forms), word(), word(), select(marks)).prop_map(|(key, form, first, second, mark)| {
        let whole = format!("{first}{mark}{second}");
        let text = form
            .replace("{k}", key)
            .replace("{word}", &format!("{first}{second}"))
            .replace("{quoted}", &whole.replace('\\', "\\\\").replace('\'', "\\'"))
            .replace("{json}", &serde_json::to_string(&whole).unwrap())
            .replace("{query}", &percent(&whole))
            .replace("{plain}", &whole);
        Secret::words(text, &[&first, &second])
    })
}

/// A block of PEM.
fn block() -> impl Strategy<Value = Secret> {
    (select(vec!["RSA PRIVATE KEY", "PRIVATE KEY", "CERTIFICATE"]), long_word(), long_word(), any::<bool>())
        .prop_map(|(name, first, second, whole)| {
            let end = if whole { format!("\n-----END {name}-----\n") } else { String::new() };
            Secret::words(
                format!("-----BEGIN {name}-----\nDEK-Info: A\n\n{first}\n{second}=={end}"),
                &[&first, &second],
            )
        })
}
