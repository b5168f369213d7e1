#!/usr/bin/env python3
"""Writes providers/*/vectors.jsonl: signed requests that must verify, and forged ones that must not.

Every provider's algorithm is written here a second time, from its documentation and without reading adapter.toml, so
that a mistake in a folder and a mistake here would have to be the same to go unnoticed. The bodies are the folder's
samples. Nothing depends on the clock or on chance: the same input gives the same files.

    python3 tests/vectors/make.py            writes all files
    python3 tests/vectors/make.py --check    fails if one of them would change
    python3 tests/vectors/make.py stripe …   only these
"""

import hashlib
import json
import re
import sys
import urllib.parse
import uuid

try:
    import public
except ImportError as missing:
    public = None
    print(f"senders with public keys are left out: {missing} (pip install cryptography==48.0.0)")

import apps
import brazil
import further
import payments
import platforms
from base import *

# --- the algorithms -------------------------------------------------------------------------------------------------


def slack(r, key, at):
    head = f"v0:{r.get('X-Slack-Request-Timestamp')}:".encode()
    r.set("X-Slack-Signature", "v0=" + mac(key, head + r.body).hex())


def zoom(r, key, at):
    head = f"v0:{r.get('x-zm-request-timestamp')}:".encode()
    r.set("x-zm-signature", "v0=" + mac(key, head + r.body).hex())


def mercadopago(r, key, at):
    resource, request = r.query.get("data.id"), r.get("x-request-id")
    manifest = (f"id:{resource.lower()};" if resource else "") + (f"request-id:{request};" if request else "")
    r.set("x-signature", f"ts={at},v1={mac(key, f'{manifest}ts:{at};').hex()}")


def twilio(r, key, at):
    r.set("X-Twilio-Signature", b64(mac(key, r.url + sorted_fields(r), "sha1")))


def mandrill(r, key, at):
    r.set("X-Mandrill-Signature", b64(mac(key, r.url + sorted_fields(r), "sha1")))


def mailgun(r, key, at):
    signed = r.json["signature"]
    value = mac(key, signed["timestamp"] + signed["token"]).hex()
    r.body = r.body.replace(b"{{signature}}", value.encode())


def adyen(r, key, at):
    raw = bytes.fromhex(key)
    if "notificationItems" not in r.json:
        r.set("HmacSignature", b64(mac(raw, r.body)))
        return
    for wrapped in r.json["notificationItems"]:
        item = wrapped["NotificationRequestItem"]
        fields = [
            item.get("pspReference", ""),
            item.get("originalReference", ""),
            item.get("merchantAccountCode", ""),
            item.get("merchantReference", ""),
            str(item.get("amount", {}).get("value", "")),
            item.get("amount", {}).get("currency", ""),
            item.get("eventCode", ""),
            item.get("success", ""),
        ]
        r.body = r.body.replace(b"{{signature}}", b64(mac(raw, ":".join(fields))).encode(), 1)


def hubspot(r, key, at):
    message = f"{r.method}{r.url}".encode() + r.body + r.get("X-HubSpot-Request-Timestamp").encode()
    r.set("X-HubSpot-Signature-v3", b64(mac(key, message)))


def twitch(r, key, at):
    head = r.get("Twitch-Eventsub-Message-Id") + r.get("Twitch-Eventsub-Message-Timestamp")
    r.set("Twitch-Eventsub-Message-Signature", "sha256=" + mac(key, head.encode() + r.body).hex())


def square(r, key, at):
    r.set("x-square-hmacsha256-signature", b64(mac(key, r.url.encode() + r.body)))


def meta(r, key, at):
    r.set("X-Hub-Signature", "sha1=" + mac(key, r.body, "sha1").hex())
    r.set("X-Hub-Signature-256", "sha256=" + mac(key, r.body).hex())


def contentful(r, key, at):
    names = r.get("x-contentful-signed-headers").split(",")
    headers = ";".join(f"{name}:{r.get(name)}" for name in sorted(names))
    query = urllib.parse.urlsplit(r.url).query
    escape = lambda text: urllib.parse.quote(text, safe="-_.!~*'()")
    path = r.path + ("?" + escape(escape(query)) if query else "")
    r.set("x-contentful-signature", mac(key, "\n".join([r.method, path, headers, ""]).encode() + r.body).hex())


# --- what the events are called -------------------------------------------------------------------------------------


def slack_events(r):
    form = dict(r.form) if (r.get("Content-Type") or "").startswith("application/x-www") else {}
    if "command" in form:
        return [(form["trigger_id"], form["command"])]
    body = json.loads(form["payload"]) if "payload" in form else r.json
    return [(body.get("event_id") or body["trigger_id"], at_path(body, "event/type") or body["type"])]


def github_events(r):
    return [(r.get("X-GitHub-Delivery"), r.get("X-GitHub-Event"))]


def twilio_events(r):
    form = dict(r.form)
    if "CallSid" in form:
        return [(form["CallSid"], "call." + form["CallStatus"])]
    return [(form["MessageSid"], "message." + form.get("MessageStatus", form["SmsStatus"]))]


def mandrill_events(r):
    return [(i["_id"], i["event"]) for i in json.loads(dict(r.form)["mandrill_events"])]


def asana_events(r):
    out = []
    for event in r.json["events"]:
        name = f"{at_path(event, 'user/gid') or ''}:{event['resource']['gid']}:{event['action']}:{event['created_at']}"
        out.append((f"{name}:{sha(compact(event))}", f"{event['resource']['resource_type']}.{event['action']}"))
    return out


def asana_cases(c):
    change = {"user": {"gid": "1"}, "resource": {"gid": "2", "resource_type": "task"}, "action": "changed", "created_at": "2026-01-05T10:00:00.000Z"}
    events = [change | {"change": {"field": "custom_fields", "action": "changed", "new_value": {"gid": gid}}} for gid in ("7", "8")]
    c.apart(("two custom fields in one call", c.sign(c.post({"events": events}))))


FIGMA_LISTS = [f"{what}_{kind}" for kind in ("components", "styles", "variables") for what in ("created", "modified", "deleted")]


