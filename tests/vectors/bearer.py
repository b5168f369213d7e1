"""Senders that show a token made by somebody else's keys: a detached JWS whose payload is the body as it is (RFC 7797),
or a bearer token that they fetched from the receiver's own authorization server. It wants `cryptography`."""

from contextlib import contextmanager

import public
from apps import PROVIDERS as APPS, sparkpost_cases
from base import *

SALEOR_KEYS = "https://shop.example.com/.well-known/jwks.json"
OWN_KEYS = "https://login.example.com/.well-known/jwks.json"


def jwks(kid):
    return json.dumps({"keys": [public.public_jwk(public.load("rsa-1"), kid)]})


@contextmanager
def registered(c, config, secrets=None):
    """What is registered while these cases are made."""
    usual = c.provider.config, c.provider.secrets
    c.provider.config, c.provider.secrets = config, secrets
    yield
    c.provider.config, c.provider.secrets = usual


# --- Saleor ---------------------------------------------------------------------------------------------------------


def saleor(r, key, at, plain=True, payload="", algorithm="RS256", **head):
    kid = "saleor-1" if key.endswith("1") else "saleor-2"
    head = {"alg": algorithm, "typ": "JWT", "kid": kid} | ({"b64": False} if plain else {}) | head
    head = public.b64url(json.dumps({k: v for k, v in head.items() if v is not None}).encode())
    signed = f"{head}.".encode() + (r.body if plain else public.b64url(r.body).encode())
    r.set("Saleor-Signature", f"{head}.{payload}.{public.b64url(public.rsa(public.PRIVATE[key], signed))}")


def saleor_cases(c):
    def sent(**how):
        r = sample(c.name, samples_of(c.name)[0], c.key, NOW - 2, "jws")
        saleor(r, c.key, NOW, **how)
        return r

    c.event("b64 that must be understood", sent(crit=["b64"]), [])
    c.event("the payload in base64", sent(plain=False), [])
    c.event("the payload in base64, and it says so", sent(plain=False, b64=True), [])
    for case, how in (
        ("an extension that is not known", {"crit": ["b64", "exp"]}),
        ("another extension", {"crit": ["exp"], "b64": None}),
        ("no extension", {"crit": []}),
        ("an extension twice", {"crit": ["b64", "b64"]}),
        ("b64 is not there", {"crit": ["b64"], "b64": None}),
        ("b64 is not there, nor an extension", {"b64": None}),
        ("b64 is no boolean", {"crit": ["b64"], "b64": "false"}),
        ("b64 is the other", {"b64": True}),
        ("no algorithm", {"algorithm": "none"}),
        ("another algorithm", {"algorithm": "HS256"}),
        ("a key that is not at hand", {"kid": "saleor-3"}),
        ("a payload of its own", {"payload": public.b64url(b"{}")}),
    ):
        c.rejected(case, sent(**how), [])
    r = c.post({"issuedAt": "2026-01-05T10:00:00Z", "exp": 1, "nbf": NOW * 2}, [("Saleor-Event", "order_created")])
    saleor(r, c.key, NOW)
    c.event("a body with words of claims in it", r, [])
    key, other = plain("saleor", 1), plain("saleor", 2)
    certs = c.provider.config["certs"]
    for file in samples_of(c.name):
        r = sample(c.name, file, key, NOW - 2, "secretKey")
        body_hex("Saleor-Signature")(r, key, NOW)
        bad = r.copy()
        bad.body += b" "
        for case, config in (("a secretKey", None), ("a secretKey beside the domain", {"domain": "shop.example.com", "certs": certs})):
            with registered(c, config):
                c.event(f"{case}, {file}", r, [key])
                c.rejected(f"{case}, wrong key {file}", r, [other])
                c.rejected(f"{case}, tampered {file}", bad, [key])
    with registered(c, None):
        c.rejected("a JWS, and the domain is not said", sent(), [key])
    with registered(c, {"domain": "other.example.com", "certs": certs}, []):
        c.rejected("a JWS of another domain", sent(), [])


# --- tokens of the receiver's own server ----------------------------------------------------------------------------


