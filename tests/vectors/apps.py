"""Applications of business and of people: mail, chat, forms, documents, support."""

from base import *


def brevo_events(r):
    found = r.json if isinstance(r.json, list) else [r.json]
    bytes_of = lambda i: compact(i) if isinstance(r.json, list) else r.body
    return [(f"{i['message-id']}:{i['event']}:{i['ts_event']}:{sha(bytes_of(i))}", i["event"]) for i in found]


def brevo_cases(c):
    header_token("X-Webhook-Token")(c)
    r = sample(c.name, "delivered", c.key, NOW, "basic")
    secret = credentials(c.name, 1)
    basic(r, secret, NOW)
    c.event("user and password", r, [secret])
    c.rejected("user and password, wrong", r, [credentials(c.name, 2)])
    opened = {"id": 1, "event": "opened", "email": "user@example.com", "ts_event": NOW, "message-id": "<1@example.com>"}
    c.apart(("two opens in one second", c.sign(c.post([opened | {"ts_epoch": NOW * 1000 + ms} for ms in (1, 2)]))))


def clickup_events(r):
    body, history = r.json, r.json.get("history_items")
    parts = [history[0]["id"], sha(compact(history))] if history else [sha(r.body)]
    return [(":".join([body["webhook_id"], body["event"], *parts]), body["event"])]


def clickup_cases(c):
    history = {"id": "2800763136717140857", "type": 1, "date": "1642734631523", "field": "status"}
    body = {"history_items": [history], "task_id": "1", "webhook_id": "w"}
    c.apart(*((f"a new task, {event}", c.sign(c.post(body | {"event": event}))) for event in ("taskCreated", "taskStatusUpdated")))
    edits = [history | {"field": "comment", "comment": {"text_content": said}} for said in ("one", "two")]
    events = [body | {"event": "taskCommentUpdated", "history_items": [edit]} for edit in edits]
    c.apart(*((f"a comment is edited, {i}", c.sign(c.post(event))) for i, event in enumerate(events)))


def freshdesk_events(r):
    hook = r.json.get("freshdesk_webhook")
    return [(f"{hook['ticket_id']}:{sha(r.body)}", hook["triggered_event"])] if hook else [(r.json["id"], r.json["type"])]


def front_cases(c):
    ask = c.post({"type": "sync"}, [("X-Front-Request-Timestamp", str((NOW - 2) * 1000)), ("X-Front-Challenge", "sample-challenge")])
    c.challenge("challenge", c.sign(ask), [c.key], "sample-challenge")
    c.rejected("challenge, wrong key", ask, [c.other])
    r = c.post({"type": "inbound", "id": "evt_1", "emitted_at": 1767607198.5})
    r.set("X-Front-Signature", b64(mac(c.key, r.body, "sha1")))
    c.event("a rule's webhook", r, [c.key], [("evt_1", "inbound")])
    c.rejected("a rule's webhook, wrong key", r, [c.other])


def intercom_cases(c):
    c.challenge("head", c.get(method="HEAD"), [c.key])
    r = c.request.copy()
    r.set("X-Hub-Signature", "sha256=" + mac(c.key, r.body).hex())
    c.rejected("sha256", r, [c.key])


def klaviyo(r, key, at):
    r.set("Klaviyo-Signature", mac(key, r.body + r.get("Klaviyo-Timestamp").encode()).hex())


def linkedin(r, key, at):
    r.set("X-LI-Signature", mac(key, b"hmacsha256=" + r.body).hex())


def linkedin_events(r):
    body = r.json
    return [(text(i.get("notificationId")) or f"{body['type']}:{sha(compact(i))}", body["type"]) for i in body["notifications"]]


