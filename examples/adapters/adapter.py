"""A payment adapter: takes payments from a Symphony relayer and makes each one once. Python 3.9 or later, no packages.

ADAPTER_SECRET=whsec_… python3 adapter.py 8080 payments.db         (docs/adapters.md explains the protocol)
"""
import base64, hashlib, hmac, http.server, json, os, sqlite3, sys, time, urllib.parse, uuid

PATH, LARGEST_BODY = "/payments", 320 * 1024


def make_payment(key, payment):
    """Make the payment at your bank here, under this key. A status, and the bank's reference or the code of a refusal."""
    payload = payment["payload"]
    if not isinstance(payload.get("amount"), str) or payload.get("currency") != "EUR":
        return "REFUSED", "INVALID_AMOUNT"
    return "EXECUTED", "REF-" + uuid.uuid4().hex[:12]


def is_signed(headers, body):
    """Standard Webhooks: any of the signatures matches, and the time is at most five minutes off."""
    key, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not (stamp.isascii() and stamp.isdigit()) or abs(time.time() - int(stamp)) > 300:
        return False
    signed = f"{key}.{stamp}.".encode() + body
    ours = ["v1," + base64.b64encode(hmac.new(s, signed, hashlib.sha256).digest()).decode() for s in SECRETS]
    given = headers.get("webhook-signature", "").split()
    return any(hmac.compare_digest(one, other) for one in ours for other in given)


def store():
    return sqlite3.connect(DATABASE, timeout=10, isolation_level=None)  # each statement is durable when it returns


class Adapter(http.server.BaseHTTPRequestHandler):
    timeout = 30  # a client that sends nothing must not hold a thread for ever

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if self.path != PATH or not length.isdigit() or int(length) > LARGEST_BODY:
            return self.answer(413 if self.path == PATH else 404, {"code": "NOT_TAKEN"})
        body = self.rfile.read(int(length))
        if not is_signed(self.headers, body):  # 401 before all else: it is no outcome of the payment
            return self.answer(401, {"code": "BAD_SIGNATURE"})
        try:
            payment, key = json.loads(body), self.headers["webhook-id"]
            if not (payment["idempotency_key"] == self.headers["idempotency-key"] == key and payment["payload"].keys()):
                raise ValueError
            content = [payment[name] for name in ("instruction_id", "participant_id", "payload")]
            content = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return self.answer(400, {"code": "MALFORMED"})
        # One statement claims the key, durably, before anything is paid: of many requests at once, one gets it.
        claim = "insert into payments values (?, ?, 'PENDING', null) on conflict do nothing"
        if store().execute(claim, (key, content)).rowcount == 0:
            stored, status, detail = store().execute("select * from payments where key = ?", (key,)).fetchone()[1:]
            if stored != content or status == "PENDING":  # after a crash a payment stays PENDING: ask your bank about it
                return self.answer(409, {"code": "KEY_REUSED" if stored != content else "IN_PROGRESS"})
            return self.outcome(200, status, detail, replay="true")
        status, detail = make_payment(key, payment)
        store().execute("update payments set status = ?, detail = ? where key = ?", (status, detail, key))
        self.outcome(201, status, detail, replay="false")

    def do_GET(self):
        key = urllib.parse.unquote(self.path[len(PATH) + 1 :])
        if not is_signed(self.headers, b"") or self.headers["webhook-id"] != key:
            return self.answer(401, {"code": "BAD_SIGNATURE"})
        found = store().execute("select status, detail from payments where key = ?", (key,)).fetchone()
        if found is None:
            return self.answer(404, {"status": "UNKNOWN_KEY"})
        self.answer(200, {"status": found[0], "code" if found[0] == "REFUSED" else "reference": found[1]})

    def outcome(self, executed, status, detail, replay):
        body = {"status": status, "reference" if status == "EXECUTED" else "code": detail}
        self.answer(executed if status == "EXECUTED" else 422, body, replay)

    def answer(self, status, body, replay="false"):
        content = json.dumps(body).encode()
        self.send_response(status)
        for header in (("Content-Type", "application/json"), ("Content-Length", len(content)), ("Idempotent-Replay", replay)):
            self.send_header(header[0], str(header[1]))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """The standard log would show keys."""


PORT, DATABASE = int(sys.argv[1]), sys.argv[2]
SECRETS = [base64.b64decode(text[len("whsec_") :]) for text in os.environ["ADAPTER_SECRET"].split()]
store().execute("create table if not exists payments (key text primary key, content text, status text, detail text)")
http.server.ThreadingHTTPServer.request_queue_size = 128
server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Adapter)
print(f"http://127.0.0.1:{server.server_port}{PATH}", flush=True)
server.serve_forever()
