#!/usr/bin/env python3
"""Signs the cases of providers/*/vectors.jsonl again with the senders' own Python libraries, or has those judge them,
and keeps the results as further lines, `sdk_python …`. Not needed to run the tests: it is for changing vectors.

    pip install -r tests/vectors/sdk-requirements.txt
    pip install -r tests/vectors/paypal-requirements.txt    in an environment of its own: it wants an old OpenSSL binding
    python3 tests/vectors/sdk.py            writes the lines and lists what a library sees otherwise
    python3 tests/vectors/sdk.py stripe …   only these

Deterministic: the clock stands at each line's `now`, and only libraries whose signatures are functions of the request
sign.
"""

import base64
import datetime
import json
import sys
import time
import urllib.parse
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "providers"
NOW = [0]
RealDatetime = datetime.datetime


class Datetime(RealDatetime):
    @classmethod
    def now(cls, tz=None):
        return RealDatetime.fromtimestamp(NOW[0], tz)

    @classmethod
    def utcnow(cls):
        return RealDatetime.fromtimestamp(NOW[0], datetime.timezone.utc).replace(tzinfo=None)


class Fields(dict):
    """Fields of a form as the usual frameworks hand them over."""

    def __getitem__(self, name):
        return super().__getitem__(name)[-1]

    def getlist(self, name):
        return super().__getitem__(name)


class Request:
    def __init__(self, line, secret):
        self.line, self.secret, self.url = line, secret, line["url"]
        self.raw = base64.b64decode(line["body_base64"])
        self.headers = {}
        for name, value in line["headers"]:
            self.headers.setdefault(name.lower(), value)

    @property
    def body(self):
        return self.raw.decode()

    def __getitem__(self, name):
        return self.headers.get(name, "")

    @property
    def form(self):
        if not self["content-type"].startswith("application/x-www-form-urlencoded"):
            return None
        return Fields(urllib.parse.parse_qs(self.body, keep_blank_values=True))


def at(request):
    return request.line["now"] - 2


# --- the libraries: package, sign (gives a header) or None, verify (raises, or gives false, where it refuses) ---------


def stripe_sign(r):
    import stripe
    value = stripe.WebhookSignature.generate_signature_header(r.body, r.secret, timestamp=at(r))
    return {"stripe-signature": value}


def stripe_verify(r):
    import stripe
    return stripe.WebhookSignature.verify_header(r.body, r["stripe-signature"], r.secret, 300)


def standard(module):
    def key(r):
        return import_module(module).Webhook(r.secret.removeprefix("v1,"))

    def family(r):
        return "svix" if "svix-id" in r.headers else "webhook"

    def sign(r):
        name = family(r)
        stamp = RealDatetime.fromtimestamp(int(r[f"{name}-timestamp"]), datetime.timezone.utc)
        return {f"{name}-signature": key(r).sign(r[f"{name}-id"], stamp, r.body)}

    def verify(r):
        key(r).verify(r.body, r.headers)
        return True

    return module, sign, verify


def twilio_algorithm(r):
    from twilio.request_validator import get_signature_algorithm
    return get_signature_algorithm(r["x-twilio-webhooks-signature-settings"])


def twilio_sign(r):
    from twilio.request_validator import RequestValidator
    return {"x-twilio-signature": RequestValidator(r.secret).compute_signature(r.url, r.form or {}, twilio_algorithm(r))}


def twilio_verify(r):
    from twilio.request_validator import RequestValidator
    params = r.form if r.form is not None else r.body
    if r.form is None and "bodySHA256" not in r.url:
        return False
    return RequestValidator(r.secret).validate(r.url, params, r["x-twilio-signature"], twilio_algorithm(r))


def razorpay_verify(r):
    import razorpay
    razorpay.Client(auth=("a", "b")).utility.verify_webhook_signature(r.body, r["x-razorpay-signature"], r.secret)
    return True


def workos_verify(r):
    from workos import WorkOSClient
    WorkOSClient(api_key="sk", client_id="c").webhooks.verify_header(event_body=r.raw, event_signature=r["workos-signature"], secret=r.secret, tolerance=180)
    return True


def pusher_verify(r):
    import pusher
    client = pusher.Pusher(app_id="1", key=r["x-pusher-key"], secret=r.secret, cluster="x")
    return client.validate_webhook(r["x-pusher-key"], r["x-pusher-signature"], r.body) is not None


def cloudinary_verify(r):
    import cloudinary
    from cloudinary.utils import verify_notification_signature
    given = r["x-cld-signature"]
    cloudinary.config(api_secret=r.secret)
    return verify_notification_signature(r.body, int(r["x-cld-timestamp"]), given, algorithm="sha1" if len(given) == 40 else "sha256")


def line_verify(r):
    from linebot.v3.webhook import SignatureValidator
    return SignatureValidator(r.secret).validate(r.body, r["x-line-signature"])


def slack_sign(r):
    from slack_sdk.signature import SignatureVerifier
    return {"x-slack-signature": SignatureVerifier(r.secret).generate_signature(timestamp=r["x-slack-request-timestamp"], body=r.raw)}


def slack_verify(r):
    from slack_sdk.signature import SignatureVerifier
    return SignatureVerifier(r.secret).is_valid(r.raw, r["x-slack-request-timestamp"], r["x-slack-signature"])


def adyen_verify(r):
    from Adyen import util
    found = json.loads(r.body).get("notificationItems")
    if found is None:
        return util.is_valid_hmac_payload(r["hmacsignature"], r.secret, r.raw)
    return bool(found) and all(util.is_valid_hmac_notification(item["NotificationRequestItem"], r.secret) for item in found)