def linkedin_cases(c):
    items_of = [{"action": action, "lastModifiedAt": NOW * 1000} for action in ("LIKE", "COMMENT")]
    c.apart(("notifications without an id", c.sign(c.post({"type": "SAMPLE", "notifications": items_of}))))
    code = "890e4665-4dfe-4ab1-b689-ed553bceeed0"
    c.challenge("challenge", c.get(f"?challengeCode={code}"), [c.key], compact({"challengeCode": code, "challengeResponse": mac(c.key, code).hex()}))
    forged = "hmacsha256=" + c.request.body.decode()
    c.rejected("a challenge that is a body", c.get("?challengeCode=" + urllib.parse.quote(forged, safe="")), [c.key])
    r = c.request.copy()
    r.set("X-LI-Signature", mac(c.key, r.body).hex())
    c.rejected("the body alone", r, [c.key])


def mailchimp_events(r):
    form = dict(r.form)
    return [(f"{form['type']}:{form['fired_at']}:{sha(r.body)}", form["type"])]


def mailchimp_cases(c):
    c.challenge("saving the webhook", c.get(f"?token={c.key}"), [c.key])


def graph_events(r):
    out = []
    for i in r.json["value"]:
        etag = at_path(i, "resourceData/@odata.etag")
        made = f"{i['subscriptionId']}:{i['changeType']}:{i['resource']}:{etag}" if etag else None
        out.append((i.get("id") or made, i.get("lifecycleEvent") or i["changeType"]))
    return out


def graph_cases(c):
    c.challenge("validation", c.post(b"", [], "?validationToken=Validation%3A+Testing+%3Cb%3E"), [c.key], "Validation: Testing <b>")
    two = {"value": [{"id": f"n{i}", "subscriptionId": f"s{i}", "changeType": "updated", "resource": "r", "clientState": state} for i, state in enumerate((c.key, c.other))]}
    c.event("two subscriptions, two secrets", c.post(two), [c.key, c.other])
    c.rejected("one item with another secret", c.post(two), [c.key])
    del two["value"][1]["clientState"]
    c.rejected("one item without a secret", c.post(two), [c.key])
    c.rejected("an empty list", c.post({"value": []}), [c.key])


def msteams(r, key, at):
    r.set("Authorization", "HMAC " + b64(mac(base64.b64decode(key), r.body)))


def onfido_events(r):
    p = r.json["payload"]
    return [(f"{p['resource_type']}:{p['action']}:{p['object']['id']}:{p['object']['completed_at_iso8601']}", p["action"])]


def pandadoc(r, key, at):
    r.set_query("signature", mac(key, r.body).hex())


def persona_cases(c):
    good = c.request.get("Persona-Signature")
    # Each group has a time of its own.
    other = f"t={NOW - 4},v1={mac(c.other, f'{NOW - 4}.'.encode() + c.request.body).hex()}"
    for case, groups in (("two groups, the second holds", [other, good]), ("two groups, the first holds", [good, other])):
        r = c.request.copy()
        r.set("Persona-Signature", " ".join(groups))
        c.event(case, r, [c.key])
    time, _, signature = good.partition(",")
    r = c.request.copy()
    r.set("Persona-Signature", f"t={NOW - 4},{signature} {time}")
    c.rejected("the time of another group", r, [c.key])


def plivo(r, key, at):
    """Base URL, `?` and the sorted query, a full stop where there is a query and a body, the sorted fields, the nonce."""
    base, _, query = r.url.partition("?")
    pairs = "&".join(f"{k}={v}" for k, v in sorted(urllib.parse.parse_qsl(query, keep_blank_values=True)))
    posted = "".join(k + v for k, v in sorted(r.form))
    signed_url = base + ("?" + pairs if pairs or posted else "") + ("." if pairs and posted else "")
    r.set("X-Plivo-Signature-V3", b64(mac(key, f"{signed_url}{posted}.{r.get('X-Plivo-Signature-V3-Nonce')}")))


def plivo_events(r):
    form = dict(r.form)
    if "Status" in form:
        return [(form["MessageUUID"], "message." + form["Status"])]
    if "MessageUUID" in form:
        return [(form["MessageUUID"], "message." + form["Type"])]
    return [(form["CallUUID"], "call." + form["Event"])]


