"""The part of make.py that needs public keys: senders that sign with a private key, or with a token.

It wants the package `cryptography` (48.0.0 was used). The keys in `keys/` belong to nobody; certificates are made anew
each time and are the same each time.
"""

import base64
import datetime
import hashlib
import hmac
import json
import re
import urllib.parse
import zlib
from pathlib import Path

import jwe
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, utils
from cryptography.x509.oid import NameOID

KEYS = Path(__file__).resolve().parent / "keys"
DER, PEM = serialization.Encoding.DER, serialization.Encoding.PEM
SPKI = serialization.PublicFormat.SubjectPublicKeyInfo
# The private key of each public one, by the text that is registered.
PRIVATE = {}


def b64(data):
    return base64.b64encode(data).decode()


def b64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def number(value, size):
    return b64url(value.to_bytes(size, "big"))


def load(name):
    return serialization.load_pem_private_key((KEYS / f"{name}.pem").read_bytes(), None)


def known(text, private):
    PRIVATE[text] = private
    return text


def ed25519_key(encode):
    def key(name, n):
        private = load(f"ed25519-{n}")
        raw = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        return known(encode(raw), private)

    return key


def spki_base64(kind):
    return lambda name, n: known(b64(load(f"{kind}-{n}").public_key().public_bytes(DER, SPKI)), load(f"{kind}-{n}"))


def spki_pem(kind):
    def key(name, n):
        # The first of the short kind, which is one only, is real; the second is any other.
        private = load(kind if kind == "rsa1024" and n == 1 else f"{kind.replace('1024', '')}-{n}")
        return known(private.public_key().public_bytes(PEM, SPKI).decode(), private)

    return key


def jwk_p256(name, n):
    private = load(f"p256-{n}")
    point = private.public_key().public_numbers()
    jwk = {"alg": "ES256", "crv": "P-256", "kid": f"kid-{n}", "kty": "EC", "use": "sig"}
    jwk |= {"x": number(point.x, 32), "y": number(point.y, 32), "created_at": 1767000000, "expired_at": None}
    return known(json.dumps(jwk, separators=(",", ":")), private)


def fetched_key(name, n):
    return known(f"the sender's key {n}", load(f"rsa-{n}"))


def named_key(name, n):
    return f"APInotReal{n}:not-a-real-secret-{n}"


def rsa(private, message, algorithm=hashes.SHA256):
    return private.sign(message, padding.PKCS1v15(), algorithm())


def ecdsa(private, message, algorithm=hashes.SHA256):
    return private.sign(message, ec.ECDSA(algorithm(), deterministic_signing=True))


def p521_key(name, n):
    return known(f"the sender's key {n}", load(f"p521-{n}"))


def certificate(subject, issuer, public, signer, ca):
    name = lambda text: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    builder = x509.CertificateBuilder(name(issuer), name(subject), public, 1 + ca)
    builder = builder.not_valid_before(datetime.datetime(2025, 1, 1)).not_valid_after(datetime.datetime(2035, 1, 1))
    builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    return builder.sign(signer, hashes.SHA256()).public_bytes(PEM).decode()


# --- tokens ---------------------------------------------------------------------------------------------------------

HASHES = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}


def jws(claims, key, algorithm="HS256", header=None):
    """A compact JWS. `key` is a text or a private key."""
    head = {"alg": algorithm, "typ": "JWT"} | (header or {})
    signed = ".".join(b64url(json.dumps(part, separators=(",", ":")).encode()) for part in (head, claims))
    if algorithm in HASHES:
        signature = hmac.new(key.encode(), signed.encode(), HASHES[algorithm]).digest()
    elif algorithm == "RS256":
        signature = rsa(key, signed.encode())
    elif algorithm == "ES256":
        r, s = utils.decode_dss_signature(ecdsa(key, signed.encode()))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    elif algorithm == "ES512":
        r, s = utils.decode_dss_signature(ecdsa(key, signed.encode(), hashes.SHA512))
        signature = r.to_bytes(66, "big") + s.to_bytes(66, "big")
    elif algorithm == "EdDSA":
        signature = key.sign(signed.encode())
    else:
        signature = b""
    return f"{signed}.{b64url(signature)}"


def sha(data):
    return hashlib.sha256(data).hexdigest()


def livekit(r, key, at):
    name, secret = key.split(":", 1)
    digest = b64(hashlib.sha256(r.body).digest())
    r.set("Authorization", jws({"sha256": digest, "iss": name, "exp": at + 300, "nbf": at - 2}, secret))


def netlify(r, key, at):
    r.set("X-Webhook-Signature", jws({"iss": "netlify", "sha256": sha(r.body)}, key))


def vonage(r, key, at):
    claims = {"payload_hash": sha(r.body), "api_key": "abcd1234", "iat": at, "iss": "Vonage", "jti": "1"}
    r.set("Authorization", "Bearer " + jws(claims, key))


def query_hash(r):
    """Atlassian's own description: method, path and query, escaped, sorted, joined by `&`."""
    pairs = {}
    parts = urllib.parse.urlsplit(r.url)
    for name, value in urllib.parse.parse_qsl(parts.query, keep_blank_values=True):
        if name != "jwt":
            pairs.setdefault(urllib.parse.quote(name, safe="-_.~"), []).append(urllib.parse.quote(value, safe="-_.~"))
    query = "&".join(f"{name}={','.join(sorted(values))}" for name, values in sorted(pairs.items()))
    return sha(f"{r.method}&{parts.path}&{query}".encode())


def atlassian(r, key, at):
    claims = {"iss": "sample-issuer", "iat": at, "exp": at + 180, "qsh": query_hash(r)}
    r.set("Authorization", "JWT " + jws(claims, key))


def plaid(r, key, at):
    claims = {"iat": at, "request_body_sha256": sha(r.body)}
    r.set("Plaid-Verification", jws(claims, PRIVATE[key], "ES256", {"kid": json.loads(key)["kid"]}))


def messagebird(r, key, at):
    claims = {"iss": "MessageBird", "nbf": at, "exp": at + 60, "jti": "sample", "url_hash": sha(r.url.encode())}
    if r.body:
        claims["payload_hash"] = sha(r.body)
    r.set("MessageBird-Signature-JWT", jws(claims, key))


def monday(r, key, at):
    r.set("Authorization", jws({"aud": r.url, "iat": at, "exp": at + 300, "accountId": 1}, key))