def bearer_token(r, key, at, audience="https://hooks.example.com", algorithm="RS256", **changes):
    kid = "own-1" if key.endswith("1") else "own-2"
    claims = {"iss": "https://login.example.com/", "sub": "sender", "aud": audience, "iat": at, "exp": at + 3600} | changes
    claims = {name: value for name, value in claims.items() if value is not None}
    secret = public.PRIVATE[key] if algorithm == "RS256" else "not-a-real-secret"
    r.set("Authorization", "Bearer " + public.jws(claims, secret, algorithm, {"kid": kid, "typ": "at+jwt"}))


OWN = {"jwks_url": OWN_KEYS, "issuer": "https://login.example.com/", "audience": "https://hooks.example.com", "certs": {OWN_KEYS: jwks("own-1")}}


def token_cases(c, secrets, word="token"):
    """Of any sender that shows such a token."""

    def sent(key=None, **how):
        r = sample(c.name, samples_of(c.name)[0], c.key, NOW - 2, word)
        r.drop("Authorization")
        bearer_token(r, key or public.fetched_key(c.name, 1), NOW - 2, **how)
        return r

    c.event(f"{word}, several audiences", sent(audience=["https://hooks.example.com", "https://api.example.com"]), secrets)
    for case, how in (
        ("for another audience", {"audience": "https://api.example.com"}),
        ("for other audiences", {"audience": ["https://api.example.com"]}),
        ("for no audience", {"audience": None}),
        ("of another issuer", {"iss": "https://other.example.com/"}),
        ("of an issuer without its slash", {"iss": "https://login.example.com"}),
        ("of no issuer", {"iss": None}),
        ("expired", {"exp": NOW - 120}),
        ("that never ends", {"exp": None}),
        ("not yet", {"nbf": NOW + 120}),
        ("with a shared key", {"algorithm": "HS256"}),
        ("without algorithm", {"algorithm": "none"}),
        ("of another key", {"key": public.fetched_key(c.name, 2)}),
    ):
        c.rejected(f"{word}, {case}", sent(**how), secrets)
    opaque = sent()
    opaque.set("Authorization", "Bearer 2YotnFZFEjr1zCsicMWpAA")
    c.rejected(f"{word}, opaque", opaque, secrets)
    with registered(c, {name: value for name, value in OWN.items() if name != "issuer"}, secrets):
        c.rejected(f"{word}, and the issuer is not said", sent(), secrets)
    return sent


def generic_cases(c):
    sent = token_cases(c, [])
    pem = public.load("rsa-1").public_key().public_bytes(public.PEM, public.SPKI).decode()
    with registered(c, {"issuer": OWN["issuer"], "audience": OWN["audience"]}, [pem]):
        c.event("a pinned key", sent(), [])
        c.rejected("a pinned key, another's token", sent(key=public.fetched_key(c.name, 2)), [])


def oauth_cases(c):
    sparkpost_cases(c)
    with registered(c, OWN):
        word = "OAuth 2.0"
        sent = token_cases(c, [], word)
        c.event(word, sent(), [])
        c.event(f"{word}, the password still counts", c.request, [c.key])
        c.rejected(f"{word}, no password is registered", c.request, [])
        c.rejected(f"{word}, without the header", c.post(c.request.body), [])
    c.rejected(f"{word} is not set up", sent(), [c.key])


def fetched(*arguments, **more):
    provider = Provider(*arguments, **more)
    provider.secrets = []
    return provider


PROVIDERS = {
    "saleor": fetched(saleor, lambda r: [(f"{r.get('Saleor-Event')}:{sha(r.body)}", r.get("Saleor-Event"))], "Saleor-Signature", public.fetched_key, config={"domain": "shop.example.com", "certs": {SALEOR_KEYS: jwks("saleor-1")}}, cases=saleor_cases),
    "generic_jwt": fetched(bearer_token, lambda r: [(r.get("X-Event-Id") or r.json["id"], r.json["type"])], "Authorization", public.fetched_key, tamper=None, config=OWN, cases=generic_cases),
}
APPS["sparkpost"].cases = oauth_cases