def adyen_platforms_sign(r):
    from Adyen import util
    value = util.generate_payload_sig(r.raw, r.secret)
    return {"hmacsignature": value.decode() if isinstance(value, bytes) else value}


def adyen_platforms_verify(r):
    from Adyen import util
    return util.is_valid_hmac_payload(r["hmacsignature"], r.secret, r.raw)


def sendgrid_verify(r):
    from sendgrid.helpers.eventwebhook import EventWebhook
    head = "x-twilio-email-event-webhook-"
    return EventWebhook(r.secret).verify_signature(r.body, r[head + "signature"], r[head + "timestamp"])


def discord_verify(r):
    from discord_interactions import verify_key
    return verify_key(r.raw, r["x-signature-ed25519"], r["x-signature-timestamp"], r.secret)


def openai_verify(r):
    from openai import OpenAI
    OpenAI(api_key="not-real").webhooks.verify_signature(r.body, r.headers, secret=r.secret)
    return True


def paypal_verify(r):
    from OpenSSL import crypto
    from paypalrestsdk.notifications import WebhookEvent
    certs, store = r.line["config"]["certs"], crypto.X509Store()
    for root in r.line["secrets"]:
        store.add_cert(crypto.load_certificate(crypto.FILETYPE_PEM, root.encode()))
    # In place of what it would fetch, and of the roots that it ships.
    WebhookEvent._get_cert = staticmethod(lambda url: crypto.load_certificate(crypto.FILETYPE_PEM, certs[url].encode()))
    WebhookEvent._get_certificate_store = classmethod(lambda cls: store)
    head = "paypal-transmission-"
    found = [r[head + "id"], r[head + "time"], r.line["config"]["webhook_id"], r.body, r["paypal-cert-url"], r[head + "sig"]]
    return WebhookEvent.verify(*found, r["paypal-auth-algo"])


def mailgun_verify(r):
    from mailgun.security import SecurityGuard
    signed = json.loads(r.body)["signature"]
    # An event of a subaccount is signed by its parent too.
    found = [signed["signature"], signed.get("parent-signature", "")]
    return any(SecurityGuard.verify_webhook(r.secret, signed["token"], signed["timestamp"], value) for value in found)


LIBRARIES = {
    "mailgun": ("mailgun", None, mailgun_verify),
    "paypal": ("paypalrestsdk", None, paypal_verify),
    "stripe": ("stripe", stripe_sign, stripe_verify),
    "svix": standard("svix"),
    "clerk": standard("svix"),
    "resend": standard("svix"),
    "standardwebhooks": standard("standardwebhooks"),
    "replicate": standard("standardwebhooks"),
    "supabase": standard("standardwebhooks"),
    "twilio": ("twilio", twilio_sign, twilio_verify),
    "razorpay": ("razorpay", None, razorpay_verify),
    "workos": ("workos", None, workos_verify),
    "pusher": ("pusher", None, pusher_verify),
    "cloudinary": ("cloudinary", None, cloudinary_verify),
    "line": ("line-bot-sdk", None, line_verify),
    "slack": ("slack_sdk", slack_sign, slack_verify),
    "adyen": ("Adyen", None, adyen_verify),
    "adyen_platforms": ("Adyen", adyen_platforms_sign, adyen_platforms_verify),
    "sendgrid": ("sendgrid", None, sendgrid_verify),
    "discord": ("discord-interactions", None, discord_verify),
    "openai": ("openai", None, openai_verify),
}


def judge(verify, line):
    for secret in line["secrets"] or [None]:
        try:
            if verify(Request(line, secret)) is not False:
                return True
        except Exception as error:  # Each library has its own.
            if "--why" in sys.argv:
                print("  ", line["case"], type(error).__name__, str(error)[:100])
    return False


def write(line):
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n"


def main(names):
    time.time = lambda: float(NOW[0])
    datetime.datetime = Datetime
    differences = 0
    for name, (package, sign, verify) in LIBRARIES.items():
        path = ROOT / name / "vectors.jsonl"
        if (names and name not in names) or not path.exists():
            continue
        try:
            says = f"PyPI {package} {version(package)}"
        except PackageNotFoundError:
            print(f"{name}: {package} is not installed; its lines stay as they are")
            continue
        lines = [json.loads(text) for text in path.read_text().split("\n") if text]
        ours = [line for line in lines if line.get("basis") != "sdk" and line["expect"]["status"] != "challenge" and "version 1a" not in line["case"]]
        result, refusal = [], False
        for line in ours:
            NOW[0] = line["now"]
            said = judge(verify, line)
            if said != line["expect"]["verified"]:
                differences += 1
                print(f"{name}: {line['case']}: {says} {'takes' if said else 'refuses'} it")
            new = line | {"case": f"sdk_python {line['case']}", "basis": "sdk"}
            if line["case"].startswith("sample ") and line["expect"]["verified"]:
                if sign:
                    signed = sign(Request(line, line["secrets"][0]))
                    new["headers"] = [[key, signed.get(key.lower(), value)] for key, value in line["headers"]]
                    if new["headers"] != line["headers"]:
                        differences += 1
                        print(f"{name}: {line['case']}: {says} signs otherwise")
                    result.append(new | {"made_by": says, "checked_by": says})
                elif said:
                    result.append(new | {"checked_by": says})
            elif line["case"].startswith("tampered ") and not said and not refusal:
                refusal = True
                result.append(new | {"checked_by": says})
        kept = [line for line in lines if not line["case"].startswith("sdk_python ")]
        path.write_text("".join(write(line) for line in kept + result))
        print(f"{name}: {len(result)} lines of {says}, {len(ours)} cases judged")
    print(f"{differences} differences")


if __name__ == "__main__":
    main([argument for argument in sys.argv[1:] if not argument.startswith("-")])