def plivo_cases(c):
    nonce = ("X-Plivo-Signature-V3-Nonce", "05429567804466091622")
    fields_of = [("From", "14155550199"), ("MessageUUID", "m-1"), ("Text", "two words ✓"), ("To", "1"), ("Type", "sms")]
    c.event("a text received", c.sign(c.form(fields_of, [nonce])), [c.key])
    r = c.sign(c.form(fields_of, [nonce], "?a=1&b=2"))
    c.event("a URL with a query", r, [c.key])
    bad = r.copy()
    bad.url = r.url.replace("b=2", "b=3")
    c.rejected("another query", bad, [c.key])
    bad = c.request.copy()
    bad.set(*nonce)
    c.rejected("another nonce", bad, [c.key])
    r = c.request.copy()
    r.set("X-Plivo-Signature-V3", b64(bytes(32)) + "," + c.request.get("X-Plivo-Signature-V3"))
    c.event("several signatures, the second holds", r, [c.key])
    r = c.request.copy()
    r.drop("X-Plivo-Signature-V3")
    r.set("X-Plivo-Signature-Ma-V3", c.request.get("X-Plivo-Signature-V3"))
    c.event("the main account's signature", r, [c.key])


def postmark_events(r):
    body, kind = r.json, r.json.get("RecordType")
    trace = r.get("X-PM-Webhook-Trace-Id")
    if trace:
        return [(trace, kind)]
    if kind is None:
        return [(f"Inbound:{body['MessageID']}", "Inbound")]
    return [(f"{kind}:{body['ID']}" if "ID" in body else f"{kind}:{body['MessageID']}:{sha(r.body)}", kind)]


def postmark_cases(c):
    basic_or_token("X-Webhook-Token")(c)
    r = sample(c.name, "Open", c.key, NOW, "no trace")
    r.drop("X-PM-Webhook-Trace-Id")
    c.event("no trace id", c.sign(r), [c.key])
    r = sample(c.name, "Open", c.key, NOW)
    r.set("X-PM-Retries-Remaining", "5")
    c.event("another attempt", c.sign(r), [c.key])


def basic_or_token(header):
    def cases(c):
        r = sample(c.name, samples_of(c.name)[0], c.key, NOW, "other way")
        r.set(header, plain(c.name, 1))
        c.event("a header", r, [plain(c.name, 1)])
        c.rejected("a header, wrong", r, [plain(c.name, 2)])

    return cases


def pandadoc_events(r):
    return [(f"{i['event']}:{i['data']['id']}:{sha(compact(i))}", i["event"]) for i in r.json]


def sinch(r, key, at):
    nonce, t = r.get("x-sinch-webhook-signature-nonce"), r.get("x-sinch-webhook-signature-timestamp")
    r.set("x-sinch-webhook-signature", b64(mac(key, r.body + f".{nonce}.{t}".encode())))


def sinch_cases(c):
    bad = c.request.copy()
    bad.set("x-sinch-webhook-signature-nonce", "another")
    c.rejected("another nonce", bad, [c.key])

    def report(channel):
        r = sample(c.name, "message_delivery_report", c.key, NOW - 2, "channels")
        r.body = r.body.replace(b'"DELIVERED"', b'"QUEUED_ON_CHANNEL","channel_identity":{"channel":"%s"}' % channel)
        return c.sign(r)

    c.apart(("queued on a channel", report(b"RCS")), ("queued on the next channel", report(b"SMS")))


def sinch_events(r):
    if "message" in r.json:
        return [("message:" + r.json["message"]["id"], "message")]
    report = r.json["message_delivery_report"]
    return [(f"report:{report['message_id']}:{report['status']}:{sha(compact(report))}", "message_delivery_report")]


def sparkpost_events(r):
    return [(event["event_id"], event["type"]) for i in r.json for event in i["msys"].values()]


