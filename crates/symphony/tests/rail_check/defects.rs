//! Adapters with a planted defect: the suite must find each, and name the check that it breaks.

use tokio::task::JoinSet;

use crate::adapter::{Adapter, Language, check};

/// A defect: what it replaces in the source of the Python adapter by what, and the checks that must find it.
struct Defect {
    name: &'static str,
    edits: &'static [(&'static str, &'static str)],
    found_by: &'static [&'static str],
}

const DEFECTS: &[Defect] = &[
    Defect {
        name: "no idempotency",
        edits: &[(
            "if store().execute(claim, (key, content)).rowcount == 0:",
            "if store().execute(claim.replace('do nothing', 'do update set content = excluded.content'), (key, content)).rowcount == 0:",
        )],
        found_by: &[
            "a repeated payment gets its first answer",
            "payments with one key at once are executed once",
            "another amount under a known key is refused as unknown",
        ],
    },
    Defect {
        name: "looks for the key first and claims it later",
        edits: &[(
            "if store().execute(claim, (key, content)).rowcount == 0:",
            "known = store().execute('select 1 from payments where key = ?', (key,)).fetchone(); __import__('threading').Event().wait(0.2)\n        \
             if known is None: store().execute(claim, (key, content))\n        if known:",
        )],
        found_by: &["payments with one key at once are executed once"],
    },
    Defect {
        name: "no signature check",
        edits: &[(
            "    signed = f\"{key}.{stamp}.\".encode() + body\n",
            "    return True\n    signed = f\"{key}.{stamp}.\".encode() + body\n",
        )],
        found_by: &["a signature by another secret is refused", "an altered body is refused"],
    },
    Defect {
        name: "an unsigned request passes",
        edits: &[("        return False\n", "        return not stamp\n")],
        found_by: &["a payment without a signature is refused"],
    },
    Defect {
        name: "a signature never ends",
        edits: &[("abs(time.time() - int(stamp)) > 300", "int(stamp) - time.time() > 300")],
        found_by: &["an old signature is refused"],
    },
    Defect {
        name: "a signature of the future passes",
        edits: &[("abs(time.time() - int(stamp)) > 300", "time.time() - int(stamp) > 300")],
        found_by: &["a signature of the future is refused"],
    },
    Defect {
        name: "the signature does not cover the body",
        edits: &[(
            "    given = headers.get(\"webhook-signature\", \"\").split()\n",
            "    given = headers.get(\"webhook-signature\", \"\").split()\n    if body and len(given) == 1 and headers.get(\"user-agent\"): return True\n",
        )],
        found_by: &["an altered body is refused"],
    },
    Defect {
        name: "only the first signature counts",
        edits: &[(
            "headers.get(\"webhook-signature\", \"\").split()",
            "headers.get(\"webhook-signature\", \"\").split()[:1]",
        )],
        found_by: &["one valid signature among several is enough"],
    },
    Defect {
        name: "inquiries need no signature",
        edits: &[("if not is_signed(self.headers, b\"\") or self.headers[\"webhook-id\"] != key:", "if False:")],
        found_by: &["an inquiry with a wrong or missing signature is refused"],
    },
    Defect {
        name: "the unsigned key counts",
        edits: &[
            (
                "json.loads(body), self.headers[\"webhook-id\"]",
                "json.loads(body), self.headers[\"idempotency-key\"]",
            ),
            ("payment[\"idempotency_key\"] == self.headers[\"idempotency-key\"] == key and ", ""),
        ],
        found_by: &["a key that was not signed is not paid under"],
    },
    Defect {
        name: "a wrong signature ends the payment",
        edits: &[(
            "return self.answer(401, {\"code\": \"BAD_SIGNATURE\"})\n        try:",
            "return self.answer(400, {\"code\": \"BAD_SIGNATURE\"})\n        try:",
        )],
        found_by: &["a signature by another secret is refused"],
    },
    Defect {
        name: "a known payment is denied",
        edits: &[("if found is None:", "if True:")],
        found_by: &["a payment that was made is found", "a key with a slash"],
    },
    Defect {
        name: "an unknown payment is claimed",
        edits: &[(
            "return self.answer(404, {\"status\": \"UNKNOWN_KEY\"})",
            "return self.answer(200, {\"status\": \"EXECUTED\", \"reference\": \"REF-1\"})",
        )],
        found_by: &["a key that was never sent is never seen"],
    },
    Defect {
        name: "an unknown payment is a plain 404",
        edits: &[("{\"status\": \"UNKNOWN_KEY\"}", "{\"error\": \"not found\"}")],
        found_by: &["a key that was never sent is never seen"],
    },
    Defect {
        name: "another amount gets the first answer",
        edits: &[("if stored != content or status == \"PENDING\":", "if status == \"PENDING\":")],
        found_by: &["another amount under a known key is refused as unknown"],
    },
    Defect {
        name: "another amount ends the payment",
        // A code that names the key would be an unknown outcome.
        edits: &[
            ("return self.answer(409,", "return self.answer(422 if stored != content else 409,"),
            ("\"KEY_REUSED\"", "\"OTHER_CONTENT\""),
        ],
        found_by: &["another amount under a known key is refused as unknown"],
    },
    Defect {
        name: "a repeated answer is not marked",
        edits: &[(
            "return self.outcome(200, status, detail, replay=\"true\")",
            "return self.outcome(200, status, detail, replay=\"false\")",
        )],
        found_by: &["a repeated answer is marked"],
    },
    Defect {
        name: "refusals are forgotten and then executed",
        edits: &[(
            "if not isinstance(payload.get(\"amount\"), str) or payload.get(\"currency\") != \"EUR\":",
            "if payload.get('currency') != 'EUR' and not os.path.exists('twice'):\n        open('twice', 'w'); store().execute(\"delete from payments where key = ?\", (key,))",
        )],
        found_by: &["a refused payment stays refused"],
    },
    Defect {
        name: "keys are decoded twice",
        edits: &[(
            "        if not is_signed(self.headers, b\"\")",
            "        key = urllib.parse.unquote(key)\n        if not is_signed(self.headers, b\"\")",
        )],
        found_by: &["a key with an encoded slash"],
    },
    Defect {
        name: "the key in the path is not decoded",
        edits: &[("key = urllib.parse.unquote(self.path[len(PATH) + 1 :])", "key = self.path[len(PATH) + 1 :]")],
        found_by: &["a key with a slash", "a key with a percent sign"],
    },
    Defect {
        name: "keys ignore case",
        edits: &[("key text primary key", "key text collate nocase primary key")],
        found_by: &["a key with capitals"],
    },
    Defect {
        name: "large bodies are refused",
        edits: &[("320 * 1024", "64 * 1024")],
        found_by: &["a large payload is executed"],
    },
    Defect {
        name: "unknown fields are refused",
        edits: &[(
            "            content = [payment[name]",
            "            if len(payment) != 5: raise ValueError\n            content = [payment[name]",
        )],
        found_by: &["unknown fields and headers are ignored"],
    },
    Defect {
        name: "malformed JSON is an error of the server",
        edits: &[(
            "return self.answer(400, {\"code\": \"MALFORMED\"})",
            "return self.answer(500, {\"code\": \"MALFORMED\"})",
        )],
        found_by: &["a body that is no payment is refused"],
    },
    Defect {
        name: "a payment needs no amount",
        edits: &[("not isinstance(payload.get(\"amount\"), str) or ", "")],
        found_by: &["a payment without an amount is refused"],
    },
    Defect {
        name: "an answer takes too long",
        edits: &[(
            "        status, detail = make_payment(key, payment)\n",
            "        __import__('threading').Event().wait(3 if 'executed' in key else 0)\n        status, detail = make_payment(key, payment)\n",
        )],
        found_by: &["a payment that was made is found", "every request is answered in time"],
    },
    Defect {
        name: "success without a reference",
        edits: &[("return \"EXECUTED\", \"REF-\" + uuid.uuid4().hex[:12]", "return \"EXECUTED\", None")],
        found_by: &["a payment is executed"],
    },
];

