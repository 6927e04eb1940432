//! docs/sinks/http.md lists every setting with its default. Its examples and those of the page on templates are valid.

use symphony_relay::rail::Payment;

use crate::harness::{payment, rail, refusal};

const PAGE: &str = include_str!("../../../../docs/sinks/http.md");
const TEMPLATES: &str = include_str!("../../../../docs/sinks/http-templates.md");
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sinks/examples/payment.json");

#[test]
fn the_page_lists_every_setting() {
    let error = refusal("kind = 'http'\nurl = 'https://bank.example/'\nno_such_setting = 1");
    let settings: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
    assert!(settings.len() > 20, "{error}");
    for setting in settings {
        assert!(PAGE.contains(&format!("\n| `{setting}` |")), "{setting} is missing in docs/sinks/http.md");
    }
}

#[test]
fn the_page_lists_every_setting_of_authentication() {
    for (section, required) in [
        ("oauth", "token_url = 'https://a.example/'\nclient_id = 'a'"),
        ("jws", "key_file = 'a'"),
        ("http_signature", "key_file = 'a'\nkey_id = 'a'"),
    ] {
        let error = refusal(&format!(
            "kind = 'http'\nurl = 'https://bank.example/'\n[{section}]\n{required}\nno_such_setting = 1"
        ));
        let settings: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        assert!(settings.len() > 4, "{error}");
        for setting in settings {
            assert!(PAGE.contains(&format!("`{section}.{setting}`")), "{section}.{setting} is missing");
        }
    }
}

#[test]
fn the_example_of_the_page_on_templates_is_valid() {
    let block = |kind: &str| TEMPLATES.split(&format!("```{kind}\n")).nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("instant.json");
    std::fs::write(&template, block("json")).unwrap();
    let mut table: toml::Table = block("toml").parse().unwrap();
    let settings = table["rails"]["instant"].as_table_mut().unwrap();
    settings["body"]["template_file"] = template.display().to_string().into();
    settings["sample_file"] = SAMPLE.into();
    let payload = std::fs::read_to_string(SAMPLE).unwrap();
    let payment = Payment { payload: serde_json::from_str(&payload).unwrap(), ..payment() };
    let request = symphony_sinks::rail("instant", settings.clone()).unwrap().preview(&payment).unwrap().unwrap();
    assert!(request.starts_with("POST http://psp.example/transfers?account=participant-1\n"), "{request}");
    assert!(request.contains("\"value\": 125000,"), "{request}");
}

#[test]
fn the_examples_of_the_page_are_valid() {
    let authority = crate::tls::CertificateAuthority::new();
    let root = authority.file("ca.pem").display().to_string();
    let folder = tempfile::tempdir().unwrap();
    let mut examples = 0;
    for block in PAGE.split("```toml\n").skip(1) {
        let table: toml::Table = block.split("```").next().unwrap().parse().unwrap();
        for (name, settings) in table["rails"].as_table().unwrap() {
            let mut settings = settings.as_table().unwrap().clone();
            // The example names a file of another machine.
            settings.remove("secret_file");
            if let Some(callback) = settings.get_mut("callback") {
                let secret = folder.path().join("secret");
                std::fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
                callback["secret_file"] = secret.display().to_string().into();
            }
            if let Some(oauth) = settings.get_mut("oauth") {
                oauth["client_secret_env"] = "CARGO_PKG_NAME".into();
            }
            settings.insert("root_ca_file".to_owned(), root.clone().into());
            assert!(symphony_sinks::rail(name, settings).unwrap().supports_inquiry());
            examples += 1;
        }
    }
    assert_eq!(examples, 4);
}

#[test]
fn the_defaults_of_the_page_are_the_defaults() {
    // Each limit depends on a default: one step beyond it is refused.
    let url = "kind = 'http'\nurl = 'http://bank.example/'\nallow_http = true\n";
    for (setting, default, beyond) in
        [("timeout", "\"30s\"", "connect_timeout = '30s'"), ("connect_timeout", "\"5s\"", "timeout = '5s'")]
    {
        assert!(PAGE.contains(&format!("| `{setting}` | `{default}` |")));
        assert!(refusal(&format!("{url}{beyond}")).contains("shorter than timeout"));
    }
    rail(&format!("{url}connect_timeout = '29999ms'"));
    rail(&format!("{url}timeout = '5001ms'"));
}

#[test]
fn the_request_of_the_page_has_a_valid_signature() {
    let request = PAGE.split("```http\n").nth(1).unwrap().split("```").next().unwrap();
    let (head, body) = request.trim_end().split_once("\n\n").unwrap();
    // The body is one line that the page wraps.
    let body: String = body.lines().collect();
    let mut headers = axum::http::HeaderMap::new();
    for (name, value) in head.lines().skip(1).map(|line| line.split_once(": ").unwrap()) {
        headers.insert(axum::http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
    }
    let secret = PAGE.split("(Signed with `").nth(1).unwrap().split('`').next().unwrap();
    let webhook = standardwebhooks::Webhook::new(secret).unwrap();
    let text = |name: &str| headers[name].to_str().unwrap();
    let signed =
        webhook.sign(text("webhook-id"), text("webhook-timestamp").parse().unwrap(), body.as_bytes()).unwrap();
    assert_eq!(text("webhook-signature"), signed);
    assert_eq!(text("webhook-id"), text("idempotency-key"));
}