def google(r, key, at, **changes):
    claims = {"iss": "https://accounts.google.com", "aud": "sample-audience", "azp": "1", "sub": "1", "iat": at}
    claims |= {"exp": at + 3600, "email": "push@acme.example", "email_verified": True} | changes
    kid = "google-1" if key.endswith("1") else "google-2"
    r.set("Authorization", "Bearer " + jws(claims, PRIVATE[key], "RS256", {"kid": kid}))


def fusionauth(r, key, at):
    digest = b64(hashlib.sha256(r.body).digest())
    r.set("X-FusionAuth-Signature-JWT", jws({"request_body_sha256": digest}, key))


def wix(r, key, at):
    r.body = jws(json.loads(r.body) | {"iat": at, "exp": at + 3600}, PRIVATE[key], "RS256").encode()


def stone_token(r, key, at, **header):
    kid = "stone-1" if key.endswith("1") else "stone-2"
    return jws(json.loads(r.body) | {"iat": at, "nbf": at}, PRIVATE[key], "RS256", {"kid": kid} | header)


def stone(r, key, at):
    r.body = jwe.envelope(jwe.seal(stone_token(r, key, at), load("rsa-pkcs1").public_key()))


def truelayer(r, key, at, path=None, names="X-Tl-Webhook-Timestamp", algorithm="ES512"):
    kid = "tl-1" if key.endswith("1") else "tl-2"
    head = {"alg": algorithm, "kid": kid, "tl_version": "2", "tl_headers": names, "jku": TRUELAYER_KEYS}
    head = b64url(json.dumps(head, separators=(",", ":")).encode())
    lines = "".join(f"{name}: {r.get(name)}\n" for name in names.split(",") if name)
    payload = f"{r.method} {path or r.path}\n{lines}".encode() + r.body
    r_part, s_part = utils.decode_dss_signature(ecdsa(PRIVATE[key], f"{head}.{b64url(payload)}".encode(), hashes.SHA512))
    r.set("Tl-Signature", f"{head}..{b64url(r_part.to_bytes(66, 'big') + s_part.to_bytes(66, 'big'))}")


# --- signatures -----------------------------------------------------------------------------------------------------


def discord(r, key, at):
    message = r.get("X-Signature-Timestamp").encode() + r.body
    r.set("X-Signature-Ed25519", PRIVATE[key].sign(message).hex())


def telnyx(r, key, at):
    r.set("telnyx-signature-ed25519", b64(PRIVATE[key].sign(f"{r.get('telnyx-timestamp')}|".encode() + r.body)))


def sendgrid(r, key, at):
    name = "X-Twilio-Email-Event-Webhook"
    r.set(f"{name}-Signature", b64(ecdsa(PRIVATE[key], r.get(f"{name}-Timestamp").encode() + r.body)))


def ebay(r, key, at):
    signature = b64(ecdsa(PRIVATE[key], r.body, hashes.SHA1))
    header = {"alg": "ecdsa", "kid": "9936261a-7d7b-4621-a0f1-964b8e2e5b0a", "signature": signature, "digest": "SHA1"}
    r.set("X-EBAY-SIGNATURE", b64(json.dumps(header).encode()))


def body_rsa(header):
    return lambda r, key, at: r.set(header, b64(rsa(PRIVATE[key], r.body)))


