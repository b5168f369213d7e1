"""Senders whose bodies are encrypted, in several parts, or XML. Those that need `cryptography` are left out without it."""

import struct
import xml.etree.ElementTree as ElementTree

from base import *

try:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    import public
except ImportError:
    public = None


# --- Alipay ---------------------------------------------------------------------------------------------------------


def alipay(r, key, at):
    pairs = sorted((name, value) for name, value in r.form if name not in ("sign", "sign_type"))
    text = "&".join(f"{name}={value}" for name, value in pairs).encode()
    sha1 = dict(r.form)["sign_type"] == "RSA"
    signature = public.rsa(public.PRIVATE[key], text, public.hashes.SHA1 if sha1 else public.hashes.SHA256)
    r.body += b"&sign=" + urllib.parse.quote(b64(signature), safe="").encode()


def alipay_events(r):
    fields = dict(r.form)
    return [(fields["notify_id"], f"{fields['notify_type']}.{fields['trade_status']}")]


def alipay_cases(c):
    r = sample(c.name, samples_of(c.name)[0], c.key, NOW - 2, "rsa1")
    r.body = r.body.replace(b"sign_type=RSA2", b"sign_type=RSA")
    alipay(r, c.key, NOW)
    c.event("SHA-1", r, [c.key])
    bad = r.copy()
    bad.body = bad.body.replace(b"sign_type=RSA", b"sign_type=RSA2")
    c.rejected("SHA-1 said to be SHA-256", bad, [c.key])
    bad = r.copy()
    bad.body = bad.body.replace(b"sign_type=RSA", b"sign_type=MD5")
    c.rejected("an algorithm that is not known", bad, [c.key])
    r = sample(c.name, samples_of(c.name)[0], c.key, NOW - 2, "other app")
    r.body = r.body.replace(b"app_id=2021000000000001", b"app_id=2021000000000002")
    alipay(r, c.key, NOW)
    c.rejected("for another application", r, [c.key])


# --- Dropbox Sign ---------------------------------------------------------------------------------------------------


