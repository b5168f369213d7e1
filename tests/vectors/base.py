"""What every provider's part shares: requests, samples, the usual algorithms, keys, and the cases that all have."""

import base64
import hashlib
import hmac
import json
import re
import time
import urllib.parse
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "providers"
NOW = 1767607200  # 2026-01-05T10:00:00Z


# --- requests -------------------------------------------------------------------------------------------------------


class Request:
    """A request as the sender is about to send it."""

    def __init__(self, method, url, headers=(), body=b""):
        self.method, self.url, self.headers, self.body = method, url, list(headers), body

    def get(self, name):
        for key, value in self.headers:
            if key.lower() == name.lower():
                return value
        return None

    def set(self, name, value):
        self.drop(name)
        self.headers.append((name, value))

    def drop(self, *names):
        lower = {name.lower() for name in names}
        self.headers = [(key, value) for key, value in self.headers if key.lower() not in lower]

    def copy(self):
        return Request(self.method, self.url, self.headers, self.body)

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def form(self):
        return urllib.parse.parse_qsl(self.body.decode(), keep_blank_values=True)

    @property
    def query(self):
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.url).query, keep_blank_values=True))

    def set_query(self, name, value):
        parts = urllib.parse.urlsplit(self.url)
        kept = [pair for pair in urllib.parse.parse_qsl(parts.query, keep_blank_values=True) if pair[0] != name]
        kept += [] if value is None else [(name, value)]
        self.url = urllib.parse.urlunsplit(parts._replace(query=urllib.parse.urlencode(kept)))

    @property
    def path(self):
        return urllib.parse.urlsplit(self.url).path


# The options of each provider, for `{{config:…}}`.
CONFIGS = {}


def fill(text, seed, secret, at):
    """Replaces the placeholders of a sample; `{{signature}}` is left to the signer."""

    def value(match):
        name = match.group(1)
        kind = name.split(":")[0]
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        if kind == "uuid":
            return str(uuid.UUID(bytes=digest[:16], version=4))
        if kind == "hex24":
            return digest.hex()[:24]
        if kind == "digits10":
            return str(1_000_000_000 + int.from_bytes(digest[:8], "big") % 9_000_000_000)
        if kind == "unix":
            return str(at)
        if kind == "unix_ms":
            return str(at * 1000)
        if kind == "rfc3339":
            return rfc3339(at)
        if kind == "secret":
            return secret
        if kind == "secret_id":
            return secret.split(":")[0]
        if kind == "config":
            return CONFIGS[seed.split("/")[0]][name.split(":")[1]]
        return match.group(0)

    return re.sub(r"\{\{([a-z0-9_]+(?::[a-z0-9_]+)?)\}\}", value, text)


def rfc3339(at):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def sample(name, file, secret, at, salt=""):
    # The line ends of a body are a part of it.
    text = (ROOT / name / "samples" / f"{file}.http").read_bytes().decode()
    head, _, body = text.partition("\n\n")
    body = body.removesuffix("\n")
    seed = f"{name}/{file}/{salt}"
    lines = fill(head, seed, secret, at).split("\n")
    method, target, _ = lines[0].split(" ")
    headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:]]
    is_form = any(key.lower() == "content-type" and "x-www-form" in value for key, value in headers)
    return Request(method, "https://hooks.example.com" + target, headers, encoded(fill(body, seed, secret, at), is_form).encode())


def encoded(text, is_form):
    """What stands between {{base64}} and {{end}}, in base64."""

    def value(match):
        plain = b64(match.group(1).encode())
        return urllib.parse.quote(plain, safe="") if is_form else plain

    return re.sub(r"\{\{base64\}\}(.*?)\{\{end\}\}", value, text, flags=re.DOTALL)


# --- the algorithms -------------------------------------------------------------------------------------------------


def mac(key, message, algorithm="sha256"):
    key = key.encode() if isinstance(key, str) else key
    message = message.encode() if isinstance(message, str) else message
    return hmac.new(key, message, getattr(hashlib, algorithm)).digest()


def b64(data):
    return base64.b64encode(data).decode()


