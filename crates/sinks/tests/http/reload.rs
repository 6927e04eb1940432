//! Secrets and certificates follow their files while the rail works.

use std::sync::Arc;

use symphony_relay::rail::Rail;
use symphony_sinks::reload_secrets;

use crate::harness::{assert_accepted, assert_not_sent, payment};
use crate::recorder::{Recorder, header};
use crate::tls::{CertificateAuthority, https, setting, tls_server};

const NEW_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

#[tokio::test]
async fn a_rotated_secret_is_used_without_a_restart_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let settings = format!(
        "bearer_file = '{}'\nsecret_file = '{}'\nheaders = {{ 'X-Key' = {{ file = '{}' }} }}",
        write("bearer", "one"),
        write("signing", OLD_SECRET),
        write("key", "a")
    );
    let mut recorder = Recorder::new(&settings).await;
    let (head, _) = recorder.sent(&payment()).await;
    assert_eq!(header(&head, "authorization"), Some("Bearer one"));

    write("bearer", "two");
    write("signing", NEW_SECRET);
    write("key", "b");
    reload_secrets(false);
    let (head, body) = recorder.sent(&payment()).await;
    assert_eq!((header(&head, "authorization"), header(&head, "x-key")), (Some("Bearer two"), Some("b")));
    assert!(crate::signature::verifies(NEW_SECRET, &head, &body));

    // One broken file keeps all of them: a request never mixes old and new.
    write("bearer", "three");
    write("signing", "whsec_broken");
    reload_secrets(false);
    reload_secrets(true);
    let (head, body) = recorder.sent(&payment()).await;
    assert_eq!(header(&head, "authorization"), Some("Bearer two"));
    assert!(crate::signature::verifies(NEW_SECRET, &head, &body));
    write("signing", OLD_SECRET);
    reload_secrets(false);
    let (head, body) = recorder.sent(&payment()).await;
    assert_eq!(header(&head, "authorization"), Some("Bearer three"));
    assert!(crate::signature::verifies(OLD_SECRET, &head, &body));
}

#[tokio::test]
async fn a_new_certificate_authority_and_client_certificate_are_used_without_a_restart() {
    let (authority, other) = (CertificateAuthority::new(), CertificateAuthority::new());
    for authority in [&authority, &other] {
        authority.sign("server", "localhost");
        authority.sign("client", "symphony");
    }
    let folder = tempfile::tempdir().unwrap();
    let install = |authority: &CertificateAuthority| {
        for name in ["ca.pem", "client.pem", "client.key"] {
            std::fs::copy(authority.file(name), folder.path().join(name)).unwrap();
        }
    };
    install(&other);
    let (address, _) = tls_server(authority.server("server", Some(&authority.file("ca.pem")))).await;
    let settings: String = [
        setting("root_ca_file", &folder.path().join("ca.pem")),
        setting("client_certificate_file", &folder.path().join("client.pem")),
        setting("client_key_file", &folder.path().join("client.key")),
    ]
    .concat();
    let rail: Arc<dyn Rail> = https(address, &settings);
    assert_not_sent(&rail.dispatch(&payment()).await);
    install(&authority);
    reload_secrets(false);
    assert_accepted(&rail.dispatch(&payment()).await);
    std::fs::write(folder.path().join("client.key"), "broken").unwrap();
    reload_secrets(false);
    assert_accepted(&rail.dispatch(&payment()).await);
}