def sparkpost_cases(c):
    c.challenge("test batch", c.post(b'[{"msys":{}}]'), [c.key])
    c.rejected("an event without a password", c.post(b'[{"msys":{"message_event":{"type":"delivery","event_id":"1"}}}]'), [c.key])
    basic_or_token("X-MessageSystems-Webhook-Token")(c)


def trello(r, key, at):
    r.set("X-Trello-Webhook", b64(mac(key, r.body + r.url.encode(), "sha1")))


def trello_cases(c):
    c.challenge("head", c.get(method="HEAD"), [c.key])
    bad = c.request.copy()
    bad.url += "/"
    c.rejected("another url", bad, [c.key])


def viber_cases(c):
    body = {"event": "delivered", "timestamp": NOW * 1000, "message_token": 4912661846655238145}
    c.apart(*((f"a broadcast, delivered to {who}", c.sign(c.post(body | {"user_id": who}))) for who in ("A=", "B=")))


def x_events(r):
    if "data" in r.json:
        data = r.json["data"]
        return [(f"{data['event_type']}:{data['event_uuid']}:{sha(compact(data['filter']))}", data["event_type"])]
    kind = next(k for k in r.json if k.endswith("_events"))
    return [(i.get("id_str") or f"{r.json['for_user_id']}:{sha(compact(i))}", kind) for i in r.json[kind]]


def x_cases(c):
    for case, crc in (("plain", "sample-token_1.~"), ("base64", "c2FtcGxlLXRva2VuLTE/Pz4+Pg==")):
        answer = compact({"response_token": "sha256=" + b64(mac(c.key, crc))})
        c.challenge(f"challenge, {case}", c.get("?crc_token=" + urllib.parse.quote(crc, safe="")), [c.key], answer)
    forged = urllib.parse.quote(c.request.body.decode(), safe="")
    c.rejected("a challenge that is a body", c.get("?crc_token=" + forged), [c.key])
    for token in ("abcd", "c2FtcGxl", "1"):
        r = c.post(token.encode())
        r.set(c.provider.where[0], "sha256=" + b64(mac(c.key, token)))
        c.rejected(f"an answered challenge as an event, {token}", r, [c.key])
    # Signed with the client secret of OAuth 2.0, alone or beside the old header.
    header, old = "x-twitter-webhooks-signature-oauth2", c.provider.where[0]
    signature = lambda r, key: "sha256=" + b64(mac(key, r.body))
    for file in ("post.create", "tweet_create_events"):
        r = sample(c.name, file, c.key, NOW, "oauth2")
        r.set(header, signature(r, c.key))
        c.event(f"OAuth 2.0 {file}", r, [c.key])
        c.rejected(f"OAuth 2.0 {file}, wrong key", r, [c.other])
        c.rejected(f"OAuth 2.0 {file}, tampered", tampered(c.provider, r), [c.key])
    r.set(old, signature(r, c.other))
    for case, secrets in (("the new secret", [c.key]), ("the old secret", [c.other]), ("both secrets", [c.key, c.other])):
        c.event(f"both headers, {case}", r, secrets)
    r.set(header, signature(r, "another"))
    r.set(old, signature(r, "another"))
    c.rejected("both headers, both wrong", r, [c.key, c.other])
    r = sample(c.name, "post.create", c.key, NOW, "no prefix")
    r.set(header, b64(mac(c.key, r.body)))
    c.rejected("OAuth 2.0, no prefix", r, [c.key])