def keygen(r, key, at):
    stamp = datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    parts = urllib.parse.urlsplit(r.url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    digest = b64(hashlib.sha256(r.body).digest())
    lines = [f"(request-target): {r.method.lower()} {target}", f"host: {parts.netloc}", f"date: {stamp}"]
    signature = b64(PRIVATE[key].sign("\n".join([*lines, f"digest: sha-256={digest}"]).encode()))
    r.set("Date", stamp)
    r.set("Digest", f"sha-256={digest}")
    names = "(request-target) host date digest"
    r.set("Keygen-Signature", f'keyid="acme", algorithm="ed25519", signature="{signature}", headers="{names}"')


def php_fields(fields):
    out = f"a:{len(fields)}:{{"
    for name, value in sorted(fields.items()):
        out += "".join(f's:{len(text.encode())}:"{text}";' for text in (name, value))
    return (out + "}").encode()


def paddle_classic(r, key, at):
    signature = b64(rsa(PRIVATE[key], php_fields(dict(r.form)), hashes.SHA1))
    r.body += b"&p_signature=" + urllib.parse.quote(signature, safe="").encode()


def travis(r, key, at):
    r.set("Signature", b64(rsa(PRIVATE[key], dict(r.form)["payload"].encode(), hashes.SHA1)))


def paypal(r, key, at):
    head = f"{r.get('PAYPAL-TRANSMISSION-ID')}|{r.get('PAYPAL-TRANSMISSION-TIME')}|sample-webhook_id|"
    message = head + str(zlib.crc32(r.body) & 0xFFFFFFFF)
    r.set("PAYPAL-TRANSMISSION-SIG", b64(rsa(PRIVATE[key], message.encode())))


def sns(r, key, at):
    message = json.loads(r.body)
    confirm = ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
    notify = ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"]
    names = notify if message["Type"] == "Notification" else confirm
    signed = "".join(f"{name}\n{message[name]}\n" for name in names if name in message)
    algorithm = hashes.SHA1 if message["SignatureVersion"] == "1" else hashes.SHA256
    r.body = r.body.replace(b"{{signature}}", b64(rsa(PRIVATE[key], signed.encode(), algorithm)).encode())


# --- what the events are called -------------------------------------------------------------------------------------


def discord_events(r):
    event = r.json.get("event")
    if not event:
        return [(r.json["id"], str(r.json["type"]))]
    return [(f"{r.json['application_id']}:{event['type']}:{event['timestamp']}:{sha(r.body)}", event["type"])]


def vonage_events(r):
    return [(r.json["message_uuid"], "message." + (r.json.get("status") or r.json["message_type"]))]


def wix_events(r):
    part = r.body.decode().split(".")[1]
    outer = json.loads(json.loads(base64.urlsafe_b64decode(part + "==="))["data"])
    return [(json.loads(outer["data"])["id"], outer["eventType"])]


def sns_events(r):
    kind = r.json["Type"]
    if r.json["Message"].startswith("{"):
        kind = json.loads(r.json["Message"])["detail-type"]
    return [(r.json["MessageId"], kind)]


def google_events(r):
    kind = r.json["message"].get("attributes", {}).get("eventType") or r.json["subscription"]
    return [(r.json["message"]["messageId"], kind)]


def ebanx(r, key, at):
    r.set("X-Signature-Content", b64(rsa(PRIVATE[key], r.body, hashes.SHA1)))


def ebanx_events(r):
    form = dict(r.form)
    return [(code, f"{form['operation']}.{form['notification_type']}") for code in form["hash_codes"].split(",")]


def travis_events(r):
    build = json.loads(dict(r.form)["payload"])
    parts = [str(build["id"]), build["state"], build.get("started_at"), build.get("finished_at")]
    return [(":".join(part for part in parts if part), f"build.{build['state']}")]


def travis_cases(c):
    build = {"id": 7, "state": "failed", "repository": {"id": 1, "owner_name": "acme"}}
    ends = ("2026-01-05T10:00:00Z", "2026-01-05T11:00:00Z")
    c.apart(*((f"a build fails, {end}", c.sign(c.form([("payload", json.dumps(build | {"finished_at": end}))]))) for end in ends))


def netlify_events(r):
    kind = r.get("X-Netlify-Event")
    return [(f"{r.json['id']}:{r.json['state']}:{sha(r.body)}", kind or r.json["state"])]


def netlify_cases(c):
    body = {"id": "d1", "state": "ready", "site_id": "s1", "updated_at": "2026-01-05T10:00:00Z"}
    kinds = {"deploy_created": {}, "deploy_locked": {"locked": True}, "deploy_unlocked": {"locked": False}}
    c.apart(*((f"one deploy, {kind}", c.sign(c.post(body | more, [("X-Netlify-Event", kind)]))) for kind, more in kinds.items()))
    c.event("one deploy, without the header", c.sign(c.post(body)), [c.key])
    c.event("one deploy, another header is the same event", c.sign(c.post(body, [("X-Netlify-Event", "deploy_locked")])), [c.key])


def woovi_events(r):
    if "refundTransaction" in r.json:
        return [(f"{r.json['event']}:{r.json['refundTransaction']['endToEndId']}", r.json["event"])]
    parts = [r.json["event"], r.json["charge"]["correlationID"], r.json.get("pix", {}).get("endToEndId")]
    return [(":".join(part for part in parts if part), r.json["event"])]


def plaid_events(r):
    kind = (r.json["webhook_type"], r.json["webhook_code"])
    return [(f"{kind[0]}:{kind[1]}:{r.json['item_id']}:{sha(r.body)}", kind[1])]


EBAY_KEY = "-----BEGIN PUBLIC KEY-----MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEZhhxXKtR+TOvtDbgTPCkSof02qgBB7IsYOyf76ilExJ/upAa/vKIKheOoCyOpcLmi4t0b4uepb7LLjmMr90FUg==-----END PUBLIC KEY-----"
EBAY_SIGNATURE = "eyJhbGciOiJlY2RzYSIsImtpZCI6Ijk5MzYyNjFhLTdkN2ItNDYyMS1hMGYxLTk2Y2NiNDI4YWY0OSIsInNpZ25hdHVyZSI6Ik1FWUNJUUNmeGZJV3V4bVdjSUJRSjljNS9YN2lHREpxczJSQ0dzQkVhQWppbnlycmZBSWhBSVY2d0djVGlCdVY1S0pVaWYyaG9reXJMK1E5c3NIa2FkK214Mm5FRTI1dyIsImRpZ2VzdCI6IlNIQTEifQ=="
EBAY_MESSAGE = {
    "metadata": {"topic": "MARKETPLACE_ACCOUNT_DELETION", "schemaVersion": "1.0", "deprecated": False},
    "notification": {
        "notificationId": "49feeaeb-4982-42d9-a377-9645b8479411_33f7e043-fed8-442b-9d44-791923bd9a6d",
        "eventDate": "2021-03-19T20:43:59.462Z",
        "publishDate": "2021-03-19T20:43:59.679Z",
        "publishAttemptCount": 1,
        "data": {"username": "test_user", "userId": "ma8vp1jySJC", "eiasToken": "nY+sHZ2PrBmdj6wVnY+sEZ2PrA2dj6wJnY+gAZGEpwmdj6x9nY+seQ=="},
    },
}
WISE_SANDBOX = (
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAwpb91cEYuyJNQepZAVfP"
    "ZIlPZfNUefH+n6w9SW3fykqKu938cR7WadQv87oF2VuT+fDt7kqeRziTmPSUhqPU"
    "ys/V2Q1rlfJuXbE+Gga37t7zwd0egQ+KyOEHQOpcTwKmtZ81ieGHynAQzsn1We3j"
    "wt760MsCPJ7GMT141ByQM+yW1Bx+4SG3IGjXWyqOWrcXsxAvIXkpUD/jK/L958Cg"
    "nZEgz0BSEh0QxYLITnW1lLokSx/dTianWPFEhMC9BgijempgNXHNfcVirg1lPSyg"
    "z7KqoKUN0oHqWLr2U1A+7kqrl6O2nx3CKs1bj1hToT1+p4kcMoHXA7kA+VBLUpEs"
    "VwIDAQAB"
)
WISE_SIGNATURE = (
    "wKcKCYXAzxNgiu7xmoDm943NUni7Rz33QN8JkEA9dWSGebgndonabgSj18Y4C08OrwVmueGsED2s00M7DtJVcYKOS1i3G4TMVx+mgM3aL9djMBkQtiYN"
    "BFUd6wrPI7ZUNHv/TrlKSjTMc+6JFvUvJ7owY3z85e3I4jLRLJowMFvO8kvCJ60+1pY9wDwZvtZ//WS93LrwGjk9Dvwzpmu0w+P4J75tETT5qC3Uv0y5"
    "G2yO8SEoO3yNP/tg/BOli02niHb53vEOUWUb9bly6thnfMoXoiV/osoGxgF20R58RlvkAmezyyl1Sv542TfS2DpiwVnmjjjkCyXeSUcKookYLQ=="
)
SNS_CERT = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-00000000000000000000000000000001.pem"
PAYPAL_CERT = "https://api.paypal.com/v1/notifications/certs/CERT-00000000-00000000-00000001"
GOOGLE_KEYS = "https://www.googleapis.com/oauth2/v3/certs"
TRUELAYER_KEYS = "https://webhooks.truelayer.com/.well-known/jwks"
STONE_KEYS = "https://api.openbank.stone.com.br/api/v1/discovery/keys"
TRAVIS_KEY = "https://api.travis-ci.com/config"


def public_jwk(private, kid):
    numbers = private.public_key().public_numbers()
    return {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": kid, "e": "AQAB", "n": number(numbers.n, 256)}


def table(make):
    """All providers of this file, for make.py."""

    def provider(*arguments, secrets=None, broken=True, **more):
        made = make.Provider(*arguments, **more)
        # `secrets`: what is registered, where keys are fetched. `broken`: whether the usual ways to break fit.
        made.secrets, made.broken = secrets, broken
        return made

    sender, other = load("rsa-1"), load("rsa-2")
    root = certificate("Sample Root", "Sample Root", other.public_key(), other, True)
    cert = certificate("messageverificationcerts.paypal.com", "Sample Root", sender.public_key(), other, False)
    stone_jwks = {"keys": [public_jwk(sender, "stone-1")]}
    numbers = sender.public_key().public_numbers()
    jwk = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "google-1", "e": "AQAB", "n": number(numbers.n, 256)}
    point = load("p521-1").public_key().public_numbers()
    tl_jwk = {"kty": "EC", "crv": "P-521", "kid": "tl-1", "x": number(point.x, 66), "y": number(point.y, 66)}
    config = {"notifications": {"webhook": {"public_key": sender.public_key().public_bytes(PEM, SPKI).decode()}}}
    message = lambda r: re.sub(rb'("Message" : ")(.)', rb"\1x\2", r.body)
    stoned = provider(stone, lambda r: [(r.get("X-Stone-Webhook-Event-Id"), r.get("X-Stone-Webhook-Event-Type"))], "json:encrypted_body", fetched_key, tamper=lambda r: re.sub(rb"\.([^.])([^.]*)\"", lambda m: b"." + (b"A" if m[1] != b"A" else b"B") + m[2] + b"\"", r.body), secrets=[], config={"certs": {STONE_KEYS: json.dumps(stone_jwks)}})
    stoned.decryption_keys = [(KEYS / "rsa-pkcs1.pem").read_text()]
    return {
        "stone": stoned,
        "amazon_sns": provider(sns, sns_events, "Signature", fetched_key, tamper=message, secrets=[], broken=False, config={"topic": "arn:aws:sns:us-east-1:123456789012:acme", "certs": {SNS_CERT: certificate("sns.amazonaws.com", "Sample Root", sender.public_key(), other, False)}}),
        "atlassian_connect": provider(atlassian, lambda r: [(r.get("X-Atlassian-Webhook-Identifier"), r.json["webhookEvent"])], "Authorization", tamper=None, config={"issuer": "sample-issuer"}),
        "discord": provider(discord, discord_events, "X-Signature-Ed25519", ed25519_key(bytes.hex), 300, answer=""),
        "ebay": provider(ebay, make.fields("notification/notificationId", "metadata/topic"), "X-EBAY-SIGNATURE", spki_pem("p256"), answer="", config={"verification_token": "not-a-real-verification-token-000001"}),
        "ebanx": provider(ebanx, ebanx_events, "X-Signature-Content", spki_pem("rsa")),
        "fusionauth": provider(fusionauth, make.fields("event/id", "event/type"), "X-FusionAuth-Signature-JWT"),
        "google_pubsub": provider(google, google_events, "Authorization", fetched_key, tamper=None, secrets=[], config={"audience": "sample-audience", "email": "push@acme.example", "certs": {GOOGLE_KEYS: json.dumps({"keys": [jwk]})}}),
        "keygen": provider(keygen, make.fields("data/id", "data/attributes/event"), "Keygen-Signature", ed25519_key(bytes.hex), 300),
        "livekit": provider(livekit, make.fields("id", "event"), "Authorization", named_key),
        "messagebird": provider(messagebird, make.fields("id", "type"), "MessageBird-Signature-JWT"),
        "monday": provider(monday, make.fields("event/triggerUuid", "event/type"), "Authorization", tolerance=300, tamper=None),
        "netlify": provider(netlify, netlify_events, "X-Webhook-Signature", cases=netlify_cases),
        "paddle_classic": provider(paddle_classic, lambda r: [(dict(r.form)["alert_id"], dict(r.form)["alert_name"])], "p_signature", spki_pem("rsa"), broken=False),
        "paypal": provider(paypal, make.fields("id", "event_type"), "PAYPAL-TRANSMISSION-SIG", fetched_key, secrets=[root], config={"webhook_id": "sample-webhook_id", "certs": {PAYPAL_CERT: cert}}),
        "plaid": provider(plaid, plaid_events, "Plaid-Verification", jwk_p256, 300),
        "sendgrid": provider(sendgrid, make.items("", "sg_event_id", "event"), "X-Twilio-Email-Event-Webhook-Signature", spki_base64("p256")),
        "telnyx": provider(telnyx, make.fields("data/id", "data/event_type"), "telnyx-signature-ed25519", ed25519_key(b64), 300),
        "travis": provider(travis, travis_events, "Signature", fetched_key, secrets=[], cases=travis_cases, config={"owner": "acme", "certs": {TRAVIS_KEY: json.dumps({"config": config})}}),
        "truelayer": provider(truelayer, make.fields("event_id", "type"), "Tl-Signature", p521_key, secrets=[], config={"domain": "truelayer.com", "certs": {TRUELAYER_KEYS: json.dumps({"keys": [tl_jwk]})}}),
        "vonage": provider(vonage, vonage_events, "Authorization", tolerance=300),
        "wise": provider(body_rsa("X-Signature-SHA256"), lambda r: [(r.get("X-Delivery-Id"), r.json["event_type"])], "X-Signature-SHA256", spki_pem("rsa"), config={"subscription": "01234567-89ab-cdef-0123-456789abcdef"}),
        "wix": provider(wix, wix_events, "body", spki_pem("rsa"), broken=False),
        "woovi": provider(body_rsa("x-webhook-signature"), woovi_events, "x-webhook-signature", spki_pem("rsa1024"), config={"company": "624f46f9e93f9f521c8308d7"}),
    }


def stone_cases(out, make, first, key, now):
    """What may be wrong with a ciphertext, and with the token in it."""
    name, provider, public = out.name, out.provider, load("rsa-pkcs1").public_key()

    def sample():
        r = make.sample(name, first, key, now - 2, "jwe")
        r.body = b'{"event_type":"cash_in_internal_transfer"}'
        return r

    def sent(token, **how):
        r = sample()
        r.body = jwe.envelope(jwe.seal(token, how.pop("public", public), **how))
        return r

    token = stone_token(sample(), key, now - 2)
    for case, how in (
        ("encrypted to another key", {"public": load("rsa-2").public_key()}),
        ("a content key of another length", {"content_key": b"k" * 16}),
        ("compressed", {"header": {"zip": "DEF"}}),
        ("an extension that must be understood", {"header": {"crit": ["exp"]}}),
        ("the algorithm is SHA-1", {"algorithm": "RSA-OAEP"}),
        ("the algorithm is another than it says", {"header": {"alg": "RSA-OAEP"}}),
        ("the old padding", {"header": {"alg": "RSA1_5"}}),
        ("the key is shared", {"header": {"alg": "dir"}}),
        ("another encryption", {"header": {"enc": "A128GCM"}}),
        ("a header that the tag does not cover", {"covered": b"e30"}),
    ):
        out.rejected(case, sent(token, **how), [])
    good = jwe.seal(token, public).split(".")
    for at, part in enumerate(("header", "key", "nonce", "ciphertext", "tag")):
        for how, changed in (("changed", jwe.flip(good[at])), ("missing", "")):
            r = sample()
            r.body = jwe.envelope(".".join([*good[:at], changed, *good[at + 1 :]]))
            out.rejected(f"{part} {how}", r, [])
    for case, body in (
        ("four parts", jwe.envelope(".".join(good[:4]))),
        ("six parts", jwe.envelope(".".join(good + ["AAAA"]))),
        ("the JSON form", json.dumps({"encrypted_body": {"protected": good[0], "encrypted_key": good[1]}}).encode()),
        ("not encrypted", jwe.envelope(token)),
        ("no field", b"{}"),
        ("no body", b""),
        ("no JSON", b"encrypted_body=x"),
    ):
        r = sample()
        r.body = body
        out.rejected(case, r, [])
    head, claims, signature = token.split(".")
    theirs = PRIVATE[fetched_key(name, 2)]
    inner = json.loads(sample().body) | {"iat": now}
    for case, text in (
        ("the token's signature changed", f"{head}.{claims}.{jwe.flip(signature)}"),
        ("the token's signature missing", f"{head}.{claims}."),
        ("the token is signed by another", jws(inner, theirs, "RS256", {"kid": "stone-1"})),
        ("the token is signed with the application's key", jws(inner, load("rsa-pkcs1"), "RS256", {"kid": "stone-1"})),
        ("the token without algorithm", jws(inner, "", "none", {"kid": "stone-1"})),
        ("the token expired", jws(inner | {"exp": now - 120}, PRIVATE[key], "RS256", {"kid": "stone-1"})),
        ("the token from the future", jws(inner | {"nbf": now + 120}, PRIVATE[key], "RS256", {"kid": "stone-1"})),
        ("a token of something else", jws({"sub": "1"}, PRIVATE[key], "RS256", {"kid": "stone-1"})),
        ("claims without a token", json.dumps(inner)),
        ("nothing inside", ""),
    ):
        out.rejected(case, sent(text), [])
    pinned, certs = json.dumps(public_jwk(PRIVATE[key], "stone-1")), provider.config
    provider.config, provider.secrets = None, [pinned]
    out.event("a pinned key", sent(token), [pinned])
    out.rejected("a pinned key, another's token", sent(jws(inner, theirs, "RS256", {"kid": "stone-1"})), [pinned])
    provider.secrets = []
    sandbox = {"environment": "sandbox", "certs": {STONE_KEYS.replace("//api", "//sandbox-api"): certs["certs"][STONE_KEYS]}}
    provider.config = sandbox
    out.event("the sandbox's keys", sent(token), [])
    provider.config = certs | {"environment": "sandbox"}
    out.rejected("the sandbox takes no other keys", sent(token), [])
    provider.config = certs
    usual = provider.decryption_keys
    provider.decryption_keys = [(KEYS / "rsa-2.pem").read_text(), *usual]
    out.event("two keys, the second opens it", sent(token), [])
    provider.decryption_keys = [(KEYS / "rsa-2.pem").read_text()]
    out.rejected("wrong decryption key", sent(token), [])
    provider.decryption_keys = usual


INSTALL_KEY = "https://connect-install-keys.atlassian.com/install-1"


def installation(out, make):
    """The call that brings the secret, signed with one of Atlassian's own keys."""
    now, private, provider = make.NOW, load("rsa-1"), out.provider
    pem = private.public_key().public_bytes(PEM, SPKI).decode()
    base = "https://hooks.example.com"
    usual = provider.config
    provider.config = {"base_url": base, "certs": {INSTALL_KEY: pem}}
    body = {"key": "acme-app", "clientKey": "sample-client", "sharedSecret": "not-a-real-shared-secret", "eventType": "installed"}
    good = {"iss": "sample-client", "iat": now, "exp": now + 180, "aud": [base]}

    def call(claims=None, body=body, key=private, kid="install-1", algorithm="RS256"):
        r = make.post(out.name, make.compact(body).encode(), [make.JSON])
        r.set("Authorization", "JWT " + jws(good | {"qsh": query_hash(r)} | (claims or {}), key, algorithm, {"kid": kid}))
        return r

    out.challenge("the installation", call(), [])
    out.challenge("the installation, the audience alone", call({"aud": base}), [])
    out.rejected("the installation, for another app", call({"aud": ["https://evil.example"]}), [])
    out.rejected("the installation, of another client", call({"iss": "other"}), [])
    out.rejected("the installation, expired", call({"exp": now - 120}), [])
    out.rejected("the installation, another query", call({"qsh": sha(b"other")}), [])
    out.rejected("the installation, another's key", call(key=load("rsa-2")), [])
    out.rejected("the installation, a key that is not at hand", call(kid="install-2"), [])
    out.rejected("the installation, its own secret", call(key="not-a-real-shared-secret", algorithm="HS256"), [])
    out.rejected("the installation, without a secret", call(body={k: v for k, v in body.items() if k != "sharedSecret"}), [])
    gone = body | {"eventType": "uninstalled"}
    out.event("the end of the installation", call(body=gone), [], [(sha(make.compact(gone).encode()), "uninstalled")])
    other = make.post(out.name, b'{"webhookEvent":"jira:issue_created"}', [make.JSON])
    other.set("Authorization", "JWT " + jws(good | {"qsh": query_hash(other)}, private, "RS256", {"kid": "install-1"}))
    out.rejected("an event with the installation's key", other, [])
    secret = body["sharedSecret"]
    event = make.sample(out.name, make.samples_of(out.name)[0], secret, now, "kept")
    event.set("Authorization", "JWT " + jws({"iss": "sample-client", "iat": now, "exp": now + 180, "qsh": query_hash(event)}, secret))
    out.event("an event with the secret that came", event, [secret])
    provider.config = usual


def more_cases(out, make):
    """Cases that only one of these senders has."""
    name, provider, now = out.name, out.provider, make.NOW
    key, other = provider.key(name, 1), provider.key(name, 2)
    first = make.samples_of(name)[0]
    request = make.signed(name, provider, first, key)

    def with_token(case, token, secrets, header=None, prefix="", verified=False, base=request):
        changed = base.copy()
        changed.set(header or provider.where[0], prefix + token)
        (out.event if verified else out.rejected)(case, changed, secrets)

    if name == "standardwebhooks":
        private = load("ed25519-1")
        raw = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        public = "whpk_" + b64(raw)
        head = f"{request.get('webhook-id')}.{request.get('webhook-timestamp')}.".encode()
        r = request.copy()
        r.set("webhook-signature", f"v1,{b64(bytes(32))} v1a,{b64(private.sign(head + r.body))}")
        out.event("version 1a", r, [public])
        out.event("version 1a beside a secret", r, [key, public])
        out.rejected("version 1a, a secret only", r, [key])
        bad = r.copy()
        bad.body += b" "
        out.rejected("version 1a, tampered", bad, [public])
        bad = r.copy()
        bad.set("webhook-signature", "v1," + b64(hmac.new(raw, head + r.body, hashlib.sha256).digest()))
        out.rejected("the public key as secret", bad, [public])
    if name == "discord":
        stamp = ("X-Signature-Timestamp", str(now - 2))
        for case, body, answer in (
            ("ping of interactions", b'{"application_id":"1","id":"2","token":"t","type":1,"version":1}', '{"type":1}'),
            ("ping of webhook events", b'{"version":1,"application_id":"1","type":0}', ""),
        ):
            ping = make.post(name, body, [make.JSON, stamp])
            out.rejected(f"{case}, unsigned", ping, [key])
            provider.sign(ping, key, now)
            out.challenge(case, ping, [key], answer)
            out.rejected(f"{case}, wrong key", ping, [other])
    if name == "livekit":
        secret, claims = key.split(":")[1], {"sha256": b64(hashlib.sha256(request.body).digest()), "iss": key.split(":")[0]}
        with_token("expired", jws(claims | {"exp": now - 120}, secret), [key])
        with_token("not valid yet", jws(claims | {"exp": now + 900, "nbf": now + 300}, secret), [key])
        with_token("no end", jws(claims, secret), [key])
        with_token("another issuer", jws(claims | {"exp": now + 300, "iss": "APIother"}, secret), [key])
        with_token("an algorithm that is not allowed", jws(claims | {"exp": now + 300}, secret, "HS512"), [key])
        with_token("no algorithm", jws(claims | {"exp": now + 300}, secret, "none"), [key])
        with_token("the secret with the other's name", jws(claims | {"exp": now + 300}, other.split(":")[1]), [key, other])
        with_token("an extension that must be understood", jws(claims | {"exp": now + 300}, secret, header={"crit": ["exp"]}), [key])
    if name == "netlify":
        with_token("another issuer", jws({"iss": "other", "sha256": sha(request.body)}, key), [key])
        with_token("no hash of the body", jws({"iss": "netlify"}, key), [key])
    if name == "plaid":
        claims = {"iat": now - 2, "request_body_sha256": sha(request.body)}
        # Whoever takes the public key for a shared secret would accept these.
        with_token("the public key as secret", jws(claims, key, "HS256", {"kid": "kid-1"}), [key])
        with_token("another key id", jws(claims, PRIVATE[key], "ES256", {"kid": "kid-9"}), [key])
        ended = json.dumps(json.loads(key) | {"expired_at": now - 60}, separators=(",", ":"))
        out.rejected("a key that has ended", request, [ended])
        keys = json.dumps({"keys": [json.loads(other), json.loads(key)]}, separators=(",", ":"))
        out.event("a set of keys", request, [keys])
    if name == "fusionauth":
        claims = {"request_body_sha256": b64(hashlib.sha256(request.body).digest())}
        pem = spki_pem("rsa")(name, 1)
        with_token("signed with RSA", jws(claims, PRIVATE[pem], "RS256"), [pem], verified=True)
        with_token("signed with HS512", jws(claims, key, "HS512"), [key], verified=True)
        with_token("the public key as secret", jws(claims, pem), [pem])
        with_token("the public key as secret, beside a real one", jws(claims, pem), [pem, key])
        pem = spki_pem("ed25519")(name, 1)
        with_token("signed with Ed25519", jws(claims, PRIVATE[pem], "EdDSA"), [pem], verified=True)
        pem = spki_pem("p256")(name, 1)
        with_token("signed with ECDSA", jws(claims, PRIVATE[pem], "ES256"), [pem], verified=True)
        pem, wrong = spki_pem("p521")(name, 1), spki_pem("p521")(name, 2)
        with_token("signed with ES512", jws(claims, PRIVATE[pem], "ES512"), [pem], verified=True)
        with_token("signed with ES512, wrong key", jws(claims, PRIVATE[pem], "ES512"), [wrong])
        with_token("signed with ES512, said to be ES256", jws(claims, PRIVATE[pem], "ES512", {"alg": "ES256"}), [pem])
        with_token("signed with ES512, another body", jws({"request_body_sha256": b64(bytes(32))}, PRIVATE[pem], "ES512"), [pem])
    if name == "monday":
        challenge = make.post(name, b'{"challenge":"3eZbrw1aBm2"}', [make.JSON])
        out.challenge("challenge", challenge, [key], '{"challenge":"3eZbrw1aBm2"}')
        with_token("for another url", jws({"aud": request.url + "x", "iat": now, "exp": now + 300}, key), [key])
        with_token("with the word Bearer", "Bearer " + request.get("Authorization"), [key], verified=True)
    if name == "messagebird":
        empty = make.post(name, b"", [], "?id=m1&status=delivered&statusDatetime=2026-01-05T10:00:00Z")
        provider.sign(empty, key, now - 2)
        out.event("a report in the query", empty, [key], [("sample", "message.delivered")])
        claims = {"iss": "MessageBird", "nbf": now, "exp": now + 60, "url_hash": sha(request.url.encode())}
        with_token("a body without a hash", jws(claims, key), [key])
        bad = request.copy()
        bad.url += "?x=1"
        out.rejected("another url", bad, [key])
    if name == "atlassian_connect":
        bad = request.copy()
        bad.url += "?x=1"
        out.rejected("another query", bad, [key])
        installation(out, make)
        claims = {"iss": "other", "iat": now, "exp": now + 180, "qsh": query_hash(request)}
        with_token("another installation", jws(claims, key), [key], prefix="JWT ")
    if name == "google_pubsub":
        for case, change in (
            ("for another audience", {"aud": "https://evil.example"}),
            ("of another account", {"email": "other@acme.example"}),
            ("of an account not verified", {"email_verified": False}),
            ("of another issuer", {"iss": "https://evil.example"}),
            ("expired", {"exp": now - 120}),
        ):
            bad = request.copy()
            google(bad, key, now - 2, **change)
            out.rejected(case, bad, [])
        bad = request.copy()
        bad.set("Authorization", "Bearer " + jws({"aud": "sample-audience"}, "x", "none"))
        out.rejected("no algorithm", bad, [])
    if name == "paypal":
        bad = request.copy()
        bad.set("PAYPAL-CERT-URL", "https://api.paypal.com.evil.example/v1/notifications/certs/CERT-1")
        out.rejected("a certificate of another host", bad, [])
        bad = request.copy()
        bad.set("PAYPAL-CERT-URL", PAYPAL_CERT + "2")
        out.rejected("a certificate that is not at hand", bad, [])
        bad = request.copy()
        bad.set("PAYPAL-AUTH-ALGO", "SHA1withRSA")
        out.rejected("another algorithm", bad, [])
        sender, issuer = load("rsa-1"), load("rsa-2")
        forged = {
            "a certificate of nobody": certificate("messageverificationcerts.paypal.com", "Other Root", sender.public_key(), sender, False),
            "a certificate of another name": certificate("evil.example", "Sample Root", sender.public_key(), issuer, False),
        }
        for case, cert in forged.items():
            out.rejected(case, request, [])
            out.lines[-1]["config"] = provider.config | {"certs": {PAYPAL_CERT: cert}}
        out.rejected("a certificate that has ended", request, [])
        out.lines[-1]["now"] = 2072000000
    if name == "amazon_sns":
        arn = provider.config["topic"]
        confirm = {"Type": "SubscriptionConfirmation", "MessageId": "m-1", "Token": "t0ken", "TopicArn": arn, "Message": "You have chosen to subscribe", "SubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=t0ken", "Timestamp": "2026-01-05T10:00:00.000Z", "SignatureVersion": "1", "Signature": "{{signature}}", "SigningCertURL": SNS_CERT}

        def sent(**changes):
            r = make.post(name, json.dumps(confirm | changes).encode(), [("Content-Type", "text/plain; charset=UTF-8")])
            sns(r, key, now)
            return r

        out.challenge("confirmation", sent(), [], "")
        out.rejected("confirmation of another topic", sent(TopicArn=arn + "2"), [])
        out.rejected("confirmation at another host", sent(SubscribeURL="https://evil.example/?Token=t0ken"), [])
        out.rejected("a certificate of another host", sent(SigningCertURL="https://evil.example/SimpleNotificationService-1.pem"), [])
        out.rejected("unsigned", make.post(name, json.dumps(confirm).replace("{{signature}}", "").encode(), [make.JSON]), [])
        bad = request.copy()
        bad.body = re.sub(rb'"Signature" : "[^"]*",\s*', b"", bad.body)
        assert bad.body != request.body
        out.rejected("missing signature", bad, [])
        out.rejected("another version", sent(SignatureVersion="3"), [])
        for case, value in (("malformed signature", b"garbage"), ("empty signature", b"")):
            bad = request.copy()
            bad.body = re.sub(rb'("Signature" : ")[^"]*', lambda m: m[1] + value, bad.body)
            out.rejected(case, bad, [])
        theirs = make.sample(name, "Notification", key, now)
        theirs.body = theirs.body.replace(arn.encode(), b"arn:aws:sns:us-east-1:999999999999:theirs")
        sns(theirs, key, now)
        out.rejected("a genuine message of another topic", theirs, [])
    if name == "truelayer":
        bad = request.copy()
        truelayer(bad, key, now, path="/webhooks/other")
        out.rejected("another path", bad, [])
        bad = request.copy()
        bad.set("X-Tl-Webhook-Timestamp", "2020-01-01T00:00:00Z")
        out.rejected("another header", bad, [])
        bad.drop("X-Tl-Webhook-Timestamp")
        out.rejected("no header", bad, [])
        bad = request.copy()
        head, _, signature = bad.get("Tl-Signature").split(".")
        bad.set("Tl-Signature", f"{head}.{b64url(bad.body)}.{signature}")
        out.rejected("a token with a payload", bad, [])
        good = request.copy()
        truelayer(good, key, now, names="")
        out.event("no header signed", good, [])
        bad = request.copy()
        truelayer(bad, key, now, algorithm="none")
        out.rejected("no algorithm", bad, [])
    if name == "ebanx":
        key = spki_pem("rsa")(name, 1)
        r = make.signed(name, out.provider, "payment_status_change.update", key)
        value = r.get("X-Signature-Content")
        r.drop("X-Signature-Content")
        r.set("X-SignatureContent", value)
        out.event("as payouts spell it", r, [key])
    if name == "travis":
        theirs = make.post(name, b"payload=%7B%22id%22%3A1%2C%22state%22%3A%22passed%22%2C%22repository%22%3A%7B%22owner_name%22%3A%22other%22%7D%7D", [make.FORM])
        travis(theirs, key, now)
        out.rejected("a genuine message of another owner", theirs, [])
    if name == "wise":
        theirs = request.copy()
        theirs.body = theirs.body.replace(b"01234567-89ab", b"99999999-89ab")
        provider.sign(theirs, key, now)
        out.rejected("a genuine message of another subscription", theirs, [key])
        # The example of https://github.com/transferwise/digital-signatures-examples (verify-signature.js): the sandbox's key.
        body = b'{"data":{"resource":{"id":49983981,"profile_id":16055450,"account_id":14124090,"type":"transfer"},"current_state":"incoming_payment_waiting","previous_state":null,"occurred_at":"2021-08-23T10:12:50Z"},"subscription_id":"90aa8e14-4ef1-4a56-861c-f3c9cde097ea","event_type":"transfers#state-change","schema_version":"2.0.0","sent_at":"2021-08-23T10:12:50Z"}'
        shown = make.post(name, body, [make.JSON, ("X-Signature-SHA256", WISE_SIGNATURE)])
        there = {"subscription": "90aa8e14-4ef1-4a56-861c-f3c9cde097ea"}
        out.event("the documented example", shown, [WISE_SANDBOX], [(sha(body), "transfers#state-change")])
        out.lines[-1]["config"] = there
        out.rejected("the documented example, of another subscription", shown, [WISE_SANDBOX])
        out.rejected("the documented example, wrong key", shown, [key])
        out.lines[-1]["config"] = there
        bad = shown.copy()
        bad.body = body.replace(b"49983981", b"49983982")
        out.rejected("the documented example, tampered", bad, [WISE_SANDBOX])
        out.lines[-1]["config"] = there
        test = make.post(name, b'{"data":{},"subscription_id":"00000000-0000-0000-0000-000000000000"}', [make.JSON, ("X-Test-Notification", "true")])
        out.challenge("test notification, unsigned", test, [key])
        for case, value in (("false", "false"), ("empty", "")):
            test.set("X-Test-Notification", value)
            out.rejected(f"test notification, {case}", test, [key])
    if name == "woovi":
        r = make.sample(name, first, key, now, "hmac")
        secret = "not-a-real-secret"
        r.set("X-OpenPix-Signature", b64(hmac.new(secret.encode(), r.body, hashlib.sha1).digest()))
        out.event("the secret of the webhook", r, [secret])
        out.event("both are registered", r, [key, secret])
        theirs = make.sample(name, first, key, now, "theirs")
        theirs.body = theirs.body.replace(b"624f46f9e93f9f521c8308d7", b"624f46f9e93f9f521c8308d8")
        body_rsa("x-webhook-signature")(theirs, key, now)
        out.rejected("genuine, of another company", theirs, [key])
        out.rejected("genuine, and no company is set", request, [key])
        out.lines[-1] |= {"config": {}}
        out.event("the secret of the webhook, and no company is set", r, [secret])
        out.lines[-1] |= {"config": {}}
        bad = r.copy()
        bad.set("X-OpenPix-Signature", b64(hmac.new(key.encode(), r.body, hashlib.sha1).digest()))
        out.rejected("the public key as secret", bad, [key])
        out.challenge("test", make.post(name, b'{"data_criacao":"2026-01-05","evento":"teste_webhook"}', [make.JSON]), [key])
        test = b'{"data_criacao":"2026-01-05","evento":"teste_webhook","event":"OPENPIX:CHARGE_COMPLETED"}'
        out.challenge("test that names the event", make.post(name, test, [make.JSON]), [key])
        out.rejected("the event without the word of the test", make.post(name, b'{"event":"OPENPIX:CHARGE_COMPLETED"}', [make.JSON]), [key])
    if name == "ebay":
        ask = make.get(name, "?challenge_code=a8628072-3d33")
        text = "a8628072-3d33" + provider.config["verification_token"] + "https://hooks.example.com/webhooks/ebay"
        out.challenge("challenge", ask, [key], json.dumps({"challengeResponse": sha(text.encode())}))
        bad = request.copy()
        bad.set("X-EBAY-SIGNATURE", b64(b'{"alg":"none","signature":""}'))
        out.rejected("an empty signature inside", bad, [key])
        # The example of https://github.com/eBay/event-notification-nodejs-sdk (test/test.json, VALID), with the key as the
        # API gives it.
        shown = make.post(name, make.compact(EBAY_MESSAGE).encode(), [make.JSON, ("X-EBAY-SIGNATURE", EBAY_SIGNATURE)])
        out.event("the documented example", shown, [EBAY_KEY])
        out.rejected("the documented example, wrong key", shown, [key])
        bad = shown.copy()
        bad.body = bad.body.replace(b'"publishAttemptCount":1', b'"publishAttemptCount":2')
        out.rejected("the documented example, tampered", bad, [EBAY_KEY])
    if name == "paddle_classic":
        bad = request.copy()
        bad.body = re.sub(rb"&p_signature=.*", b"", bad.body)
        out.rejected("missing signature", bad, [key])
        bad.body += b"&p_signature="
        out.rejected("empty signature", bad, [key])
        bad.body += b"garbage"
        out.rejected("malformed signature", bad, [key])
        bad = request.copy()
        bad.body += b"&Extra=1"
        out.rejected("an added field", bad, [key])
    if name == "stone":
        stone_cases(out, make, first, key, now)
    if name == "wix":
        claims = json.loads(make.sample(name, first, key, now).body)
        for case, token in (
            ("expired", jws(claims | {"iat": now - 9000, "exp": now - 120}, PRIVATE[key], "RS256")),
            ("no algorithm", jws(claims | {"exp": now + 60}, "x", "none")),
            ("the public key as secret", jws(claims | {"exp": now + 60}, key)),
            ("claims that are no token", json.dumps(claims)),
            ("malformed signature", jws(claims | {"exp": now + 60}, PRIVATE[key], "RS256").rpartition(".")[0] + ".garbage"),
            ("missing signature", jws(claims | {"exp": now + 60}, PRIVATE[key], "RS256").rpartition(".")[0] + "."),
            ("empty", ""),
        ):
            out.rejected(case, make.post(name, token.encode(), [("Content-Type", "text/plain")]), [key])
    if name == "keygen":
        bad = request.copy()
        bad.url += "?x=1"
        out.rejected("another url", bad, [key])
        bad = request.copy()
        bad.set("Date", "Mon, 05 Jan 2026 09:59:00 GMT")
        out.rejected("another date", bad, [key])