def body_hex(header, prefix="", algorithm="sha256"):
    """HMAC of the body, hexadecimal, in one header."""
    return lambda r, key, at: r.set(header, prefix + mac(key, r.body, algorithm).hex())


def body_base64(header):
    """HMAC of the body, base64, in one header."""
    return lambda r, key, at: r.set(header, b64(mac(key, r.body)))


def standard(family="webhook"):
    """Standard Webhooks: id, time, body, joined by full stops; the key is base64 after its prefix."""

    def sign(r, key, at):
        raw = base64.b64decode(key.removeprefix("v1,").removeprefix("whsec_"))
        name = family if r.get(f"{family}-id") else "webhook"
        head = f"{r.get(name + '-id')}.{r.get(name + '-timestamp')}.".encode()
        r.set(f"{name}-signature", "v1," + b64(mac(raw, head + r.body)))

    return sign


def timed_items(header, template, joined):
    """`t=…,v1=…` in one header."""

    def sign(r, key, at):
        r.set(header, template.format(at, mac(key, f"{at}{joined}".encode() + r.body).hex()))

    return sign


def token(header):
    return lambda r, key, at: r.set(header, key)


def basic(r, key, at):
    r.set("Authorization", "Basic " + b64(key.encode()))


def sorted_fields(r):
    return "".join(name + value for name, value in sorted(set(r.form)))


def stamped(header, form, message="{t}.{body}", scale=1, time_header=None, algorithm="sha256", encode=bytes.hex, key_of=str):
    """A signature over time and body; the time stands in a header of its own, or in the signature's."""

    def sign(r, key, at):
        t = r.get(time_header) if time_header else str(at * scale)
        before, after = message.replace("{t}", t).split("{body}")
        value = mac(key_of(key), before.encode() + r.body + after.encode(), algorithm)
        r.set(header, form.format(t=t, s=encode(value)))

    return sign


def query_token(name):
    """A text of the operator's choice in the URL that the sender was given."""
    return lambda r, key, at: r.set_query(name, key)


def bearer(r, key, at):
    r.set("Authorization", f"Bearer {key}")


def in_sample(r, key, at):
    """The sample carries the secret."""


def header_then_body(time_header, signature_header, between="", encode=b64):
    def sign(r, key, at):
        r.set(signature_header, encode(mac(key, (r.get(time_header) + between).encode() + r.body)))

    return sign


# --- what the events are called -------------------------------------------------------------------------------------


def sha(data):
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def at_path(value, path):
    for part in path.split("/"):
        if isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else None
        elif isinstance(value, dict):
            value = value.get(part)
        if value is None:
            return None
    return value


def text(value):
    return value if isinstance(value, str) else None if value is None else json.dumps(value)


def fields(id_path, type_path):
    return lambda r: [(text(at_path(r.json, id_path)), text(at_path(r.json, type_path)))]


def header_id(header, type_path):
    return lambda r: [(r.get(header), text(at_path(r.json, type_path)))]


def headers(id_header, type_header):
    return lambda r: [(r.get(id_header), r.get(type_header))]


def items(list_path, id_path, *type_paths):
    def events(r):
        found = at_path(r.json, list_path) if list_path else r.json
        return [(text(at_path(i, id_path)), ".".join(text(at_path(i, p)) for p in type_paths)) for i in found]

    return events


def joined(kind, *paths):
    """A composite of fields; absent ones that are marked with `?` are left out."""

    def events(r):
        parts = []
        for path in paths:
            found = text(at_path(r.json, path.removesuffix("?")))
            if found is not None:
                parts.append(found)
            elif not path.endswith("?"):
                raise ValueError(f"{path} is missing")
        return [(":".join(parts), text(at_path(r.json, kind)))]

    return events


def and_body(events):
    """These, told apart by the whole body."""
    return lambda r: [(f"{i}:{sha(r.body)}", kind) for i, kind in events(r)]


# --- keys of the right shape, and plainly not real ------------------------------------------------------------------


def plain(name, n):
    return f"not-a-real-secret-{name}-{n}"


def hexadecimal(length):
    return lambda name, n: (f"{n} not a real secret " * 4).encode().hex()[:length]