def figma_events(r):
    body = r.json
    parts = [body["webhook_id"], body["event_type"], body["timestamp"]]
    if body["event_type"] == "LIBRARY_PUBLISH":
        # A list that is absent counts as the method's name, which no list is.
        lists = [compact(body[name]) if name in body else r.method for name in FIGMA_LISTS]
        return [(":".join(parts + [body["file_key"], sha("".join(lists))]), body["event_type"])]
    parts += [body[name] for name in ("file_key", "comment_id", "node_id") if name in body]
    return [(":".join(parts), body["event_type"])]


def figma_cases(c):
    base = {"file_key": "sampleFile000000000002", "passcode": c.key, "protocol_version": "2", "retries": 0, "timestamp": "2026-01-05T10:00:00Z", "webhook_id": "298622"}
    publish = base | {"event_type": "LIBRARY_PUBLISH", "file_name": "Library"}
    buttons = publish | {"created_components": [{"key": "c1", "name": "Button"}], "modified_components": [], "deleted_components": []}
    inks = publish | {"created_styles": [{"key": "s1", "name": "Ink ✓"}], "modified_styles": [], "deleted_styles": []}
    more = publish | {"created_components": [{"key": "c2", "name": "Card"}], "modified_components": [], "deleted_components": []}
    requests = [c.post(body) for body in (buttons, inks, more)]
    c.apart(*zip(("a publication, its components", "a publication, its styles", "a publication, more components"), requests))
    c.again("a publication, its components again", requests[0], c.post(buttons | {"retries": 1}))
    dev = base | {"event_type": "DEV_MODE_STATUS_UPDATE", "node_id": "11:1", "status": "READY_FOR_DEV", "change_message": ""}
    c.apart(("a status of a layer", c.post(dev)), ("a status of another layer", c.post(dev | {"node_id": "11:2"})))
    c.rejected("a publication, wrong passcode", c.post(publish | {"passcode": c.other}), [c.key])


def flutterwave_events(r):
    body = r.json
    if "type" in body:
        return [(body["id"], body["type"])]
    if "event" in body:
        return [(f"{body['event']}:{body['data']['id']}:{body['data']['status']}", body["event"])]
    return [(f"{body['event.type']}:{body['id']}:{body['status']}", body["event.type"])]


def flutterwave_cases(c):
    flat = {"id": 126122, "txRef": "ref-1", "flwRef": "FLW-MOCK-1", "amount": 100, "currency": "NGN", "event.type": "CARD_TRANSACTION"}
    bodies = [flat | {"status": status} for status in ("failed", "successful")]
    c.apart(*((f"the transaction itself, {body['status']}", c.sign(c.post(body))) for body in bodies))


def paystack_events(r):
    event, data = r.json["event"], r.json["data"]
    if "id" not in data:
        return [(f"{event}:{sha(r.body)}", event)]
    parts = [event, text(data["id"])] + [data[k] for k in ("status", "updatedAt") if k in data]
    return [(":".join(parts), event)]


def cashfree_events(r):
    kind, data = r.json["type"], r.json["data"]
    if "refund" in data:
        return [(f"{kind}:{data['refund']['cf_refund_id']}:{data['refund']['refund_status']}", kind)]
    return [(f"{kind}:{data['payment']['cf_payment_id']}:{data['payment']['payment_status']}", kind)]


def nango_events(r):
    body, kind = r.json, r.json["type"]
    if kind != "sync":
        return [(f"{kind}:{sha(r.body)}", kind)]
    head = [kind, body["connectionId"], body["providerConfigKey"], body["syncName"], body.get("syncVariant", "")]
    return [(":".join(head + [body["model"], body["modifiedAfter"], sha(r.body)]), kind)]


def kontent_events(r):
    out = []
    for item in r.json["notifications"]:
        kind = f"{item['message']['object_type']}.{item['message']['action']}"
        system = item["data"]["system"]
        out.append((f"{kind}:{system['id']}:{system['language']}:{system['last_modified']}:{sha(compact(item))}", kind))
    return out


def meta_events(r):
    out = []
    for entry in r.json["entry"]:
        for change in entry.get("changes", []):
            messages, statuses = at_path(change, "value/messages") or [], at_path(change, "value/statuses")
            found = messages[0]["id"] if messages else None
            if len(messages) > 1:
                found += ":" + sha(compact(messages))
            if statuses:
                found = f"{statuses[0]['id']}:{statuses[0]['status']}:{sha(compact(statuses))}"
            out.append((found or f"{entry['id']}:{text(entry.get('time')) or ''}:{sha(compact(change))}", change["field"]))
        for item in entry.get("messaging", []):
            out.append((item["message"]["mid"] + (":deleted" if item["message"].get("is_deleted") else ""), "message"))
    return out


def meta_cases(c):
    def whatsapp(value):
        value = {"messaging_product": "whatsapp", "metadata": {"phone_number_id": "1"}} | value
        return c.sign(c.post({"object": "whatsapp_business_account", "entry": [{"id": "10", "changes": [{"value": value, "field": "messages"}]}]}))

    status = {"id": "wamid.1", "status": "delivered", "timestamp": "1767607198", "recipient_id": "1"}
    read = [whatsapp({"statuses": [status | {"recipient_participant_id": who}]}) for who in ("2", "3")]
    c.apart(("a status of a group, one member", read[0]), ("a status of a group, another member", read[1]))
    messages = [{"from": "2", "id": name, "timestamp": "1767607198", "type": "text", "text": {"body": "hi"}} for name in ("wamid.2", "wamid.3")]
    c.apart(("one message", whatsapp({"messages": messages[:1]})), ("two messages", whatsapp({"messages": messages})))

    def messenger(message):
        item = {"sender": {"id": "2"}, "recipient": {"id": "1"}, "timestamp": 1767607198000, "message": message}
        return c.sign(c.post({"object": "instagram", "entry": [{"id": "1", "time": 1767607198000, "messaging": [item]}]}))

    c.apart(("a message", messenger({"mid": "m_1", "text": "hi"})), ("a message taken back", messenger({"mid": "m_1", "is_deleted": True})))


