"""Payments, shops and parcels."""

import base64
import re

from base import *


def keyed(header, encode, decode):
    return lambda r, key, at: r.set(header, encode(mac(decode(key), r.body)))


def adyen_events(r):
    body = r.json
    parts = [body["type"], body["data"]["id"], body["timestamp"], text(body["data"].get("sequenceNumber"))]
    return [(":".join(part for part in parts if part), body["type"])]


def braintree_key(private):
    """Of a pair of keys, or of the SHA-1 alone."""
    return hashlib.sha1(private.split(":")[1].encode()).digest() if ":" in private else bytes.fromhex(private)


def braintree(r, key, at):
    payload = dict(r.form)["bt_payload"]
    pairs = "other_key|" + bytes(20).hex() + "&sample_key|" + mac(braintree_key(key), payload, "sha1").hex()
    r.body += b"&bt_signature=" + urllib.parse.quote(pairs, safe="").encode()


def braintree_events(r):
    payload = dict(r.form)["bt_payload"]
    kind = re.search(rb"<kind>([a-z_]+)</kind>", base64.b64decode(payload))
    return [(sha(payload), kind.group(1).decode() if kind else "notification")]


def braintree_cases(c):
    payload = "c2FtcGxl"
    value = "sample_key|" + mac(braintree_key(c.key), payload + "\n", "sha1").hex()
    r = c.form([("bt_payload", payload), ("bt_signature", value)])
    c.event("signed with a newline", r, [c.key])
    c.rejected("signed with a newline, wrong key", r, [c.other])
    r = c.form([("bt_payload", payload), ("bt_signature", value.split("|")[1])])
    c.rejected("no public key", r, [c.key])
    private = "not-a-real-private-key"
    derived = hashlib.sha1(private.encode()).hexdigest()
    value = "sample_key|" + hmac.new(hashlib.sha1(private.encode()).digest(), payload.encode(), hashlib.sha1).hexdigest()
    pair = "sample_key:" + private
    c.event("the pair of keys", c.form([("bt_payload", payload), ("bt_signature", value)]), [pair])
    c.rejected("the pair of keys, another's signature", c.form([("bt_payload", payload), ("bt_signature", value.replace("sample", "other"))]), [pair])
    challenge = "20f9f8ed05f77439fe955c977e4c8a53"
    answer = hmac.new(hashlib.sha1(private.encode()).digest(), challenge.encode(), hashlib.sha1).hexdigest()
    c.challenge("the challenge", c.get(f"?bt_challenge={challenge}"), [pair], "sample_key|" + answer)
    for case, text in (("no hex", "20f9f8ed05f77439fe955c977e4c8a5x"), ("base64", "PG5vdGlmaWNhdGlvbj4="), ("an empty one", "")):
        c.rejected(f"the challenge, {case}", c.get("?bt_challenge=" + urllib.parse.quote(text)), [pair])
    c.rejected("an answered challenge as an event", c.form([("bt_payload", challenge), ("bt_signature", "sample_key|" + answer)]), [pair])
    c.event("a key from its private key", c.form([("bt_payload", payload), ("bt_signature", value)]), [derived])


def btcpay_events(r):
    return [(r.json.get("originalDeliveryId") or r.json["deliveryId"], r.json["type"])]


def btcpay_cases(c):
    r = c.sign(c.post({"deliveryId": "d2", "orignalDeliveryId": "d1", "type": "InvoiceCreated", "timestamp": NOW}))
    c.event("an old version's spelling", r, [c.key], [("d1", "InvoiceCreated")])


def qonto_cases(c):
    r = c.post({"id": "00000000-0000-4000-8000-000000000009", "event_type": "registrations.pending", "resource_id": "r1"})
    r.set("Qonto-SHA256-Signature", mac(c.key, r.body).hex())
    c.event("the Onboarding API", r, [c.key], [("00000000-0000-4000-8000-000000000009", "registrations.pending")])
    c.rejected("the Onboarding API, wrong key", r, [c.other])
    # The example of Qonto's own page.
    shown = c.post(b'{"id":"75341dcb-0376-474d-97d7-d2c03ff3973c","event_type":"registrations.pending","resource_type":"registration","resource_id":"525817f7-93e8-4f31-a83d-20319778b4b0","created_at":"2022-08-29T13:17:32Z"}')
    shown.set("Qonto-SHA256-Signature", "b0d249e653f1310fa5b7f26d5682548afa1799353b92fcafd4cacbd90312023e")
    c.event("the documented example", shown, ["secret_key"], [("75341dcb-0376-474d-97d7-d2c03ff3973c", "registrations.pending")])