def whsec(prefix="whsec_"):
    return lambda name, n: prefix + b64(f"{n:06} not a real secret".encode())


def prefixed(prefix):
    return lambda name, n: f"{prefix}notARealSecret{n:010}"


def credentials(name, n):
    return f"hook-user:not-a-real:password-{n}"


# --- the table ------------------------------------------------------------------------------------------------------


class Provider:
    """One provider: its key, its signer, what its events are called, and where the signature stands."""

    def __init__(self, sign, events, where, key=plain, tolerance=None, tamper="body", answer=None, config=None, cases=None):
        self.sign, self.events, self.key, self.tolerance = sign, events, key, tolerance
        self.where = [where] if isinstance(where, str) else where
        self.tamper, self.answer, self.config, self.cases = tamper, answer, config, cases
        # What is registered where keys are fetched; and whether the usual ways to break a request fit this one.
        self.secrets, self.broken = None, True
        # The private keys that the sender encrypts to.
        self.decryption_keys = None


def svix_like(events, **more):
    return Provider(standard("svix"), events, ["svix-signature", "webhook-signature"], whsec(), 300, **more)


def standard_like(events, **more):
    return Provider(standard(), events, "webhook-signature", **{"key": whsec(), "tolerance": 300, **more})


# --- the cases ------------------------------------------------------------------------------------------------------


def standard_raw(events, **more):
    """Standard Webhooks whose key is the secret's own bytes."""
    encoded = lambda key: b64(key.encode())
    return Provider(lambda r, key, at: standard()(r, encoded(key), at), events, "webhook-signature", **{"tolerance": 300, **more})


def header_token(header):
    """The bare token in a header of its own, instead of after `Bearer`."""

    def cases(c):
        r = sample(c.name, samples_of(c.name)[0], c.key, NOW, "other way")
        r.set(header, c.key)
        c.event("the other way", r, [c.key])
        c.rejected("the other way, wrong", r, [c.other])

    return cases


class File:
    def __init__(self, name, provider):
        self.name, self.provider, self.lines = name, provider, []

    def add(self, case, request, secrets, expect):
        line = {
            "provider": self.name,
            "case": case,
            "method": request.method,
            "url": request.url,
            "headers": [list(pair) for pair in request.headers],
            "body_base64": b64(request.body),
            "secrets": secrets if self.provider.secrets is None else self.provider.secrets,
        }
        if self.provider.decryption_keys:
            line["decryption_keys"] = self.provider.decryption_keys
        if self.provider.config:
            line["config"] = self.provider.config
        line |= {"now": NOW, "expect": expect}
        self.lines.append(line)

    def event(self, case, request, secrets, events=None):
        found = self.provider.events(request) if events is None else events
        expect = {"verified": True, "status": "event", "events": [{"id": i, "type": t} for i, t in found]}
        if self.provider.answer is not None:
            expect["response_body"] = self.provider.answer
        self.add(case, request, secrets, expect)

    def rejected(self, case, request, secrets):
        self.add(case, request, secrets, {"verified": False, "status": "rejected"})

    def malformed(self, case, request, secrets):
        """Signed well, but without a name for the event: answered 400."""
        self.add(case, request, secrets, {"verified": True, "status": "rejected"})

    def challenge(self, case, request, secrets, body="", headers=None):
        expect = {"verified": True, "status": "challenge", "response_body": body}
        if headers:
            expect["response_headers"] = headers
        self.add(case, request, secrets, expect)


def samples_of(name):
    return sorted(path.name.removesuffix(".http") for path in (ROOT / name / "samples").glob("*.http"))


def signed(name, provider, file, key, age=2, salt=""):
    request = sample(name, file, key, NOW - age, salt)
    provider.sign(request, key, NOW - age)
    return request


