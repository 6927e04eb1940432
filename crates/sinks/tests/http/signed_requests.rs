//! Detached JWS and HTTP message signatures, checked by verifiers that are not ours.

use serde_json::json;

use crate::bank_formats;
use crate::harness::{in_time, payment, refusal};
use crate::recorder::{Recorder, header};

#[tokio::test]
async fn a_detached_signature_covers_exactly_the_body() {
    let keys = bank_formats::keys();
    for (kind, settings, header_parameters) in [
        ("rsa", "", json!({ "alg": "PS256", "kid": "k-1", "b64": false, "crit": ["b64"] })),
        ("rsa", ", algorithm = 'RS256'", json!({ "alg": "RS256", "kid": "k-1", "b64": false, "crit": ["b64"] })),
        ("p256", ", encode_payload = true", json!({ "alg": "ES256", "kid": "k-1" })),
        (
            "ed25519",
            ", header = 'x-signature'",
            json!({ "alg": "EdDSA", "kid": "k-1", "b64": false, "crit": ["b64"] }),
        ),
    ] {
        let key = keys.path().join(format!("{kind}.pem"));
        let mut recorder =
            Recorder::new(&format!("jws = {{ key_file = '{}', key_id = 'k-1'{settings} }}", key.display())).await;
        let (head, body) = recorder.sent(&payment()).await;
        let name = if settings.contains("header") { "x-signature" } else { "x-jws-signature" };
        let signature = header(&head, name).unwrap();
        let public = keys.path().join(format!("{kind}.pub"));
        let arguments = ["jws", bank_formats::path(&public), signature];
        assert_eq!(bank_formats::check(&arguments, body.as_bytes()).unwrap(), header_parameters);
        bank_formats::check(&arguments, body.replace("10.00", "99.00").as_bytes()).unwrap_err();

        recorder.rail.inquire(&payment()).await;
        let (head, _) = in_time(recorder.requests.recv()).await.unwrap();
        assert_eq!(header(&head, name), None);
    }
}

#[tokio::test]
async fn an_http_message_signature_covers_the_request_and_a_digest_of_its_body() {
    let keys = bank_formats::keys();
    for (kind, more) in [("rsa", ""), ("rsa", "algorithm = 'RS256'"), ("p256", ""), ("ed25519", "label = 'bank'")]
    {
        let key = keys.path().join(format!("{kind}.pem"));
        let mut recorder = Recorder::new(&format!(
            "query = {{ amount = '{{{{ payload.amount }}}}' }}\n[http_signature]\nkey_file = '{}'\nkey_id = 'k 1'\n\
             components = ['@method', '@target-uri', '@authority', '@path', '@query', 'content-type', 'content-digest', 'idempotency-key']\n{more}",
            key.display()
        ))
        .await;
        let (head, body) = recorder.sent(&payment()).await;
        let public = keys.path().join(format!("{kind}.pub"));
        let verify = |head: &str, body: &str| {
            let request = format!("{}\r\n\r\n{body}", head.trim_end());
            bank_formats::check(&["http-signature", bank_formats::path(&public)], request.as_bytes())
        };
        let read = verify(&head, &body).unwrap();
        assert_eq!(read["key"], "k 1");
        let covers = json!([
            "@authority",
            "@method",
            "@path",
            "@query",
            "@signature-params",
            "@target-uri",
            "content-digest",
            "content-type",
            "idempotency-key"
        ]);
        assert_eq!(read["covers"], covers);
        assert!(verify(&head, &body.replace("10.00", "99.00")).is_err());
        assert!(verify(&head.replace("key-1", "key-2"), &body).is_err());
        assert!(verify(&head.replacen("amount=10.00", "amount=99.00", 1), &body).is_err());

        recorder.rail.inquire(&payment()).await;
        let (head, _) = in_time(recorder.requests.recv()).await.unwrap();
        assert_eq!(header(&head, "content-digest"), None);
        verify(&head, "").unwrap();
    }
}

#[test]
fn a_key_that_cannot_sign_is_refused_and_not_shown() {
    let keys = bank_formats::keys();
    let file = |name: &str| keys.path().join(name).display().to_string();
    std::fs::write(file("broken.pem"), "-----BEGIN PRIVATE KEY-----\naGlkZGVu\n-----END PRIVATE KEY-----\n")
        .unwrap();
    let http = "kind = 'http'\nurl = 'http://bank.example/'\nallow_http = true\n";
    for (toml, setting, advice) in [
        (format!("jws = {{ key_file = '{}' }}", file("broken.pem")), "jws.key_file", "openssl pkcs8"),
        (format!("jws = {{ key_file = '{}' }}", file("rsa.pub")), "jws.key_file", "private key"),
        (
            format!("jws = {{ key_file = '{}', algorithm = 'ES256' }}", file("rsa.pem")),
            "jws.key_file",
            "another kind",
        ),
        (format!("jws = {{ key_file = '{}', algorithm = 'none' }}", file("rsa.pem")), "jws.algorithm", "PS256"),
        (format!("jws = {{ key_file = '{}', header = 'Host' }}", file("rsa.pem")), "jws.header", "leave it out"),
        (
            format!("http_signature = {{ key_file = '{}', key_id = 'k', algorithm = 'PS256' }}", file("rsa.pem")),
            "http_signature.algorithm",
            "RFC 9421",
        ),
        (
            format!(
                "http_signature = {{ key_file = '{}', key_id = 'k', components = ['x-account'] }}",
                file("rsa.pem")
            ),
            "body",
            "x-account",
        ),
    ] {
        let error = refusal(&format!("{http}{toml}"));
        assert!(
            error.starts_with(&format!("rail sepa: {setting}: ")) && error.contains(advice),
            "{toml}: {error}"
        );
        assert!(!error.contains("aGlkZGVu"), "{error}");
    }
}