def recurly_cases(c):
    t, good = c.request.get("recurly-signature").split(",")
    for case, header in (("two signatures, the first holds", f"{t},{good},{bytes(32).hex()}"), ("two signatures, the second holds", f"{t},{bytes(32).hex()},{good}")):
        r = c.request.copy()
        r.set("recurly-signature", header)
        c.event(case, r, [c.key])
    bad = c.request.copy()
    bad.set("recurly-signature", good)
    c.rejected("no time", bad, [c.key])
    bad = sample(c.name, samples_of(c.name)[0], c.key, NOW, "seconds")
    bad.set("recurly-signature", f"{NOW},{mac(c.key, f'{NOW}.'.encode() + bad.body).hex()}")
    c.rejected("seconds", bad, [c.key])


def shippo_events(r):
    data = r.json["data"]
    if "object_updated" in data:
        return [(f"{r.json['event']}:{data['object_id']}:{data['object_updated']}", r.json["event"])]
    return [(f"{r.json['event']}:{sha(r.body)}", r.json["event"])]


def shippo_cases(c):
    r = sample(c.name, "track_updated", c.key, NOW, "token")
    r.set_query("token", c.key)
    c.event("a token in the URL", r, [c.key])
    c.rejected("a token in the URL, wrong", r, [c.other])


def xero_events(r):
    return [(f"{e['tenantId']}:{e['resourceId']}:{e['eventType']}:{e['eventDateUtc']}", f"{e['eventCategory']}.{e['eventType']}") for e in r.json["events"]]


def xero_cases(c):
    empty = c.sign(c.post(b'{"events":[],"firstEventSequence":0,"lastEventSequence":0,"entropy":"S0m3r4Nd0mt3xt"}'))
    c.event("intent to receive", empty, [c.key], [])
    c.rejected("intent to receive, wrongly signed", empty, [c.other])


def klarna_cases(c):
    r = c.request.copy()
    r.set("Klarna-Signature", b64(mac(c.key, r.body)))
    c.event("in base64", r, [c.key])
    c.rejected("in base64, wrong key", r, [c.other])


PROVIDERS = {
    "adyen_platforms": Provider(keyed("HmacSignature", b64, bytes.fromhex), adyen_events, "HmacSignature", lambda n, i: hexadecimal(64)(n, i).upper()),
    "braintree": Provider(braintree, braintree_events, "form:bt_signature", lambda name, n: f"sample_key:not-a-real-private-key-{n}", tamper="payload", cases=braintree_cases),
    "btcpay": Provider(body_hex("BTCPay-Sig", "sha256="), btcpay_events, "BTCPay-Sig", cases=btcpay_cases),
    "coinbase_commerce": Provider(body_hex("X-CC-Webhook-Signature"), fields("event/id", "event/type"), "X-CC-Webhook-Signature", lambda n, i: str(uuid.UUID(int=i)), answer=""),
    "creem": Provider(body_hex("creem-signature"), fields("id", "eventType"), "creem-signature", prefixed("whsec_"), answer=""),
    "easypost": Provider(body_hex("X-Hmac-Signature", "hmac-sha256-hex="), fields("id", "description"), "X-Hmac-Signature"),
    "klarna": Provider(body_hex("Klarna-Signature"), fields("metadata/event_id", "metadata/event_type"), "Klarna-Signature", cases=klarna_cases),
    "qonto": Provider(stamped("X-Qonto-Signature", "t={t},v1={s}"), fields("id", "type"), "X-Qonto-Signature", tolerance=300, cases=qonto_cases),
    "razorpay": Provider(body_hex("X-Razorpay-Signature"), header_id("x-razorpay-event-id", "event"), "X-Razorpay-Signature"),
    "recurly": Provider(stamped("recurly-signature", "{t},{s}", scale=1000), lambda r: [(r.json["id"], f"{r.json['object_type']}.{r.json['event_type']}")], "recurly-signature", tolerance=300, cases=recurly_cases),
    "shippo": Provider(stamped("Shippo-Auth-Signature", "t={t},v1={s}"), shippo_events, "Shippo-Auth-Signature", tolerance=300, cases=shippo_cases),
    "squarespace": Provider(keyed("Squarespace-Signature", bytes.hex, bytes.fromhex), fields("id", "topic"), "Squarespace-Signature", hexadecimal(64)),
    "xero": Provider(body_base64("x-xero-signature"), xero_events, "x-xero-signature", whsec(""), answer="", cases=xero_cases),
}