PROVIDERS = {
    "brevo": Provider(bearer, brevo_events, "Authorization", tamper=None, cases=brevo_cases),
    "calendly": Provider(stamped("Calendly-Webhook-Signature", "t={t},v1={s}"), joined("event", "event", "payload/uri", "created_at"), "Calendly-Webhook-Signature", tolerance=180),
    "clickup": Provider(body_hex("X-Signature"), clickup_events, "X-Signature", cases=clickup_cases),
    "customerio": Provider(stamped("X-CIO-Signature", "{s}", "v0:{t}:{body}", time_header="X-CIO-Timestamp"), lambda r: [(r.json["event_id"], f"{r.json['object_type']}.{r.json['metric']}")], "X-CIO-Signature", tolerance=300),
    "freshdesk": Provider(basic, freshdesk_events, "Authorization", credentials, tamper=None, cases=basic_or_token("X-Webhook-Token")),
    "front": Provider(stamped("X-Front-Signature", "{s}", "{t}:{body}", time_header="X-Front-Request-Timestamp", encode=b64), fields("payload/id", "type"), "X-Front-Signature", tolerance=300, answer="", cases=front_cases),
    "intercom": Provider(body_hex("X-Hub-Signature", "sha1=", "sha1"), fields("id", "topic"), "X-Hub-Signature", lambda n, i: str(uuid.UUID(int=i)), answer="", cases=intercom_cases),
    "klaviyo": Provider(klaviyo, items("data", "external_id", "topic"), "Klaviyo-Signature"),
    "linkedin": Provider(linkedin, linkedin_events, "X-LI-Signature", cases=linkedin_cases),
    "mailchimp": Provider(query_token("token"), mailchimp_events, "query:token", tamper=None, answer="", cases=mailchimp_cases),
    "microsoft_graph": Provider(in_sample, graph_events, "json:clientState", tamper=None, answer="", cases=graph_cases),
    "msteams": Provider(msteams, fields("id", "type"), "Authorization", whsec(""), answer='{"type":"message","text":"Received."}'),
    "onfido": Provider(body_hex("X-SHA2-Signature"), onfido_events, "X-SHA2-Signature"),
    "pandadoc": Provider(pandadoc, pandadoc_events, "query:signature"),
    "persona": Provider(stamped("Persona-Signature", "t={t},v1={s}"), fields("data/id", "data/attributes/name"), "Persona-Signature", prefixed("wbhsec_"), 300, cases=persona_cases),
    "plivo": Provider(plivo, plivo_events, "X-Plivo-Signature-V3", hexadecimal(40), answer="<Response></Response>", cases=plivo_cases),
    "postmark": Provider(basic, postmark_events, "Authorization", credentials, tamper=None, answer="", cases=postmark_cases),
    "sendgrid_inbound": Provider(query_token("token"), lambda r: [(sha(r.body), "mail.received" + ("." + r.query["kind"] if "kind" in r.query else ""))], "query:token", tamper=None),
    "sinch": Provider(sinch, sinch_events, "x-sinch-webhook-signature", tolerance=300, cases=sinch_cases),
    "sparkpost": Provider(basic, sparkpost_events, "Authorization", credentials, tamper=None, answer="", cases=sparkpost_cases),
    "tally": Provider(body_base64("Tally-Signature"), fields("eventId", "eventType"), "Tally-Signature"),
    "tiktok": Provider(stamped("TikTok-Signature", "t={t},s={s}"), lambda r: [(f"{r.json['event']}:{r.json['create_time']}:{sha(r.body)}", r.json["event"])], "TikTok-Signature", tolerance=300, answer=""),
    "trello": Provider(trello, fields("action/id", "action/type"), "X-Trello-Webhook", hexadecimal(64), answer="", cases=trello_cases),
    "typeform": Provider(lambda r, key, at: r.set("Typeform-Signature", "sha256=" + b64(mac(key, r.body))), fields("event_id", "event_type"), "Typeform-Signature"),
    "viber": Provider(body_hex("X-Viber-Content-Signature"), joined("event", "event", "message_token", "user_id?"), "X-Viber-Content-Signature", answer="", cases=viber_cases),
    "x": Provider(lambda r, key, at: r.set("x-twitter-webhooks-signature", "sha256=" + b64(mac(key, r.body))), x_events, ["x-twitter-webhooks-signature", "x-twitter-webhooks-signature-oauth2"], cases=x_cases),
}