def quickbooks_events(r):
    if isinstance(r.json, list):
        return [(event["id"], event["type"]) for event in r.json]
    out = []
    for notification in r.json["eventNotifications"]:
        for e in notification["dataChangeEvent"]["entities"]:
            name = f"{notification['realmId']}:{e['name']}:{e['id']}:{e['operation']}:{e['lastUpdated']}"
            out.append((name, f"{e['name']}.{e['operation']}"))
    return out


def adyen_events(r):
    if "notificationItems" not in r.json:
        return [(r.json["data"].get("id") or f"{r.json['type']}:{sha(r.body)}", r.json["type"])]
    found = [wrapped["NotificationRequestItem"] for wrapped in r.json["notificationItems"]]
    return [(item["pspReference"], item["eventCode"]) for item in found]


def docusign_events(r):
    body = r.json
    if "envelopeId" not in body["data"]:
        return [(f"{body['event']}:{body['generatedDateTime']}:{sha(compact(body['data']))}", body["event"])]
    return joined("event", "event", "data/envelopeId", "data/recipientId?", "generatedDateTime")(r)


def docusign_cases(c):
    body = {"event": "template-created", "retryCount": 0, "generatedDateTime": "2026-01-05T10:00:00.0000000Z", "data": {"templateId": "t1"}}
    first = c.sign(c.post(body))
    c.apart(("a template", first), ("another template", c.sign(c.post(body | {"data": {"templateId": "t2"}}))))
    c.again("a template again", first, c.sign(c.post(body | {"retryCount": 1})))


def telegram_events(r):
    return [(str(r.json["update_id"]), next(key for key in r.json if key != "update_id"))]


def heroku_events(r):
    return [(r.json["id"], f"{r.json['webhook_metadata']['event']['include']}.{r.json['action']}")]


def zendesk_events(r):
    own = r.json.get("id")
    return [(own if "zendesk_event_version" in r.json else r.get("X-Zendesk-Webhook-Invocation-Id") or own, r.json["type"])]


def zendesk_cases(c):
    def trigger(body, at, *headers):
        return c.sign(c.post(body, [("X-Zendesk-Webhook-Signature-Timestamp", rfc3339(at)), *headers]))

    body = {"id": "35436", "type": "ticket.solved"}
    names = ("01SAMPLE1", "01SAMPLE2")
    c.apart(*((f"a trigger with the ticket's id, {name}", trigger(body, NOW - i, ("X-Zendesk-Webhook-Invocation-Id", name))) for i, name in enumerate(names)))
    c.event("a trigger without an invocation's id", trigger(body, NOW), [c.key])


def generic_events(r):
    return [(r.get("X-Event-Id") or r.json["id"], r.json["type"])]


def supabase_events(r):
    return [(r.get("webhook-id"), at_path(r.json, "metadata/name") or "sms")]


# --- the table ------------------------------------------------------------------------------------------------------