def dropbox_json(r):
    return json.loads(r.body.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n--", 1)[0])


def dropbox_sign(r, key, at):
    event = json.loads(r.body.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n--", 1)[0])["event"]
    value = mac(key, event["event_time"] + event["event_type"]).hex()
    r.body = r.body.replace(b"{{signature}}", value.encode())


def dropbox_events(r):
    body = dropbox_json(r)
    event = body["event"]
    parts = [
        event["event_hash"],
        body.get("signature_request", {}).get("signature_request_id"),
        body.get("template", {}).get("template_id"),
        event["event_metadata"].get("related_signature_id"),
    ]
    return [(":".join(part for part in parts if part), event["event_type"])]


def dropbox_cases(c):
    event = {"event_type": "callback_test", "event_time": str(NOW), "event_hash": "{{signature}}", "event_metadata": {}}

    def part(body):
        text = f'--x\r\nContent-Disposition: form-data; name="json"\r\n\r\n{compact(body)}\r\n--x--\r\n'
        return post(c.name, text.encode(), [("Content-Type", "multipart/form-data; boundary=x")])

    r = c.sign(part({"event": event}))
    c.challenge("the test of the URL", r, [c.key], "Hello API Event Received")
    c.rejected("the test of the URL, wrong key", r, [c.other])
    encoded = c.form([("json", compact(dropbox_json(c.request)))])
    c.event("as a form", encoded, [c.key], dropbox_events(c.request))
    bad = c.request.copy()
    bad.body = bad.body[: len(bad.body) // 2]
    c.rejected("cut", bad, [c.key])
    bad = c.request.copy()
    bad.body = bad.body.replace(b'name="json"', b'name="other"')
    c.rejected("another field", bad, [c.key])


# --- WeCom ----------------------------------------------------------------------------------------------------------


def wecom_key(name, n):
    token = f"notARealToken{n}"
    return f"{token}:{b64(hashlib.sha256(token.encode()).digest()).rstrip('=').replace('+', 'a').replace('/', 'b')}"


def wecom_cipher(key):
    aes = base64.b64decode(key.split(":")[1] + "=")
    return Cipher(algorithms.AES(aes), modes.CBC(aes[:16]))


def wecom_encrypt(key, text):
    data = b"0123456789abcdef" + struct.pack(">I", len(text)) + text + b"ww0000000000000001"
    pad = 32 - len(data) % 32
    encryptor = wecom_cipher(key).encryptor()
    return b64(encryptor.update(data + bytes([pad]) * pad) + encryptor.finalize())


def wecom_hash(key, r, ciphertext):
    parts = [key.split(":")[0], r.query["timestamp"], r.query["nonce"], ciphertext]
    return hashlib.sha1("".join(sorted(parts)).encode()).hexdigest()


PLAIN = {}


def wecom(r, key, at):
    ciphertext = wecom_encrypt(key, r.body)
    if r.body.startswith(b"{"):
        body = compact({"encrypt": ciphertext}).encode()
    else:
        body = f"<xml><ToUserName><![CDATA[ww0000000000000001]]></ToUserName><Encrypt><![CDATA[{ciphertext}]]></Encrypt></xml>".encode()
    PLAIN[body] = r.body
    r.body = body
    r.set_query("msg_signature", wecom_hash(key, r, ciphertext))


def wecom_events(r):
    tree = ElementTree.fromstring(PLAIN[r.body])
    field = lambda name: tree.findtext(name)
    if field("MsgType") != "event":
        return [(field("MsgId"), field("MsgType"))]
    kind = ".".join(part for part in ("event", field("Event"), field("ChangeType")) if part)
    return [(f"{field('FromUserName')}:{field('CreateTime')}:{field('Event')}:{sha(PLAIN[r.body])}", kind)]


def wecom_tampered(r):
    """The last letter of the ciphertext that is not padding."""
    return re.sub(rb"(.)(.=*)(\]\]></Encrypt>)", lambda m: (b"A" if m[1] != b"A" else b"B") + m[2] + m[3], r.body)


def wecom_cases(c):
    def added(customer):
        fields = {"FromUserName": "sys", "CreateTime": NOW, "MsgType": "event", "Event": "change_external_contact", "ChangeType": "add_external_contact", "UserID": "zhangsan", "ExternalUserID": customer}
        text = "<xml>" + "".join(f"<{name}>{value}</{name}>" for name, value in fields.items()) + "</xml>"
        r = post(c.name, text.encode(), [("Content-Type", "text/xml")], f"?timestamp={NOW}&nonce={customer}")
        wecom(r, c.key, NOW)
        return r

    c.apart(*((f"a customer is added, {customer}", added(customer)) for customer in ("w1", "w2")))
    r = post(c.name, b'{"msgid":"m-1","msgtype":"text","from":{"userid":"u"},"text":{"content":"hi"}}', [JSON], f"?timestamp={NOW}&nonce=n1")
    wecom(r, c.key, NOW)
    c.event("a bot's message, JSON", r, [c.key], [("m-1", "text")])
    c.rejected("a bot's message, wrong key", r, [c.other])
    ciphertext = wecom_encrypt(c.key, b"1616140317555161061")
    r = c.get(f"?timestamp={NOW}&nonce=n2&echostr={urllib.parse.quote(ciphertext, safe='')}")
    r.set_query("msg_signature", wecom_hash(c.key, r, ciphertext))
    c.challenge("the challenge", r, [c.key], "1616140317555161061")
    c.challenge("the challenge, the older secret", r, [c.other, c.key], "1616140317555161061")
    c.rejected("the challenge, wrong key", r, [c.other])
    bad = r.copy()
    bad.set_query("nonce", "n3")
    c.rejected("the challenge, another nonce", bad, [c.key])
    bad = c.request.copy()
    bad.set_query("timestamp", str(NOW - 1))
    c.rejected("another time", bad, [c.key])
    bad = c.request.copy()
    bad.body = b'<!DOCTYPE x [<!ENTITY e "e">]>' + bad.body
    c.rejected("a document type", bad, [c.key])


# --- Hook0 ----------------------------------------------------------------------------------------------------------


def hook0(r, key, at):
    names = ["x-event-id", "x-event-type"]
    values = ".".join(r.get(name) for name in names)
    value = mac(key, f"{at}.{' '.join(names)}.{values}.".encode() + r.body).hex()
    r.set("X-Hook0-Signature", f"t={at},h={' '.join(names)},v1={value}")


def hook0_cases(c):
    for case, change in (("another id", ("X-Event-Id", "other")), ("another type", ("X-Event-Type", "other"))):
        bad = c.request.copy()
        bad.set(*change)
        c.rejected(case, bad, [c.key])
    bad = c.request.copy()
    bad.drop("X-Event-Type")
    c.rejected("without a signed header", bad, [c.key])
    bad = c.request.copy()
    bad.set("X-Hook0-Signature", re.sub("h=[^,]*", "h=x-event-id", bad.get("X-Hook0-Signature")))
    c.rejected("fewer headers", bad, [c.key])
    r = c.request.copy()
    r.set("X-Hook0-Signature", f"t={NOW},v0={mac(c.key, f'{NOW}.'.encode() + r.body).hex()}")
    c.rejected("version 0", r, [c.key])
    value = re.search("v1=(.*)", c.request.get("X-Hook0-Signature"))[1]
    names = re.search("h=([^,]*)", c.request.get("X-Hook0-Signature"))[1]
    values = ".".join(c.request.get(name) for name in names.split(" "))
    r = c.request.copy()
    r.body = f"{names}.{values}.".encode() + r.body
    r.set("X-Hook0-Signature", f"t={NOW - 2},v0={value}")
    c.rejected("version 1 as version 0 of another body", r, [c.key])


# --- Salesforce -----------------------------------------------------------------------------------------------------


def salesforce_events(r):
    tree = ElementTree.fromstring(r.body)
    found = [node for node in tree.iter() if node.tag.endswith("}Notification")]
    kind = "{http://www.w3.org/2001/XMLSchema-instance}type"
    child = lambda node, name: next(one for one in node if one.tag.endswith("}" + name))
    return [(child(node, "Id").text, child(node, "sObject").get(kind)) for node in found]


def salesforce_cases(c):
    r = c.request.copy()
    start, end = r.body.index(b"<Notification>"), r.body.index(b"</notifications>")
    one = r.body[start:end]
    r.body = r.body[:end] + re.sub(rb"<Id>04l\d", b"<Id>04lX", one) + r.body[end:]
    c.event("a batch", r, [c.key])
    bad = c.request.copy()
    bad.body = bad.body.replace(b"00D000000000001EAA", b"00D000000000002EAA")
    c.rejected("of another organization", bad, [c.key])
    bad = c.request.copy()
    bad.body = b'<!DOCTYPE x [<!ENTITY e "e">]>' + bad.body
    c.rejected("a document type", bad, [c.key])


# --- Lark -----------------------------------------------------------------------------------------------------------


def lark_key(name, n):
    return f"notARealToken{n}:not-a-real-encrypt-key-{n}"


def lark_encrypt(key, text):
    iv = b"0123456789abcdef"
    aes = hashlib.sha256(key.split(":")[1].encode()).digest()
    pad = 16 - len(text) % 16
    encryptor = Cipher(algorithms.AES(aes), modes.CBC(iv)).encryptor()
    return b64(iv + encryptor.update(text + bytes([pad]) * pad) + encryptor.finalize())


def lark_sign(r, key):
    head = r.get("X-Lark-Request-Timestamp") + r.get("X-Lark-Request-Nonce") + key.split(":")[1]
    r.set("X-Lark-Signature", hashlib.sha256(head.encode() + r.body).hexdigest())


def lark(r, key, at):
    body = compact({"encrypt": lark_encrypt(key, r.body)}).encode()
    PLAIN[body] = r.body
    r.body = body
    lark_sign(r, key)


def lark_events(r):
    body = json.loads(PLAIN.get(r.body, r.body))
    head = body.get("header")
    return [(head["event_id"], head["event_type"])] if head else [(body["uuid"], body["event"]["type"])]


def lark_tampered(r):
    """The last letter of the ciphertext that is not padding."""
    return re.sub(rb"(.)(.=*)(\"})", lambda m: (b"A" if m[1] != b"A" else b"B") + m[2] + m[3], r.body)


def lark_cases(c):
    token, encrypt_key = c.key.split(":")
    for name in ("X-Lark-Request-Nonce", "X-Lark-Request-Timestamp"):
        bad = c.request.copy()
        bad.set(name, "1")
        c.rejected(f"another {name}", bad, [c.key])
        bad.drop(name)
        c.rejected(f"no {name}", bad, [c.key])
    bad = c.request.copy()
    bad.body = lark_tampered(bad)
    bad.drop("X-Lark-Signature")
    c.rejected("unsigned and tampered", bad, [c.key])
    r = c.request.copy()
    r.body = compact({"encrypt": lark_encrypt(c.other, b'{"uuid":"1"}')}).encode()
    lark_sign(r, c.key)
    c.malformed("signed, and encrypted with another key", r, [c.key])
    # The challenge: encrypted, as a rule not signed.
    body = {"challenge": 'sample"challenge', "token": token, "type": "url_verification"}
    answer = compact({"challenge": body["challenge"]})

    def asked(changes, key=c.key, text=None):
        text = compact({k: v for k, v in (body | changes).items() if v is not None}) if text is None else text
        return c.post({"encrypt": lark_encrypt(key, text.encode())})

    c.challenge("challenge, encrypted", asked({}), [c.key], answer)
    r = asked({})
    r.set("X-Lark-Request-Timestamp", str(NOW))
    r.set("X-Lark-Request-Nonce", "1")
    lark_sign(r, c.key)
    c.challenge("challenge, encrypted and signed", r, [c.key], answer)
    r.set("X-Lark-Signature", "0" * 64)
    c.rejected("challenge, encrypted and signed wrongly", r, [c.key])
    for case, r in (
        ("another token", asked({"token": "another"})),
        ("no token", asked({"token": None})),
        ("an empty token", asked({"token": ""})),
        ("no challenge", asked({"challenge": None})),
        ("another type", asked({"type": "event_callback"})),
        ("another key", asked({}, c.other)),
        ("no JSON", asked({}, text="x" * 40)),
        ("not encrypted", c.post(body)),
        ("the ciphertext is cut", c.post({"encrypt": lark_encrypt(c.key, b"x" * 40)[:30]})),
        ("no ciphertext", c.post({"encrypt": ""})),
    ):
        c.rejected(f"challenge, {case}", r, [c.key])
    # With the verification token alone.
    r = sample(c.name, "user_add", token, NOW - 2, "token")
    c.event("token alone", r, [token])
    c.event("token alone, the older secret", r, ["another", token])
    c.rejected("token alone, wrong", r, ["another"])
    c.rejected("token alone, where a key is registered", r, [c.key])
    c.rejected("token alone, an encrypted body", c.request, [token])
    bad = r.copy()
    bad.body = bad.body.replace(token.encode(), b"")
    c.rejected("token alone, empty", bad, [token])
    c.challenge("token alone, challenge", c.post(body), [token], answer)
    c.rejected("token alone, challenge, wrong token", c.post(body), ["another"])
    c.rejected("token alone, an encrypted challenge", asked({}), [token])


PROVIDERS = {
    "dropbox_sign": Provider(dropbox_sign, dropbox_events, "json:event_hash", hexadecimal(64), tamper=lambda r: r.body.replace(b'"event_type":"', b'"event_type":"x'), answer="Hello API Event Received", cases=dropbox_cases),
    "hook0": Provider(hook0, headers("X-Event-Id", "X-Event-Type"), "X-Hook0-Signature", tolerance=300, cases=hook0_cases),
    "salesforce": Provider(query_token("token"), salesforce_events, "query:token", tamper=None, config={"organization": "00D000000000001EAA"}, cases=salesforce_cases),
}
if public:
    PROVIDERS["alipay"] = Provider(alipay, alipay_events, "form:sign", public.spki_pem("rsa"), tamper=lambda r: r.body.replace(b"total_amount=", b"total_amount=1"), answer="success", config={"app_id": "2021000000000001"}, cases=alipay_cases)
    PROVIDERS["lark"] = Provider(lark, lark_events, "X-Lark-Signature", lark_key, tamper=lark_tampered, answer="{}", cases=lark_cases)
    PROVIDERS["wecom"] = Provider(wecom, wecom_events, "query:msg_signature", wecom_key, tamper=wecom_tampered, answer="", cases=wecom_cases)
