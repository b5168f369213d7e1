"""Senders of Brazil, where a token is the rule and an id the exception."""

from base import *


def clicksign_events(r):
    event = r.json["event"]
    return [(f"{r.json['document']['key']}:{event['name']}:{event['occurred_at']}:{sha(compact(event))}", event["name"])]


def clicksign_cases(c):
    signer = {"key": "s1", "name": "João ✓"}
    body = {"event": {"name": "sign", "occurred_at": "2026-01-05T07:00:00.123-03:00"}, "document": {"key": "d1", "status": "running"}}

    def signs(role, **more):
        event = body["event"] | {"data": {"signer": signer | {"sign_as": role}}}
        return c.sign(c.post(body | {"event": event} | more))

    first = signs("party")
    c.apart(("one signer in two roles, the first", first), ("one signer in two roles, the second", signs("witness")))
    c.again("again, and the document went on", first, signs("party", document={"key": "d1", "status": "closed"}))


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
    parts = [form[name] for name in ("event", "data[id]", "data[status]") if name in form]
    kind = form.get("event") or form.get("data[event]")
    if len(parts) < 3:
        parts = parts[:1] if "event" in form else []
    return [(":".join([*parts, sha(r.body)]), kind)]


def iugu_cases(c):
    url_token(c)
    paid = [("event", "invoice.status_changed"), ("data[id]", "I1"), ("data[status]", "partially_paid")]
    c.apart(*((f"paid in parts, {cents}", c.sign(c.form([*paid, ("data[paid_cents]", cents)]))) for cents in ("100", "200")))
    parts = [("event", "invoice.installment_released"), ("data[id]", "I1"), ("data[status]", "released")]
    c.apart(*((f"an instalment, {n}", c.sign(c.form([*parts, ("data[installment]", n)]))) for n in "12"))
    c.event("the event's name in the data", c.sign(c.form([("data[event]", "transfer.credited"), ("data[transfer_id]", "T1")])), [c.key])


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

    def charge(status, refunded, name="CHAR_1"):
        return {"id": name, "status": status, "amount": {"value": 3990, "currency": "BRL", "summary": {"total": 3990, "paid": 3990, "refunded": refunded}}}

    def order(*charges, **more):
        return c.sign(c.post({"id": "ORDE_1", "charges": charges} | more))

    first = order(charge("PAID", 1000))
    c.apart(("a part is paid back", first), ("another part is paid back", order(charge("PAID", 2500))), ("the rest is paid back", order(charge("CANCELED", 3990))))
    c.again("a part is paid back, told again", first, order(charge("PAID", 1000), links=[{"rel": "SELF"}]))
    declined = charge("DECLINED", 0)
    c.apart(("a first charge is declined", order(declined)), ("a second charge is paid", order(declined, charge("PAID", 0, "CHAR_2"))))
    c.apart(*((f"a part of a charge without an order, {n}", c.sign(c.post(charge("PAID", n)))) for n in (1000, 2500)))


def pagbank_events(r):
    if "charges" not in r.json:
        return [(f"{r.json['id']}:{r.json['status']}:{sha(r.body)}", f"status.{r.json['status']}")]
    charge = r.json["charges"][0]
    return [(f"{r.json['id']}:{charge['id']}:{charge['status']}:{sha(compact(r.json['charges']))}", f"charge.{charge['status']}")]


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
        parts = [r.json["transaction_uuid"], r.json["event_name"], at_path(r.json, "document/id")]
        return [(":".join(part for part in parts if part), r.json["event_name"])]
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
    name = f"{body['ids'][0]}:{body['status']}:{body['momment']}" if "ids" in body else f"{body['messageId']}:{body['status']}"
    return [(f"{body['type']}:{name}:{sha(r.body)}", body["type"])]


def zapi_cases(c):
    body = {"type": "ReceivedCallback", "messageId": "M1", "status": "RECEIVED", "isEdit": True}
    c.apart(*((f"a message is edited, {said}", c.sign(c.post(body | {"text": {"message": said}}))) for said in ("one", "two")))


PROVIDERS = {
    "bling": Provider(body_hex("X-Bling-Signature-256", "sha256="), fields("eventId", "event"), "X-Bling-Signature-256", hexadecimal(60)),
    "celcoin": Provider(in_sample, fields("webhookId", "event"), "json:confirmHash", tamper=None),
    "cielo": Provider(token("X-Webhook-Token"), cielo_events, "X-Webhook-Token", tamper=None, answer=""),
    "clicksign": Provider(body_hex("Content-Hmac", "sha256="), clicksign_events, "Content-Hmac", hexadecimal(32), cases=clicksign_cases),
    "efi": Provider(query_token("token"), efi_events, "query:token", tamper=None, answer=""),
    "efi_pix": Provider(efi_pix, efi_pix_events, "query:hmac", tamper=None, answer="200", cases=efi_pix_cases),
    "hotmart": Provider(token("X-HOTMART-HOTTOK"), fields("id", "event"), "X-HOTMART-HOTTOK", tamper=None),
    "ifood": Provider(body_hex("X-IFood-Signature"), fields("id", "fullCode"), "X-IFood-Signature", answer="", cases=ifood_cases),
    "iugu": Provider(token("Authorization"), iugu_events, "Authorization", tamper=None, answer="", cases=iugu_cases),
    "kiwify": Provider(kiwify, and_body(joined("webhook_event_type", "order_id", "webhook_event_type", "updated_at")), "query:signature", cases=kiwify_cases),
    "melhor_envio": Provider(body_base64("X-ME-Signature"), lambda r: [(f"{r.json['event']}:{r.json['data']['id']}:{sha(r.body)}", r.json["event"])], "X-ME-Signature", cases=melhor_envio_cases),
    "nuvemshop": Provider(body_hex("x-linkedstore-hmac-sha256"), nuvemshop_events, "x-linkedstore-hmac-sha256"),
    "pagbank": Provider(pagbank, pagbank_events, "x-authenticity-token", cases=pagbank_cases),
    "qitech": Provider(qitech, qitech_events, "Signature", cases=qitech_cases),
    "rdstation": Provider(query_token("token"), rdstation_events, "query:token", tamper=None, cases=rdstation_cases),
    "vindi": Provider(basic, vindi_events, "Authorization", credentials, tamper=None, cases=url_token),
    "vtex": Provider(token("X-Webhook-Token"), joined("State", "OrderId", "State", "LastChange", "CurrentChange?"), "X-Webhook-Token", tamper=None, answer="", cases=vtex_cases),
    "yampi": Provider(body_base64("X-Yampi-Hmac-SHA256"), and_body(joined("event", "event", "resource/id", "time")), "X-Yampi-Hmac-SHA256", prefixed("wh_")),
    "zapi": Provider(query_token("token"), zapi_events, "query:token", tamper=None, cases=zapi_cases),
}