PROVIDERS = {
    "adyen": Provider(adyen, adyen_events, ["HmacSignature", "body"], lambda n, i: hexadecimal(64)(n, i).upper(), tamper="signed", answer="[accepted]"),
    "asaas": Provider(token("asaas-access-token"), fields("id", "event"), "asaas-access-token", tamper=None),
    "asana": Provider(body_hex("X-Hook-Signature"), asana_events, "X-Hook-Signature", hexadecimal(32), cases=asana_cases),
    "bitbucket": Provider(body_hex("X-Hub-Signature", "sha256="), headers("X-Request-UUID", "X-Event-Key"), "X-Hub-Signature"),
    "calcom": Provider(body_hex("X-Cal-Signature-256"), joined("triggerEvent", "triggerEvent", "payload/uid", "createdAt"), "X-Cal-Signature-256"),
    "cashfree": Provider(header_then_body("x-webhook-timestamp", "x-webhook-signature"), cashfree_events, "x-webhook-signature", prefixed("cfsk_ma_test_")),
    "chargebee": Provider(basic, fields("id", "event_type"), "Authorization", credentials, tamper=None),
    "checkout": Provider(body_hex("Cko-Signature"), fields("id", "type"), "Cko-Signature"),
    "clerk": svix_like(header_id("svix-id", "type")),
    "contentful": Provider(contentful, headers("X-Contentful-Idempotency-Key", "X-Contentful-Topic"), "x-contentful-signature", lambda n, i: ("notARealSecret%02d" % i) * 4, 30),
    "docusign": Provider(body_base64("X-DocuSign-Signature-1"), docusign_events, "X-DocuSign-Signature-1", cases=docusign_cases),
    "dodopayments": standard_like(header_id("webhook-id", "type")),
    "dropbox": Provider(body_hex("X-Dropbox-Signature"), lambda r: [(None, "list_folder")], "X-Dropbox-Signature"),
    "figma": Provider(lambda r, key, at: None, figma_events, "passcode", tamper=None, cases=figma_cases),
    "fintoc": Provider(timed_items("Fintoc-Signature", "t={},v1={}", "."), fields("id", "type"), "Fintoc-Signature", prefixed("whsec_"), 300),
    "flutterwave": Provider(token("verif-hash"), flutterwave_events, "verif-hash", tamper=None, cases=flutterwave_cases),
    "generic_hmac": Provider(body_hex("X-Signature", "sha256="), generic_events, "X-Signature"),
    "generic_token": Provider(token("X-Webhook-Token"), generic_events, "X-Webhook-Token", tamper=None),
    "github": Provider(body_hex("X-Hub-Signature-256", "sha256="), github_events, "X-Hub-Signature-256"),
    "gitlab": Provider(token("X-Gitlab-Token"), headers("Idempotency-Key", "X-Gitlab-Event"), "X-Gitlab-Token", tamper=None),
    "gocardless": Provider(body_hex("Webhook-Signature"), items("events", "id", "resource_type", "action"), "Webhook-Signature"),
    "heroku": Provider(body_base64("Heroku-Webhook-Hmac-SHA256"), heroku_events, "Heroku-Webhook-Hmac-SHA256"),
    "hubspot": Provider(hubspot, items("", "eventId", "subscriptionType"), "X-HubSpot-Signature-v3", lambda n, i: str(uuid.UUID(int=i)), 300),
    "juspay": Provider(basic, fields("id", "event_name"), "Authorization", credentials, tamper=None),
    "kontent": Provider(body_base64("X-Kontent-ai-Signature"), kontent_events, "X-Kontent-ai-Signature", whsec("")),
    "launchdarkly": Provider(body_hex("X-LD-Signature"), fields("_id", "kind"), "X-LD-Signature"),
    "lemonsqueezy": Provider(body_hex("X-Signature"), and_body(joined("meta/event_name", "meta/event_name", "data/type", "data/id", "data/attributes/updated_at")), "X-Signature"),
    "line": Provider(body_base64("x-line-signature"), items("events", "webhookEventId", "type"), "x-line-signature", hexadecimal(32)),
    "linear": Provider(body_hex("Linear-Signature"), headers("Linear-Delivery", "Linear-Event"), "Linear-Signature", prefixed("lin_wh_"), 60),
    "lithic": standard_like(header_id("webhook-id", "event_type")),
    "liveblocks": standard_like(header_id("webhook-id", "type")),
    "loops": standard_like(header_id("webhook-id", "eventName")),
    "mailersend": Provider(body_hex("Signature"), joined("type", "type", "data/id"), "Signature"),
    "mailgun": Provider(mailgun, fields("event-data/id", "event-data/event"), "body", hexadecimal(32), 900, tamper="signed"),
    "mandrill": Provider(mandrill, mandrill_events, "X-Mandrill-Signature"),
    "mercadopago": Provider(mercadopago, fields("id", "action"), "x-signature", hexadecimal(64), tamper="url"),
    "meta": Provider(meta, meta_events, "X-Hub-Signature-256", hexadecimal(32), config={"verify_token": "not-a-real-token"}, cases=meta_cases),
    "modern_treasury": Provider(body_hex("X-Signature"), lambda r: [(r.get("X-Event-ID"), f"{r.get('X-Topic')}.{r.json['event']}")], "X-Signature"),
    "mollie": Provider(body_hex("X-Mollie-Signature", "sha256="), fields("id", "type"), "X-Mollie-Signature"),
    "nango": Provider(body_hex("X-Nango-Hmac-Sha256"), nango_events, "X-Nango-Hmac-Sha256", lambda n, i: str(uuid.UUID(int=i))),
    "notion": Provider(body_hex("X-Notion-Signature", "sha256="), fields("id", "type"), "X-Notion-Signature", prefixed("secret_")),
    "okta": Provider(token("Authorization"), items("data/events", "uuid", "eventType"), "Authorization", tamper=None),
    "openai": standard_like(fields("id", "type")),
    "paddle": Provider(timed_items("Paddle-Signature", "ts={};h1={}", ":"), fields("event_id", "event_type"), "Paddle-Signature", prefixed("pdl_ntfset_"), 30),
    "pagarme": Provider(basic, fields("id", "type"), "Authorization", credentials, tamper=None),
    "pagerduty": Provider(body_hex("X-PagerDuty-Signature", "v1="), fields("event/id", "event/event_type"), "X-PagerDuty-Signature"),
    "paystack": Provider(body_hex("x-paystack-signature", algorithm="sha512"), paystack_events, "x-paystack-signature", prefixed("sk_test_")),
    "quickbooks": Provider(body_base64("intuit-signature"), quickbooks_events, "intuit-signature"),
    "replicate": standard_like(lambda r: [(r.get("webhook-id"), "prediction." + r.json["status"])]),
    "resend": svix_like(header_id("svix-id", "type")),
    "sentry": Provider(body_hex("Sentry-Hook-Signature"), headers("Request-ID", "Sentry-Hook-Resource"), "Sentry-Hook-Signature"),
    "shopify": Provider(body_base64("X-Shopify-Hmac-Sha256"), lambda r: [(r.get("X-Shopify-Event-Id") or r.get("shopify-event-id"), r.get("X-Shopify-Topic") or r.get("shopify-topic"))], "X-Shopify-Hmac-Sha256", lambda n, i: "shpss_" + hexadecimal(32)(n, i)),
    "slack": Provider(slack, slack_events, "X-Slack-Signature", hexadecimal(32), 300, answer=""),
    "square": Provider(square, fields("event_id", "type"), "x-square-hmacsha256-signature"),
    "standardwebhooks": standard_like(header_id("webhook-id", "type")),
    "stripe": Provider(timed_items("Stripe-Signature", "t={},v1={}", "."), fields("id", "type"), "Stripe-Signature", prefixed("whsec_"), 300),
    "supabase": standard_like(supabase_events, key=whsec("v1,whsec_"), answer="{}"),
    "svix": svix_like(lambda r: [(r.get("svix-id") or r.get("webhook-id"), r.json["type"])]),
    "telegram": Provider(token("X-Telegram-Bot-Api-Secret-Token"), telegram_events, "X-Telegram-Bot-Api-Secret-Token", lambda n, i: f"notARealSecret_{n}_{i}", tamper=None, answer=""),
    "twilio": Provider(twilio, twilio_events, "X-Twilio-Signature", hexadecimal(32), answer="<Response></Response>"),
    "twitch": Provider(twitch, headers("Twitch-Eventsub-Message-Id", "Twitch-Eventsub-Subscription-Type"), "Twitch-Eventsub-Message-Signature", tolerance=600),
    "vercel": Provider(body_hex("x-vercel-signature", algorithm="sha1"), fields("id", "type"), "x-vercel-signature"),
    "webflow": Provider(header_then_body("x-webflow-timestamp", "x-webflow-signature", ":", bytes.hex), lambda r: [(f"{r.json['triggerType']}:{r.json['payload']['id']}:{sha(r.body)}", r.json["triggerType"])], "x-webflow-signature", hexadecimal(64), 300),
    "woocommerce": Provider(body_base64("X-WC-Webhook-Signature"), headers("X-WC-Webhook-Delivery-ID", "X-WC-Webhook-Topic"), "X-WC-Webhook-Signature"),
    "zendesk": Provider(header_then_body("X-Zendesk-Webhook-Signature-Timestamp", "X-Zendesk-Webhook-Signature"), zendesk_events, "X-Zendesk-Webhook-Signature", cases=zendesk_cases),
    "zoom": Provider(zoom, lambda r: [(f"{r.json['event']}:{r.json['event_ts']}:{sha(r.body)}", r.json["event"])], "x-zm-signature", tolerance=300),
}


