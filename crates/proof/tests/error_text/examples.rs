//! Texts and their exact cleaned form, so that too much masking fails as well as too little.

use super::{cleaned, cleaned_twice, database, is_sound};

async fn kept(table: &[(&str, &str)]) {
    let (_database, client) = database().await;
    let texts: Vec<String> = table.iter().map(|(given, _)| (*given).to_owned()).collect();
    for ((given, expected), (kept, again)) in table.iter().zip(cleaned_twice(&client, &texts).await) {
        assert_eq!(kept.as_deref(), Some(*expected), "{given}");
        assert_eq!(is_sound(kept.as_deref(), again.as_deref()), Ok(()), "{given}");
    }
}

#[tokio::test]
async fn personal_data_and_account_numbers_are_masked() {
    kept(&[
        ("to bob.smith+x@example.co.uk failed", "to [e-mail] failed"),
        ("<ann@xn--mnchen-3ya.de>: unknown, jürgen@müller.de too", "<[e-mail]>: unknown, [e-mail] too"),
        ("mailto:ann%40example.org", "mailto:[e-mail]"),
        (r#"'o'brien@x.org' and "john doe"@x.org unknown"#, "'[e-mail]' and [e-mail] unknown"),
        ("bounce+bob=example.org@list.com", "[e-mail]"),
        (r#"{"email":"bob\u0040example.org","n":1}"#, r#"{"email":"[e-mail]","n":1}"#),
        ("bob&#64;example.org, bob&commat;example.org, bob%2540example.org", "[e-mail], [e-mail], [e-mail]"),
        ("Key (email)=(ann@example.org) already exists.", "Key (email)=([e-mail]) already exists."),
        ("card 4111 1111 1111 1111 declined", "card [number] declined"),
        ("4111-1111-1111-1111. 4111.1111.1111.1111, 4111%201111%201111%201111", "[number]. [number], [number]"),
        ("４１１１ １１１１ １１１１ １１１１, ٤١١١١١١١١١١١١١١١", "[number], [number]"),
        ("%EF%BC%94111111111111111, 4111\u{ad}1111\u{200b}1111\u{2060}1111", "[number], [number]"),
        ("maestro 501800000009, order 501800000008", "maestro [number], order 501800000008"),
        ("371449635398431 (amex)", "[number] (amex)"),
        ("DE89 3704 0044 0532 0130 00 was refused", "[iban] was refused"),
        ("DE89370400440532013000, gb29nwbk60161331926819", "[iban], [iban]"),
        ("gb29 nwbk 6016 1331 9268 19 is wrong", "[iban] is wrong"),
        ("creditor_NL91ABNA0417164300 ibanNL91ABNA0417164300", "creditor_[iban] iban[iban]"),
        ("<IBAN>NO93 8601 1117 947</IBAN>", "<IBAN>[iban]</IBAN>"),
        ("call +49 (0) 170 / 123 45 67 now", "call [phone] now"),
        ("+1-555-123-4567, 0049 170 1234567, (030) 123 45 67", "[phone], [phone], [phone]"),
        (
            "phone number 12345678, ring 0170 1234567 or 555-123-4567",
            "phone number [phone], ring [phone] or [phone]",
        ),
    ])
    .await;
}

#[tokio::test]
async fn credentials_are_masked() {
    kept(&[
        ("postgres://me:s3cr@et@db.host:5432/x failed", "postgres://[credentials]@db.host:5432/x failed"),
        ("amqps://user:a/b?c@broker", "amqps://[credentials]@broker"),
        ("postgres%3A%2F%2Fme%3Asecret%40db%2Fx", "postgres://[credentials]@db/x"),
        ("Authorization: Bearer eyJhbGciOi.abc.def-_=, 401", "Authorization: [credentials], 401"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==\r\nHost: bank", "Authorization: [credentials] Host: bank"),
        (
            "Authorization: Digest username=\"Muf asa\", realm=\"a b\", response=6629fae4 and then",
            "Authorization: [credentials] and then",
        ),
        (r#"{"Authorization":"Bearer abc\"def", "x": 1}"#, r#"{"Authorization":[credentials], "x": 1}"#),
        (r#"{\"Authorization\":\"Bearer abc\",\"x\":1}"#, r#"{"Authorization":[credentials],"x":1}"#),
        ("headers map[Authorization:[Bearer abc] Host:[x]]", "headers map[Authorization:[credentials] Host:[x]]"),
        ("bearer  abc123, Basic dXNlcjpwYXNzd29yZA==", "bearer [hidden], Basic [hidden]"),
        ("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sig", "got [hidden]"),
        ("sk_live_abcdefgh and AKIAIOSFODNN7EXAMPLE", "[hidden] and [hidden]"),
        ("Set-Cookie: sid=abc123; Path=/; HttpOnly next", "Set-Cookie: [cookies] next"),
        ("password=hunter2 user=app", "password=[hidden] user=app"),
        ("pan: 4111 1111 1111 1111 refused, pin=+49 (170) 123 45 67 x", "pan: [hidden] refused, pin=[hidden] x"),
        ("token: NL91 ABNA 0417 1643 00 is x", "token: [hidden] is x"),
        ("token: Bearer abc123 x", "token: [hidden] [hidden] x"),
        ("secret:\n  password: \"a b\"\n  user: x", "secret: [hidden] user: x"),
        (
            r#"{"secret":{"id":"a b","more":{"x":"c d"}},"tokens":["e f","g"],"n":1}"#,
            r#"{"secret":[hidden],"tokens":[hidden],"n":1}"#,
        ),
        (r#"{"password": "a b c", "n": 1}"#, r#"{"password": [hidden], "n": 1}"#),
        (r#"{"password":"a\"b","n":1}"#, r#"{"password":[hidden],"n":1}"#),
        (r#"{\"password\":\"a\\\"b\",\"n\":1}"#, r#"{"password":[hidden],"n":1}"#),
        ("&quot;token&quot;: &quot;a&amp;quot;b&quot;, 1", r#""token": [hidden], 1"#),
        ("?api_key=a%26b&x=1 and https://maps.example/?key=abc&q=1", "?api_key=[hidden]&x=1 and https://maps.example/?key=[hidden]&q=1"),
        ("user[password]=hunter2 Key (password)=(hunter2) exists", "user[password]=[hidden] Key (password)=[hidden] exists"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = [hidden]"),
        ("<ns:Password>hunter2</ns:Password><n>1</n>", "<ns:Password>[hidden]</ns:Password><n>1</n>"),
        ("<Password Type='x'><![CDATA[hunter 2]]></Password>", "<Password Type='x'>[hidden]</Password>"),
        ("ALTER ROLE app PASSWORD 'it''s' VALID", "ALTER ROLE app PASSWORD [hidden] VALID"),
        ("psql --password hunter2 -h x", "psql --password [hidden] -h x"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,AB\n\nMIIEow==\n-----END RSA PRIVATE KEY-----\nand more",
            "[pem] and more",
        ),
    ])
    .await;
}

#[tokio::test]
async fn invisible_characters_are_removed_and_the_rest_is_one_line() {
    kept(&[
        ("one\ntwo\tthree\u{7}\u{1b}[31m", "one two three [31m"),
        ("right\u{202e}left\u{85}next\u{2028}end\u{feff}", "rightleft next end"),
        ("tr\u{fdfa}", "trصلى الله عليه وسلم"),
        ("%C3%BCber %F0%9F%92%A9 \\ud83d\\udca9 &#252; %0D%0A %C0%AF", "über 💩 💩 ü /"),
        ("%ED%A0%80 %FF \\ud800 &#1114112; &#0; %00 %zz", "%ED%A0%80 %FF \\ud800 &#1114112; %zz"),
    ])
    .await;
}

#[tokio::test]
async fn what_an_operator_needs_to_find_the_fault_is_kept() {
    let plain = [
        "timeout after 30000 ms at 2026-11-15 23:46:38.123456",
        "broker 10.0.0.1:9092 is down (SQLSTATE 57014), 192.168.100.100 192.168.100.101 too",
        "topic orders, partition 12, offset 123456789012",
        "event 550e8400-e29b-41d4-a716-446655440000 of order order-1: HTTP 503 Service Unavailable",
        "x-amzn-RequestId: 6f1d2b3c-0000-1111-2222-123456789012",
        "traceparent 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, trace ab12f3577b34da6a3ce929d0e0e47361",
        "image sha256:ab12cd34ab12cd34ab12cd34ab12cd34ab12cd34ab12cd34ab12cd34ab12cd34",
        "Überlauf: größer als 1048576 Bytes – siehe Handbuch §4",
        "1.234.567,89 EUR am 15.11.2026 12:30:11 und 01/02/2026 12:30",
        "password authentication failed for user \"app\"",
        "duplicate key value violates unique constraint \"outbox_pkey\"",
        "FATAL: no pg_hba.conf entry for host \"10.1.2.3\", user \"app\", database \"bank\", SSL off",
        "could not translate host name \"db.internal\" to address: Name or service not known",
        "error:0A000086:SSL routines::certificate verify failed (self-signed certificate in certificate chain)",
        "java.net.ConnectException: Connection refused (Connection refused) to /10.2.3.4:8443",
        "Broker: Not leader for partition (6); Local: Message timed out after 120000 ms",
        "NOAUTH Authentication required; READONLY You can't write against a read only replica",
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN",
        "WWW-Authenticate: Basic realm=\"bank\"; Basic authentication required; the bearer token is missing",
        "HTTP 422 {\"code\":\"insufficient_funds\",\"message\":\"balance too low\",\"n\":17}",
        "pacs.002 RJCT AC04 ClosedAccountNumber EndToEndId=E2E-20261115-0001",
        "ACK RC=05 DE39=05 STAN=000123 RRN=123456789012",
        "<Fault><faultcode>soap:Server</faultcode><faultstring>limit</faultstring></Fault>",
        "invalid credentials: user unknown; disk is 95% full, 100% of 3.5 GB",
        "at 08:15:00 10000000 rows, version 1.2.3.4567, took 12.345678 s",
    ];
    kept(&plain.map(|text| (text, text))).await;
}

#[tokio::test]
async fn an_empty_text_becomes_null() {
    let (_database, client) = database().await;
    for nothing in ["", "  ", "\n\t", "\u{7}", "\u{200b}", "%20", "&nbsp;\\n"] {
        assert_eq!(cleaned(&client, nothing).await, None, "{nothing:?}");
    }
    let null = client.query_one("select symphony.clean_error_text(null)", &[]).await.unwrap();
    assert_eq!(null.get::<_, Option<String>>(0), None);
}

#[tokio::test]
async fn the_longest_error_is_cut_and_no_secret_is_cut_through() {
    let (_database, client) = database().await;
    let long = cleaned(&client, &"ab ".repeat(100_000)).await.unwrap();
    assert!((1999..=2000).contains(&long.chars().count()), "{}", long.chars().count());
    assert_eq!(cleaned(&client, &"ä".repeat(5_000)).await.as_deref(), Some("[cut]"));
    // Of JSON without blanks not everything goes.
    assert!(cleaned(&client, &"{\"a\":1},".repeat(1_000)).await.unwrap().starts_with("{\"a\":1},{\"a\":1},"));
    // Cleaning makes room for what stands at the cut: that goes as a whole, wherever the cut falls.
    let secrets = [
        "4111 1111 1111 1111",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        "ann@example.org",
        "de89 3704 0044 0532 0130 00",
        "x://me:hun,ter@host",
        "+49 (170) 4711 0815",
    ];
    let mut texts = Vec::new();
    for secret in secrets {
        for shift in (0..50).step_by(3) {
            texts.push(format!("{}{} {secret} and so on", "a@b.de ".repeat(564), "x".repeat(shift)));
        }
    }
    for (text, (kept, _)) in texts.iter().zip(cleaned_twice(&client, &texts).await) {
        let kept = kept.unwrap();
        let left =
            ["41", "1 1", "ann", "370", "hun", "ter", "17", "47"].into_iter().find(|part| kept.contains(part));
        assert_eq!(left, None, "{kept} of {text}");
    }
}

#[tokio::test]
async fn encodings_are_undone_eight_deep_and_deeper_ones_are_withheld() {
    let (_database, client) = database().await;
    let mut text = "a password=hunter2 of ann@example.org".to_owned();
    for depth in 0..30 {
        let kept = cleaned(&client, &text).await.unwrap();
        let expected = if depth <= 8 { "a password=[hidden] of [e-mail]" } else { &kept };
        assert_eq!(kept, expected, "{depth} deep");
        assert!(!kept.contains("hunter") && !kept.contains("ann"), "{depth} deep: {kept}");
        // Each level hides one character of the level before, so that only one level at a time can be undone.
        text = text.replacen("password=", "%70assword=", 1).replacen('%', "%25", usize::from(depth > 0));
        text = text.replacen('@', "%40", 1);
    }
    assert_eq!(cleaned(&client, &text).await.as_deref(), Some("[withheld: encoded too often]"));
}