def tampered(provider, request):
    bad = request.copy()
    if callable(provider.tamper):
        bad.body = provider.tamper(request)
        assert bad.body != request.body
    elif provider.tamper == "url":
        bad.url = bad.url.replace("data.id=1", "data.id=2").replace("data.id=ORD01", "data.id=ORD02")
        assert bad.url != request.url
    elif provider.tamper == "signed":
        for old, new in ((b'"value":1001', b'"value":9001'), (b'"value":4200', b'"value":9200'), (b'"value":50000', b'"value":90000')):
            bad.body = bad.body.replace(old, new)
        if bad.body == request.body:
            bad.body = re.sub(rb'"token":"(.)', lambda m: b'"token":"' + (b"f" if m[1] != b"f" else b"0"), bad.body)
        assert bad.body != request.body
    elif provider.tamper == "payload":
        bad.body = bad.body.replace(b"bt_payload=PG", b"bt_payload=PH")
        assert bad.body != request.body
    else:
        # The last digit or letter that is not part of an escape changes into another.
        at = max(i for i, c in enumerate(bad.body) if chr(c).isalnum())
        other = b"1" if bad.body[at : at + 1] != b"1" else b"2"
        bad.body = bad.body[:at] + other + bad.body[at + 1 :]
    return bad


def without_signature(provider, request):
    bad = request.copy()
    bad.drop(*provider.where)
    for place in provider.where:
        kind, _, name = place.partition(":")
        if kind == "query":
            bad.set_query(name, None)
        elif kind == "json":
            bad.body = re.sub(rb'"%s":"[^"]*",?' % name.encode(), b"", bad.body)
        elif kind == "form":
            bad.body = urllib.parse.urlencode([pair for pair in bad.form if pair[0] != name]).encode()
    if "body" in provider.where:
        bad.body = re.sub(rb',?"(hmacSignature|signature)":"[^"]*"', b"", bad.body)
    if "passcode" in provider.where:
        bad.body = re.sub(rb'"passcode":"[^"]*",', b"", bad.body)
    return bad


def broken_signature(provider, request, value):
    bad = without_signature(provider, request)
    kind, _, name = provider.where[0].partition(":")
    if kind == "query":
        bad.set_query(name, value)
    elif kind == "json":
        bad.body = re.sub(rb'"%s":"[^"]*"' % name.encode(), lambda m: b'"%s":"%s"' % (name.encode(), value.encode()), request.body)
    elif kind == "form":
        bad.body = urllib.parse.urlencode([(k, value if k == name else v) for k, v in request.form]).encode()
    elif bad.body != request.body:
        bad.body = re.sub(
            rb'"(hmacSignature|signature|passcode)":"[^"]*"',
            lambda m: b'"' + m[1] + b'":"' + value.encode() + b'"',
            request.body,
        )
    else:
        used = next(h for h in provider.where if request.get(h) is not None)
        bad.set(used, value)
    return bad


def altered(text):
    """One character in the middle changed."""
    middle = len(text) // 2
    return text[:middle] + ("B" if text[middle] == "A" else "A") + text[middle + 1 :]


def altered_proof(provider, request, key):
    """The token, changed where it stands."""
    for place in provider.where:
        kind, _, name = place.partition(":")
        if kind == "query":
            return broken_signature(provider, request, altered(request.query[name]))
        if request.get(place) is not None:
            bad = request.copy()
            bad.set(place, altered(request.get(place)))
            return bad
    bad = request.copy()
    bad.body = bad.body.replace(key.encode(), altered(key).encode())
    assert bad.body != request.body
    return bad


def is_json(body):
    try:
        return json.loads(body) is not None
    except ValueError:
        return False


def changed_body(provider, request, key):
    """The last letter or digit changed that leaves the body readable, and is no part of a token in it."""
    if not request.body:
        bad = request.copy()
        bad.body = b"{}"
        return bad
    body, token = request.body, isinstance(key, str) and request.body.find(key.encode())
    for at in reversed(range(len(body))):
        inside = token is not False and token >= 0 and token <= at < token + len(key)
        if not chr(body[at]).isalnum() or inside or body[at - 1 : at] in (b"%", b"\\") or body[at - 2 : at - 1] == b"%":
            continue
        bad = request.copy()
        bad.body = body[:at] + (b"1" if body[at : at + 1] != b"1" else b"2") + body[at + 1 :]
        try:
            if is_json(body) and not is_json(bad.body):
                continue
            provider.events(bad)
        except (KeyError, ValueError, StopIteration, SyntaxError, TypeError):
            continue
        return bad
    raise AssertionError("nothing to change")