# --- the cases ------------------------------------------------------------------------------------------------------


def more_cases(out):
    """What only this provider does: handshakes, empty batches, several signatures, old versions."""
    name, provider = out.name, out.provider
    key, other = provider.key(name, 1), provider.key(name, 2)
    first = samples_of(name)[0]
    request = signed(name, provider, first, key)

    def sign(r, with_key=key):
        provider.sign(r, with_key, NOW - 2)
        return r

    if name in ("stripe", "fintoc", "paddle"):
        header = provider.where[0]
        separator = ";" if name == "paddle" else ","
        items_of = request.get(header).split(separator)
        wrong = items_of[1][:3] + mac("x", b"x").hex()
        bad = request.copy()
        bad.set(header, separator.join([items_of[0], wrong, items_of[1]]))
        out.event("several signatures, the second holds", bad, [key])
        bad = request.copy()
        bad.set(header, items_of[1])
        out.rejected("no time", bad, [key])
        bad = request.copy()
        bad.set(header, separator.join([items_of[0].split("=")[0] + "=now", items_of[1]]))
        out.rejected("unreadable time", bad, [key])
    if name == "stripe":
        bad = request.copy()
        bad.set("Stripe-Signature", request.get("Stripe-Signature").replace("v1=", "v0="))
        out.rejected("version 0 only", bad, [key])
    if "webhook-signature" in provider.where or name in ("clerk", "seam"):
        family = "svix" if request.get("svix-id") else "webhook"
        good = request.get(f"{family}-signature")
        bad = request.copy()
        bad.set(f"{family}-signature", f"v1a,{b64(bytes(64))} v1,{b64(bytes(32))} {good}")
        out.event("several signatures, the last holds", bad, [key])
        bad = request.copy()
        bad.set(f"{family}-signature", good.removeprefix("v1,"))
        out.rejected("no version", bad, [key])
        bad = request.copy()
        bad.set(f"{family}-signature", good.replace("v1,", "v2,"))
        out.rejected("another version", bad, [key])
        bad = request.copy()
        bad.set(f"{family}-id", "msg_another")
        out.rejected("another id", bad, [key])
        bad = request.copy()
        bad.drop(f"{family}-timestamp")
        out.rejected("no time", bad, [key])
    if name == "svix":
        bad = signed(name, provider, "user.deleted", key)
        assert bad.get("webhook-id")
        bad.set("svix-id", "msg_another")
        out.rejected("an id that is not the signed one", bad, [key])
    if name == "github":
        bad = request.copy()
        bad.drop("X-Hub-Signature-256")
        bad.set("X-Hub-Signature", "sha1=" + mac(key, bad.body, "sha1").hex())
        out.rejected("only the old signature", bad, [key])
        bad = request.copy()
        bad.set("X-Hub-Signature-256", request.get("X-Hub-Signature-256").removeprefix("sha256="))
        out.rejected("no prefix", bad, [key])
        # The example of GitHub's own page.
        shown = post(name, b"Hello, World!", [("X-GitHub-Event", "push"), ("X-GitHub-Delivery", str(uuid.UUID(int=8)))])
        shown.set("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
        out.event("the documented example", shown, ["It's a Secret to Everybody"])
        ping = post(name, b'{"zen":"Keep it logically awesome.","hook_id":1}', [JSON, ("X-GitHub-Event", "ping"), ("X-GitHub-Delivery", str(uuid.UUID(int=7)))])
        out.event("ping", sign(ping), [key])
    if name == "bitbucket":
        # The example of Atlassian's own page.
        about = [("X-Event-Key", "repo:push"), ("X-Request-UUID", str(uuid.UUID(int=8)))]
        shown = post(name, b"Hello World!", about)
        shown.set("X-Hub-Signature", "sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9")
        out.event("the documented example", shown, ["It's a Secret to Everybody"])
        out.rejected("the documented example, wrong key", shown, [key])
    if name == "gitlab":
        signing, another = whsec()(name, 1), whsec()(name, 2)
        r = sample(name, "Push Hook", signing, NOW - 2)
        r.set("webhook-id", r.get("Idempotency-Key"))
        r.set("webhook-timestamp", str(NOW - 2))
        standard()(r, signing, NOW - 2)
        out.event("signing token", r, [signing])
        out.event("signing token beside a secret token", r, [key, signing])
        out.rejected("signing token, wrong key", r, [another])
        bad = r.copy()
        bad.body += b"\n"
        out.rejected("signing token, tampered", bad, [signing])
        r = sample(name, "Push Hook", signing, NOW - 400)
        r.set("webhook-id", r.get("Idempotency-Key"))
        r.set("webhook-timestamp", str(NOW - 400))
        standard()(r, signing, NOW - 400)
        out.rejected("signing token, stale", r, [signing])
    if name == "slack":
        challenge = post(name, b'{"token":"t","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}', [JSON, ("X-Slack-Request-Timestamp", str(NOW - 2))])
        sign(challenge)
        out.challenge("url verification", challenge, [key], "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P")
        out.rejected("url verification, wrong key", challenge, [other])
    if name == "zoom":
        challenge = post(name, b'{"payload":{"plainToken":"sampleToken0000000001"},"event_ts":1767607198000,"event":"endpoint.url_validation"}', [JSON, ("x-zm-request-timestamp", str(NOW - 2))])
        sign(challenge)
        answer = {"plainToken": "sampleToken0000000001", "encryptedToken": mac(key, "sampleToken0000000001").hex()}
        out.challenge("url validation", challenge, [key], json.dumps(answer, separators=(",", ":")))
        out.rejected("url validation, wrong key", challenge, [other])
        bad = challenge.copy()
        bad.drop("x-zm-signature")
        out.rejected("url validation, unsigned", bad, [key])
    if name == "twitch":
        about = [JSON, ("Twitch-Eventsub-Message-Id", str(uuid.UUID(int=9))), ("Twitch-Eventsub-Message-Type", "webhook_callback_verification"), ("Twitch-Eventsub-Message-Timestamp", rfc3339(NOW - 2)), ("Twitch-Eventsub-Subscription-Type", "stream.online")]
        challenge = sign(post(name, b'{"challenge":"sample-challenge-text","subscription":{"id":"1","status":"webhook_callback_verification_pending"}}', about))
        out.challenge("callback verification", challenge, [key], "sample-challenge-text")
        out.rejected("callback verification, wrong key", challenge, [other])
        about[2:3] = [("Twitch-Eventsub-Message-Type", "revocation")]
        revoked = sign(post(name, b'{"subscription":{"id":"1","status":"authorization_revoked"}}', about))
        out.event("revocation", revoked, [key], [(str(uuid.UUID(int=9)), "revocation.authorization_revoked")])
    if name == "dropbox":
        out.challenge("challenge", get(name, "?challenge=sample%20text"), [key], "sample text", [["X-Content-Type-Options", "nosniff"]])
    if name == "meta":
        good = "?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=not-a-real-token"
        out.challenge("subscription", get(name, good), [key], "1158201444")
        out.rejected("subscription, wrong token", get(name, good + "x"), [key])
        out.rejected("subscription, no token", get(name, good.rsplit("&", 1)[0]), [key])
        bad = request.copy()
        bad.drop("X-Hub-Signature-256")
        out.rejected("only the old signature", bad, [key])
        status = post(name, b'{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"value":{"metadata":{"phone_number_id":"2"},"statuses":[{"id":"wamid.S1","status":"read","timestamp":"1767607198","recipient_id":"14155550100"}]},"field":"messages"}]}]}', [JSON])
        out.event("a status", sign(status), [key])
    if name == "okta":
        ask = get(name, headers=[("X-Okta-Verification-Challenge", 'sample"text')])
        out.challenge("verification", ask, [key], json.dumps({"verification": 'sample"text'}, separators=(",", ":")))
    if name == "mailersend":
        test = {"type": "webhook.test", "created_at": "2026-01-05T10:00:00.000000Z"}
        out.challenge("test, signed with the public secret", sign(post(name, compact(test).encode(), [JSON]), "test_public"), [key])
        out.challenge("test, unsigned", post(name, compact(test).encode(), [JSON]), [key])
        data = {"object": "activity", "id": "000000000000000000000009", "type": "sent", "created_at": "2026-01-05T10:00:00.000000Z", "email_id": "e1", "message_id": "m1"}
        flat = {"type": "activity.sent", "domain_id": "d1", "webhook_id": "w1", "created_at": "2026-01-05T10:00:00.000000Z", "data": data}
        flat = sign(post(name, compact(flat).encode(), [JSON]))
        out.event("a flat activity", flat, [key])
        out.rejected("a flat activity, wrong key", flat, [other])
        verified = {"object": "email_single.verified", "webhook_id": "w1", "data": {"address": "user@example.com", "result": "valid"}}
        verified = sign(post(name, compact(verified).encode(), [JSON]))
        out.event("email_single.verified", verified, [key], [(sha(verified.body), "email_single.verified")])
        out.rejected("email_single.verified, tampered", tampered(provider, verified), [key])
    if name == "supabase":
        # Several secrets at the sender: the signatures are joined by a comma and a space.
        r = sample(name, first, key, NOW - 2, "several")
        provider.sign(r, other, NOW - 2)
        theirs = r.get("webhook-signature")
        provider.sign(r, key, NOW - 2)
        for case, value in (("first", f"{r.get('webhook-signature')}, {theirs}"), ("last", f"{theirs}, {r.get('webhook-signature')}")):
            r2 = r.copy()
            r2.set("webhook-signature", value)
            out.event(f"the signatures of several secrets, the {case} holds", r2, [key])
            out.rejected(f"the signatures of several secrets, the {case}, wrong key", r2, [whsec("v1,whsec_")(name, 3)])
    if name == "asana":
        shake = post(name, b"", [("X-Hook-Secret", "00000000000000000000000000000001")])
        out.challenge("handshake", shake, [key], "", [["X-Hook-Secret", "00000000000000000000000000000001"]])
        out.event("heartbeat", sign(post(name, b'{"events":[]}', [JSON])), [key], [])
    if name == "line":
        out.event("verify button", sign(post(name, b'{"destination":"U1","events":[]}', [JSON])), [key], [])
    if name == "notion":
        out.challenge("verification token", sign(post(name, b'{"verification_token":"secret_notARealSecret0000000001"}', [JSON])), [key])
        out.challenge("verification token, before the secret is known", post(name, b'{"verification_token":"secret_notARealSecret0000000001"}', [JSON]), [other])
    if name == "mailgun":
        r = sample(name, first, key, NOW - 2, "subaccount")
        theirs, ours = (mac(k, r.json["signature"]["timestamp"] + r.json["signature"]["token"]).hex() for k in (other, key))
        r.body = r.body.replace(b'"{{signature}}"', f'"{theirs}","parent-signature":"{ours}"'.encode())
        out.event("an event of a subaccount", r, [key])
        out.event("an event of a subaccount, with its own key", r, [other])
        out.rejected("an event of a subaccount, another key", r, [key + "00"])
    if name == "woocommerce":
        out.challenge("ping", post(name, b"webhook_id=12", [FORM]), [key])
        bad = post(name, b"webhook_id=12", [FORM, ("X-WC-Webhook-Topic", "order.created"), ("X-WC-Webhook-Delivery-ID", "1")])
        out.rejected("an unsigned form with a topic", bad, [key])
    if name == "mandrill":
        out.challenge("head", get(name, method="HEAD"), [key])
        test = post(name, b"mandrill_events=%5B%5D", [FORM])
        provider.sign(test, "test-webhook", NOW)
        out.challenge("test with an empty list", test, [key])
    if name == "mercadopago":
        bad = request.copy()
        bad.body = re.sub(rb'("data":{"id":")[^"]*', rb"\g<1>999999999", bad.body)
        assert bad.body != request.body
        out.rejected("a body about another resource than the signed one", bad, [key])
        for case, resource in (("lower-cased id", "abc01"), ("id as it was sent", "ABC01")):
            r = post(name, b'{"id":7,"type":"order","action":"order.updated","data":{"id":"ABC01"}}', [JSON, ("x-request-id", "r-1")], "?data.id=ABC01&type=order")
            manifest = f"id:{resource};request-id:r-1;ts:{NOW - 2};"
            r.set("x-signature", f"ts={NOW - 2},v1={mac(key, manifest).hex()}")
            out.event(case, r, [key])
        r = post(name, b'{"id":8,"type":"payment","action":"payment.created","data":{"id":"9"}}', [JSON], "?data.id=9&type=payment")
        out.event("no request id", sign(r), [key])
        r = post(name, b'{"id":9,"type":"payment","action":"payment.created","data":{"id":"9"}}', [JSON, ("x-request-id", "r-2")], "?data.id=9&type=payment")
        ms = (NOW - 2) * 1000
        r.set("x-signature", f"ts={ms},v1={mac(key, f'id:9;request-id:r-2;ts:{ms};').hex()}")
        out.event("time in milliseconds", r, [key])
    if name == "twilio":
        bad = request.copy()
        bad.body += b"&Extra=1"
        out.rejected("an added field", bad, [key])
        bad = request.copy()
        bad.url += "x"
        out.rejected("another url", bad, [key])
        r = sample(name, first, key, NOW, "port")
        r.set("X-Twilio-Signature", b64(mac(key, r.url.replace(".com/", ".com:443/") + sorted_fields(r), "sha1")))
        out.event("url signed with its port", r, [key])
        r = sample(name, first, key, NOW, "requery")
        r.url += "?name=O%27Brien+%26+Co&x"
        r.set("X-Twilio-Signature", b64(mac(key, r.url.split("?")[0] + "?name=O'Brien%20%26%20Co&x=" + sorted_fields(r), "sha1")))
        out.event("url whose query was written again", r, [key])
        r = post(name, b"MessageSid=SM1&SmsStatus=received&B=2&B=1&B=2&a=&Body=%C3%A9+%2B", [FORM], "?tenant=7&next=%2Fa")
        out.event("a repeated and an empty field", sign(r), [key], [("SM1", "message.received")])
        body = b'{"id":"EZ1","eventType":"reservation.created"}'
        r = post(name, body, [JSON], "?bodySHA256=" + sha(body))
        r.set("X-Twilio-Signature", b64(mac(key, r.url, "sha1")))
        out.event("a JSON body", r, [key], [("EZ1", "reservation.created")])
        bad = r.copy()
        bad.body = body.replace(b"EZ1", b"EZ2")
        out.rejected("a JSON body that is not the hashed one", bad, [key])
        bad = post(name, body, [JSON])
        bad.set("X-Twilio-Signature", b64(mac(key, bad.url, "sha1")))
        out.rejected("a JSON body without a hash", bad, [key])
        # Signed with a shared key: the header says so, and with what.
        settings = ("X-Twilio-Webhooks-Signature-Settings", "key=webhooks_sharedkey_notReal,algorithm=HMAC_SHA256")
        shared = "not-a-real-shared-key"
        r = sample(name, first, key, NOW, "shared")
        r.set(*settings)
        r.set("X-Twilio-Signature", b64(mac(shared, r.url + sorted_fields(r))))
        out.event("a shared key", r, [key, shared])
        out.rejected("a shared key, wrong", r, [key])
        bad = r.copy()
        bad.drop(settings[0])
        out.rejected("a shared key, unnamed", bad, [key, shared])
        r.set("X-Twilio-Signature", b64(mac(shared, r.url.replace(".com/", ".com:443/") + sorted_fields(r))))
        out.event("a shared key, url signed with its port", r, [key, shared])
        r = post(name, body, [JSON, settings], "?bodySHA256=" + sha(body))
        r.set("X-Twilio-Signature", b64(mac(shared, r.url)))
        out.event("a shared key, a JSON body", r, [key, shared], [("EZ1", "reservation.created")])
        bad = r.copy()
        bad.body = body.replace(b"EZ1", b"EZ2")
        out.rejected("a shared key, a JSON body that is not the hashed one", bad, [key, shared])
        r = sample(name, first, key, NOW, "shared sha1")
        r.set(settings[0], "key=webhooks_sharedkey_notReal,algorithm=HMAC_SHA1")
        provider.sign(r, shared, NOW)
        out.event("a shared key with SHA-1", r, [shared])
    if name == "square":
        bad = request.copy()
        bad.url += "/"
        out.rejected("another url", bad, [key])
        r = sample(name, first, key, NOW, "query")
        r.url += "?store=Z%C3%BCrich&x=1"
        out.event("url with a query", sign(r), [key])
        bad = request.copy()
        bad.drop("x-square-hmacsha256-signature")
        bad.set("x-square-signature", b64(mac(key, bad.url.encode() + bad.body, "sha1")))
        out.rejected("only the old signature", bad, [key])
    if name == "hubspot":
        r = sample(name, first, key, NOW - 2, "query")
        r.url += "?portal=62515&name=a+b"
        out.event("url with a query", sign(r), [key])
        r = sample(name, first, key, NOW - 2, "escape")
        r.url += "?next=%2Fdone%3A1"
        message = f"POST{r.url.replace('%2F', '/').replace('%3A', ':')}".encode() + r.body + r.get("X-HubSpot-Request-Timestamp").encode()
        r.set("X-HubSpot-Signature-v3", b64(mac(key, message)))
        out.event("url signed with its escapes decoded", r, [key])
        for version, head in (("v1", key), ("v2", key + "POST" + request.url)):
            r = sample(name, first, key, NOW - 2, version)
            r.drop("X-HubSpot-Request-Timestamp")
            r.set("X-HubSpot-Signature-Version", version)
            r.set("X-HubSpot-Signature", hashlib.sha256(head.encode() + r.body).hexdigest())
            out.event(f"version {version}", r, [key])
            out.rejected(f"version {version}, wrong key", r, [other])
            bad = r.copy()
            bad.set("X-HubSpot-Signature-v3", "AAAA")
            out.rejected(f"version {version} beside a wrong v3", bad, [key])
    if name == "docusign":
        r = sample(name, first, key, NOW, "two")
        r.set("X-DocuSign-Signature-1", b64(mac(other, r.body)))
        r.set("X-DocuSign-Signature-2", b64(mac(key, r.body)))
        out.event("the second of two keys", r, [key])
        r.drop("X-DocuSign-Signature-1", "X-DocuSign-Signature-2")
        r.set("X-DocuSign-Signature-100", b64(mac(key, r.body)))
        out.event("the hundredth key", r, [key])
        r.drop("X-DocuSign-Signature-100")
        r.set("X-DocuSign-Signature-101", b64(mac(key, r.body)))
        out.rejected("a number too high", r, [key])
    if name in ("pagerduty", "mollie"):
        header = provider.where[0]
        good = request.get(header)
        prefix = good.split("=")[0]
        r = request.copy()
        r.set(header, f"{prefix}={mac('x', b'x').hex()}, {good}")
        out.event("several signatures, the second holds", r, [key])
        bad = request.copy()
        bad.set(header, good.split("=")[1])
        if name == "mollie":
            out.event("no prefix", bad, [key])
            out.rejected("no prefix, wrong key", bad, [other])
        else:
            out.rejected("no prefix", bad, [key])
    if name == "mollie":
        out.rejected("a classic, unsigned notification", post(name, b"id=tr_sample0001", [FORM]), [key])
    if name == "flutterwave":
        body = b'{"id":"wbk_sample0001","timestamp":1767607198000,"type":"charge.completed","data":{"id":"chg_1","status":"succeeded"}}'
        r = post(name, body, [JSON])
        body_base64("flutterwave-signature")(r, key, NOW)
        out.event("version 4", r, [key], [("wbk_sample0001", "charge.completed")])
        out.rejected("version 4, wrong key", r, [other])
        bad = r.copy()
        bad.body = body.replace(b"chg_1", b"chg_2")
        out.rejected("version 4, tampered", bad, [key])
    if name == "generic_hmac":
        r = sample(name, first, key, NOW, "bare")
        r.set("X-Signature", mac(key, r.body).hex().upper())
        out.event("no prefix, capitals", r, [key])
        bad = post(name, b'{"type":"x"}', [JSON])
        r = sample(name, first, key, NOW, "hub")
        r.set("X-Hub-Signature-256", "sha256=" + mac(key, r.body).hex())
        out.event("another usual header", r, [key])
    if name == "generic_token":
        r = sample(name, first, key, NOW, "bearer")
        r.set("Authorization", f"Bearer {key}")
        out.event("bearer", r, [key])
        bad = r.copy()
        bad.set("Authorization", key)
        out.rejected("bearer without the word", bad, [key])
    if name == "nango":
        bad = request.copy()
        bad.drop("X-Nango-Hmac-Sha256")
        bad.set("X-Nango-Signature", hashlib.sha256(key.encode() + bad.body).hexdigest())
        out.rejected("only the old signature", bad, [key])
    if name == "contentful":
        r = sample(name, first, key, NOW - 2, "query")
        r.url += "?env=master&q=a%20b"
        out.event("url with a query", sign(r), [key])
    if name == "adyen":
        def notification(*codes):
            wrapped = [{"NotificationRequestItem": {"additionalData": {"hmacSignature": "{{signature}}"}, "amount": {"currency": "EUR", "value": 1001}, "eventCode": c, "eventDate": "2026-01-05T11:00:00+01:00", "merchantAccountCode": "AcmeECOM", "merchantReference": f"order:{i}", "originalReference": f"ORIG{i}", "pspReference": f"SAMPLE{i:04}", "success": "true"}} for i, c in enumerate(codes)]
            return post(name, compact({"live": "false", "notificationItems": wrapped}).encode(), [JSON])

        batch = sign(notification("CAPTURE", "REFUND", "REPORT_AVAILABLE"))
        out.event("a batch", batch, [key])
        bad = batch.copy()
        bad.body = bad.body.replace(b'"merchantReference":"order:2"', b'"merchantReference":"order:9"')
        out.rejected("a batch whose last item is forged", bad, [key])
        out.rejected("an empty batch", post(name, b'{"live":"false","notificationItems":[]}', [JSON]), [key])
    if name in ("webflow", "cashfree", "zendesk", "twitch", "slack", "zoom"):
        bad = request.copy()
        bad.headers = [(k, v) for k, v in bad.headers if "timestamp" not in k.lower()]
        out.rejected("no time", bad, [key])


for part in (apps, brazil, further, payments, platforms):
    assert not PROVIDERS.keys() & part.PROVIDERS.keys(), part
    PROVIDERS |= part.PROVIDERS


if public:
    import bearer

    PROVIDERS |= public.table(sys.modules[__name__]) | bearer.PROVIDERS
CONFIGS.update({name: provider.config for name, provider in PROVIDERS.items()})


def main(arguments):
    check = "--check" in arguments
    names = [argument for argument in arguments if not argument.startswith("-")] or sorted(PROVIDERS)
    changed = []
    for name in names:
        out = File(name, PROVIDERS[name])
        common(out)
        more_cases(out)
        if public:
            public.more_cases(out, sys.modules[__name__])
        if out.provider.cases:
            out.provider.cases(Cases(out))
        cases = [line["case"] for line in out.lines]
        assert len(set(cases)) == len(cases), f"{name}: a case twice"
        path = ROOT / name / "vectors.jsonl"
        # What the senders' own libraries made or judged: sdk.mjs and sdk.py write these lines.
        kept = [line for line in path.read_text().split("\n") if '"basis":"sdk"' in line] if path.exists() else []
        result = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in out.lines)
        result += "".join(line + "\n" for line in kept)
        if not path.exists() or path.read_text() != result:
            changed.append(name)
            if not check:
                path.write_text(result)
    print(f"{len(names)} providers, {len(changed)} files {'would change' if check else 'written'}")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