/// Most of a run waits for the disk of the adapter.
const AT_ONCE: usize = 4;

#[tokio::test]
async fn each_planted_defect_is_found_by_its_check() {
    for defects in DEFECTS.chunks(AT_ONCE) {
        let mut runs = JoinSet::new();
        for defect in defects {
            runs.spawn(is_found(defect));
        }
        runs.join_all().await;
    }
}

async fn is_found(Defect { name, edits, found_by }: &'static Defect) {
    let language = Language::Python;
    let mut source = language.source();
    for (replaced, by) in *edits {
        assert!(source.contains(replaced), "{name}: the source has changed; it lacks {replaced}");
        source = source.replacen(replaced, by, 1);
    }
    let adapter = Adapter::start_source(language, &source).await;
    let ran = tokio::task::spawn_blocking(move || check(&adapter, &["--timeout", "2s"])).await.unwrap();
    let report = ran.json();
    let state_of = |wanted: &str| {
        let checks = report["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["name"] == wanted);
        found.map(|check| check["state"].as_str().unwrap().to_owned()).unwrap_or_default()
    };
    assert!(!found_by.is_empty(), "{name}");
    for wanted in *found_by {
        let state = state_of(wanted);
        // A missing mark endangers no payment, so it only warns.
        let expected = if wanted.ends_with("is marked") { "warned" } else { "failed" };
        assert_eq!(state, expected, "{name}: {wanted}: {}", ran.all());
    }
    let code = i32::from(report["failed"] != 0);
    assert_eq!(ran.code, code, "{name}: {}", ran.all());
}