def common(out):
    name, provider = out.name, out.provider
    key, other = provider.key(name, 1), provider.key(name, 2)
    files = samples_of(name)
    assert key != other, f"{name} has one key only"
    assert len(files) >= 2, f"{name} needs two samples"
    for file in files:
        request = signed(name, provider, file, key)
        out.event(f"sample {file}", request, [key])
        forged = request if provider.secrets is None else signed(name, provider, file, other)
        out.rejected(f"wrong key {file}", forged, [other])
        if provider.tamper:
            out.rejected(f"tampered {file}", tampered(provider, request), [key])
        else:
            out.rejected(f"tampered proof {file}", altered_proof(provider, request, key), [key])
            out.event(f"changed body {file}, taken: the body is not signed", changed_body(provider, request, key), [key])
        if provider.tamper == "body":
            bad = request.copy()
            bad.body += b" "
            out.rejected(f"tampered whitespace {file}", bad, [key])
    request = signed(name, provider, files[0], key)
    if provider.secrets is None:
        out.event("rotation, the older secret", request, [other, key])
        out.event("rotation, the newer secret", request, [key, other])
    if not provider.broken:
        return
    out.rejected("missing signature", without_signature(provider, request), [key])
    out.rejected("empty signature", broken_signature(provider, request, ""), [key])
    out.rejected("malformed signature", broken_signature(provider, request, "garbage"), [key])
    out.rejected("malformed signature, right prefix", broken_signature(provider, request, "sha256=v1,t=1,v1=zz"), [key])
    if provider.tolerance:
        fresh = signed(name, provider, files[0], key, provider.tolerance - 5, "fresh")
        out.event("old, but fresh enough", fresh, [key])
        stale = signed(name, provider, files[0], key, provider.tolerance + 60, "stale")
        out.rejected("stale", stale, [key])
        future = signed(name, provider, files[0], key, -provider.tolerance - 60, "future")
        out.rejected("from the future", future, [key])


def post(name, body=b"", headers=(), query=""):
    return Request("POST", f"https://hooks.example.com/webhooks/{name}{query}", headers, body)


def get(name, query="", headers=(), method="GET"):
    return Request(method, f"https://hooks.example.com/webhooks/{name}{query}", headers)


JSON = ("Content-Type", "application/json")
FORM = ("Content-Type", "application/x-www-form-urlencoded")


class Cases:
    """At hand for the cases that only one provider has."""

    def __init__(self, out):
        self.out, self.name, self.provider = out, out.name, out.provider
        self.key, self.other = self.provider.key(self.name, 1), self.provider.key(self.name, 2)
        self.event, self.rejected, self.challenge = out.event, out.rejected, out.challenge
        self.malformed = out.malformed
        self.request = signed(self.name, self.provider, samples_of(self.name)[0], self.key)

    def apart(self, *cases):
        """Requests that are several events: `(case, request)`, signed already."""
        names = [[i for i, _ in self.provider.events(r)] for _, r in cases]
        flat = [name for found in names for name in found]
        assert len(set(flat)) == len(flat) > 1, flat
        for case, r in cases:
            self.event(case, r, [self.key])

    def again(self, case, first, r):
        """A request that is the first one sent once more."""
        assert first.body != r.body and self.provider.events(first) == self.provider.events(r), case
        self.event(case, r, [self.key])

    def sign(self, r, key=None, age=2):
        self.provider.sign(r, key or self.key, NOW - age)
        return r

    def post(self, body=b"", headers=(), query=""):
        return post(self.name, body if isinstance(body, bytes) else compact(body).encode(), [JSON, *headers], query)

    def form(self, fields, headers=(), query=""):
        return post(self.name, urllib.parse.urlencode(fields).encode(), [FORM, *headers], query)

    def get(self, query="", headers=(), method="GET"):
        return get(self.name, query, headers, method)

    def several(self, separator, wrong, case="several signatures, the second holds"):
        """The right signature after another one in the same header."""
        header = self.provider.where[0]
        bad = self.request.copy()
        bad.set(header, wrong + separator + self.request.get(header))
        self.event(case, bad, [self.key])
