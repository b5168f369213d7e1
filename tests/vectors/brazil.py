"""Senders of Brazil, where a token is the rule and an id the exception."""

from base import *


def clicksign_events(r):
    event = r.json["event"]
    parts = [r.json["document"]["key"], event["name"], event["occurred_at"], at_path(event, "data/signer/key")]
    return [(":".join(part for part in parts if part), event["name"])]


def cielo_events(r):
    return [(f"{r.json.get('PaymentId') or r.json['RecurrentPaymentId']}:{r.json['ChangeType']}", f"change.{r.json['ChangeType']}")]


def efi_events(r):
    kind = r.query.get("kind")
    return [(dict(r.form)["notification"], "charge.changed" + (f".{kind}" if kind else ""))]


def efi_pix(r, key, at):
    """The sender was given …?hmac=KEY&ignorar= and adds /pix to the end."""
    r.url = r.url.split("?")[0] + "?" + urllib.parse.urlencode({"hmac": key}) + "&ignorar=/pix"


def efi_pix_events(r):
    return [(i["endToEndId"], "pix.devolucoes" if "devolucoes" in i else "pix") for i in r.json["pix"]]


def efi_pix_cases(c):
    test = c.sign(c.post({"evento": "teste_webhook", "data_criacao": "2026-01-05T10:00:00Z"}))
    c.challenge("test", test, [c.key], "200")
    c.rejected("test, wrong token", test, [c.other])
    proved = c.request.copy()
    proved.url = proved.url.split("?")[0] + "/pix"
    proved.set("X-Client-Certificate-Verified", c.key)
    c.event("mutual TLS, as the proxy says", proved, [c.key])
    c.rejected("mutual TLS, another proxy's word", proved, [c.other])
    proved.set("X-Client-Certificate-Verified", "SUCCESS")
    c.rejected("mutual TLS, as anybody says", proved, [c.key])


def ifood_cases(c):
    r = c.sign(c.post({"code": "KEEPALIVE", "fullCode": "KEEPALIVE", "id": "e1", "merchantIds": ["m1"]}))
    c.challenge("keepalive", r, [c.key])
    c.rejected("keepalive, wrong key", r, [c.other])
    spaced = c.request.copy()
    spaced.body = json.dumps(spaced.json).encode()
    c.rejected("other spaces", spaced, [c.key])


def iugu_events(r):
    form = dict(r.form)
    if "data[status]" in form:
        return [(f"{form['event']}:{form['data[id]']}:{form['data[status]']}", form["event"])]
    return [(f"{form['event']}:{sha(r.body)}", form["event"])]


def url_token(c):
    r = sample(c.name, samples_of(c.name)[0], c.key, NOW, "other way")
    r.set_query("token", plain(c.name, 1))
    c.event("a token in the URL", r, [plain(c.name, 1)])
    c.rejected("a token in the URL, wrong", r, [plain(c.name, 2)])


def kiwify(r, key, at):
    r.set_query("signature", mac(key, r.body, "sha1").hex())


def kiwify_cases(c):
    r = sample(c.name, "order_approved", c.key, NOW, "empty key")
    kiwify(r, "", NOW)
    c.rejected("signed with an empty key", r, [c.key])
    r = sample(c.name, "order_approved", c.key, NOW, "query")
    r.url += "?shop=1"
    c.event("a URL with a query", c.sign(r), [c.key])


def melhor_envio_cases(c):
    c.challenge("test", c.post(b""), [c.key])
    c.rejected("an event without a signature", c.post({"event": "order.posted"}), [c.key])
    r = sample(c.name, "order.posted", c.key, NOW, "hex")
    r.set("X-ME-Signature", mac(c.key, r.body).hex())
    c.event("hexadecimal", r, [c.key])
    c.rejected("hexadecimal, wrong key", r, [c.other])


def nuvemshop_events(r):
    return [(":".join(text(r.json[k]) for k in ("store_id", "event", "id") if k in r.json), r.json["event"])]


def pagbank(r, key, at):
    r.set("x-authenticity-token", hashlib.sha256(f"{key}-".encode() + r.body).hexdigest())


def pagbank_cases(c):
    r = c.request.copy()
    r.set("x-authenticity-token", mac(c.key, r.body).hex())
    c.rejected("an HMAC", r, [c.key])


def pagbank_events(r):
    if "charges" not in r.json:
        return [(f"{r.json['id']}:{r.json['status']}", f"status.{r.json['status']}")]
    charge = r.json["charges"][0]
    return [(f"{r.json['id']}:{charge['id']}:{charge['status']}", f"charge.{charge['status']}")]


def qitech(r, key, at):
    r.set("Signature", mac(key, (r.url + r.method).encode() + r.body, "sha1").hex())


def qitech_events(r):
    if "webhook_type" in r.json:
        return [(f"{r.json['webhook_type']}:{sha(r.body)}", r.json["webhook_type"])]
    status = r.json["analysis_status"]
    return [(f"{r.json['id']}:{status}:{r.json['event_date']}", f"analysis.{status}")]


def qitech_cases(c):
    bad = c.request.copy()
    bad.url += "/"
    c.rejected("another url", bad, [c.key])


def rdstation_events(r):
    if "contact" in r.json:
        body = r.json
        parts = [body["event_type"], body["contact"]["uuid"], body["event_timestamp"], body.get("event_identifier")]
        return [(":".join(part for part in parts if part), body["event_type"])]
    if "leads" not in r.json:
        return [(r.json["transaction_uuid"], r.json["event_name"])]
    return [(f"{lead['uuid']}:{sha(compact(lead))}", "lead." + r.query["kind"]) for lead in r.json["leads"]]


def rdstation_cases(c):
    contact = {"uuid": "c2f3d2b3-7250-4d27-97f4-eef38be32f7f", "email": "user@example.com"}
    body = {"event_type": "WEBHOOK.MARKED_OPPORTUNITY", "entity_type": "CONTACT", "event_timestamp": "2026-01-05T10:00:00.000Z", "contact": contact}
    c.event("an event without an identifier", c.sign(c.post(body)), [c.key])
    c.rejected("an event without a token", c.post(body), [c.key])


def vindi_events(r):
    event = r.json["event"]
    return [(f"{event['type']}:{event['created_at']}:{sha(r.body)}", event["type"])]


def vtex_cases(c):
    c.challenge("test", c.post({"hookConfig": "ping"}), [c.key])
    c.rejected("an order that calls itself a test", c.post({"hookConfig": "ping", "OrderId": "v1"}), [c.key])


def zapi_events(r):
    body = r.json
    if "ids" in body:
        return [(f"{body['type']}:{body['ids'][0]}:{body['status']}:{body['momment']}", body["type"])]
    return [(f"{body['type']}:{body['messageId']}:{body['status']}", body["type"])]


PROVIDERS = {
    "bling": Provider(body_hex("X-Bling-Signature-256", "sha256="), fields("eventId", "event"), "X-Bling-Signature-256", hexadecimal(60)),
    "celcoin": Provider(in_sample, fields("webhookId", "event"), "json:confirmHash", tamper=None),
    "cielo": Provider(token("X-Webhook-Token"), cielo_events, "X-Webhook-Token", tamper=None, answer=""),
    "clicksign": Provider(body_hex("Content-Hmac", "sha256="), clicksign_events, "Content-Hmac", hexadecimal(32)),
    "efi": Provider(query_token("token"), efi_events, "query:token", tamper=None, answer=""),
    "efi_pix": Provider(efi_pix, efi_pix_events, "query:hmac", tamper=None, answer="200", cases=efi_pix_cases),
    "hotmart": Provider(token("X-HOTMART-HOTTOK"), fields("id", "event"), "X-HOTMART-HOTTOK", tamper=None),
    "ifood": Provider(body_hex("X-IFood-Signature"), fields("id", "fullCode"), "X-IFood-Signature", answer="", cases=ifood_cases),
    "iugu": Provider(token("Authorization"), iugu_events, "Authorization", tamper=None, answer="", cases=url_token),
    "kiwify": Provider(kiwify, joined("webhook_event_type", "order_id", "webhook_event_type", "updated_at"), "query:signature", cases=kiwify_cases),
    "melhor_envio": Provider(body_base64("X-ME-Signature"), lambda r: [(f"{r.json['event']}:{r.json['data']['id']}:{sha(r.body)}", r.json["event"])], "X-ME-Signature", cases=melhor_envio_cases),
    "nuvemshop": Provider(body_hex("x-linkedstore-hmac-sha256"), nuvemshop_events, "x-linkedstore-hmac-sha256"),
    "pagbank": Provider(pagbank, pagbank_events, "x-authenticity-token", cases=pagbank_cases),
    "qitech": Provider(qitech, qitech_events, "Signature", cases=qitech_cases),
    "rdstation": Provider(query_token("token"), rdstation_events, "query:token", tamper=None, cases=rdstation_cases),
    "vindi": Provider(basic, vindi_events, "Authorization", credentials, tamper=None, cases=url_token),
    "vtex": Provider(token("X-Webhook-Token"), joined("State", "OrderId", "State", "LastChange"), "X-Webhook-Token", tamper=None, answer="", cases=vtex_cases),
    "yampi": Provider(body_base64("X-Yampi-Hmac-SHA256"), joined("event", "event", "resource/id", "time"), "X-Yampi-Hmac-SHA256", prefixed("wh_")),
    "zapi": Provider(query_token("token"), zapi_events, "query:token", tamper=None),
}
